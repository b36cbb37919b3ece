package explore

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTextsAreKept(t *testing.T) {
	for _, raw := range []string{
		"",
		`{"resourceVersion":"` + versionText(3, 17) + `","uid":"` + uidText(2) + `"}`,
		`{"generation":` + numberText(generationPrefix, 1, 0) + `}`,
		`{"at":"2222-02-22T11:59:58Z","renewed":"2222-02-22T12:00:00.000000Z"}`,
		"7 73 84 2222- 2222-13-99T00:00:00Z",
	} {
		for _, isExact := range []bool{false, true} {
			ts := newTemplates()
			ts.isExact = isExact
			x := ts.parse(raw, 3, false)
			if got := ts.render(x); got != raw {
				t.Errorf("got %q, want %q", got, raw)
			}
			if again := ts.parse(ts.render(x), 3, false); !again.equal(x) {
				t.Errorf("%q: got %v, want %v", raw, again, x)
			}
		}
	}
}

// What a renaming does to a text can be undone, and texts that differ only in names become
// equal.
func TestRenaming(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ts := newTemplates()
		kinds := rapid.SliceOf(rapid.SampledFrom([]gap{{versionGap, 1}, {versionGap, 2}, {generationGap, 1}, {uidGap, 0}, {secondGap, 1}, {exactGap, 0}, {exactMicroGap, 0}})).Draw(t, "kinds")
		var b []byte
		for _, g := range kinds {
			b = appendGap(b, g)
		}
		x := text{template: ts.id(b)}
		for _, g := range kinds {
			value := rapid.Int64Range(0, 9).Draw(t, "value")
			if g.kind == secondGap {
				value = -value
			}
			x.values = append(x.values, value)
		}
		canonical := func(x text) (*renaming, text) {
			r := &renaming{horizon: 100}
			r.collect(kinds, x.values)
			r.settle()
			named := text{template: x.template}
			for i, g := range kinds {
				named.values = append(named.values, r.rename(g, x.values[i]))
			}
			return r, named
		}
		r, named := canonical(x)
		back := text{template: x.template}
		for i, g := range kinds {
			back.values = append(back.values, r.restore(g, named.values[i], free{}))
		}
		if !back.equal(x) {
			t.Fatalf("got %v back, want %v", back, x)
		}
		if _, again := canonical(named); !again.equal(named) {
			t.Fatalf("the names %v have other names: %v", named, again)
		}
		if !r.knows(kinds, x.values) {
			t.Fatalf("%v is not known", x)
		}
	})
}

// A new object has the first generation. It does not depend on whether an older one is still
// known that has it, too, what the generations of the others are called.
func TestFirstGeneration(t *testing.T) {
	g := gap{generationGap, 1}
	for _, known := range [][]int64{{3}, {0, 3}} {
		r := &renaming{}
		for _, generation := range known {
			r.collect([]gap{g}, []int64{generation})
		}
		r.settle()
		if first, fourth := r.rename(g, 0), r.rename(g, 3); first != 0 || fourth != 1 {
			t.Errorf("with %v: the names of 0 and 3 are %d and %d, want 0 and 1", known, first, fourth)
		}
	}
}

func TestComponents(t *testing.T) {
	next := [][]uint32{{1}, {2}, {0, 3}, {4}, {}, {5}}
	got := components(len(next), func(id uint32) []uint32 { return next[id] })
	same := func(a, b int) bool { return got[a] == got[b] }
	if !same(0, 1) || !same(1, 2) || same(2, 3) || same(3, 4) || same(4, 5) {
		t.Errorf("got components %v", got)
	}
}
