package consistency_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
)

func stateOf(t *rapid.T, s *consistency.Store) string {
	text, err := json.Marshal(s.State())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A store whose state is restored all the time behaves like one that goes on.
func TestStateIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deploymentsAt, gadgetsAt := at("100"), at("100")
		caches := map[schema.GroupResource]consistency.Seen{deployments: &deploymentsAt, gadgets: &gadgetsAt}
		kept := consistency.New(caches)
		owner := rapid.SampledFrom([]cache.ObjectName{vanilla, chocolate, cache.NewObjectName("", "cluster-scoped")})
		resource := rapid.SampledFrom([]schema.GroupResource{deployments, gadgets})
		version := rapid.Map(rapid.IntRange(95, 110), strconv.Itoa)
		restored := kept
		both := func(t *rapid.T, call func(*consistency.Store) string) {
			before := stateOf(t, kept)
			var state consistency.State
			if err := json.Unmarshal([]byte(before), &state); err != nil {
				t.Fatal(err)
			}
			restored = consistency.New(caches)
			restored.WroteAt(vanilla, gadgets, "1000") // which is replaced
			restored.SetState(state)
			if got := stateOf(t, restored); got != before {
				t.Fatalf("restored %s, got %s", before, got)
			}
			if want, got := call(kept), call(restored); want != got {
				t.Fatalf("%q, but %q if restored from %s", want, got, before)
			}
			if want, got := stateOf(t, kept), stateOf(t, restored); want != got {
				t.Fatalf("then %s, but %s if restored from %s", want, got, before)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"WroteAt": func(t *rapid.T) {
				o, r, v := owner.Draw(t, "owner"), resource.Draw(t, "resource"), version.Draw(t, "version")
				both(t, func(s *consistency.Store) string { s.WroteAt(o, r, v); return "" })
			},
			"EnsureReady": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				both(t, func(s *consistency.Store) string { return text(s.EnsureReady(o)) })
			},
			"IsEcho": func(t *rapid.T) {
				o, r, v := owner.Draw(t, "owner"), resource.Draw(t, "resource"), version.Draw(t, "version")
				both(t, func(s *consistency.Store) string { return strconv.FormatBool(s.IsEcho(o, r, v)) })
			},
			"Clear": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				both(t, func(s *consistency.Store) string { s.Clear(o); return "" })
			},
			"the cache moves": func(t *rapid.T) {
				deploymentsAt, gadgetsAt = at(version.Draw(t, "deployments")), at(version.Draw(t, "gadgets"))
			},
		})
	})
}
