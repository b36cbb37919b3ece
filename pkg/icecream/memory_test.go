package icecream

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Nothing is forgotten when a memory is kept, and that of an Icecream at rest is small.
func TestCompactMemory(t *testing.T) {
	rest := Memory{History: kstatus.History{Generation: 3, Complete: now}, Write: children.Write{Match: children.Match{1}}}
	for name, test := range map[string]struct {
		edit    func(*Memory)
		isSmall bool
	}{
		"at rest":             {func(*Memory) {}, true},
		"nothing":             {func(m *Memory) { *m = Memory{} }, true},
		"a problem":           {func(m *Memory) { m.Problem.Reason = "Melted" }, false},
		"since when":          {func(m *Memory) { m.Since = now }, false},
		"a problem that went": {func(m *Memory) { m.Gone = now }, false},
		"a write":             {func(m *Memory) { m.Write.Want = "cone" }, false},
		"a deletion":          {func(m *Memory) { m.Deletion.Count = 1 }, false},
		"what is deleted":     {func(m *Memory) { m.Deleted = []types.UID{"uid"} }, false},
		"a conflict":          {func(m *Memory) { m.Outdated = children.NewOutdated(newIcecream(), now.Add(time.Hour)) }, false},
	} {
		m := rest
		test.edit(&m)
		kept := m.Compact()
		if _, isSmall := kept.(atRest); isSmall != test.isSmall {
			t.Errorf("%s: kept as %T", name, kept)
		}
		if diff := cmp.Diff(m, MemoryOf(kept)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(Memory{}, MemoryOf(nil)); diff != "" {
		t.Errorf("of nothing: %s", diff)
	}
	seen := known(world(newIcecream(), made(t, newIcecream()))).Memory
	if kept, isSmall := seen.Compact().(atRest); !isSmall || kept == (atRest{}) {
		t.Errorf("of an Icecream with nothing to do, %+v is kept as %+v", seen, kept)
	}
}
