package explore_test

import (
	"math"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/explore"
)

// Two steps that count as independent lead to the same state in either order. If that
// forgets what the steps of one kind have to do with, or one of the parts of a state, the
// test sees it.
func TestExploreOrders(t *testing.T) {
	elected, two := expiring(), expiring()
	elected.Programs[0].Elected = true
	two.Programs = append(two.Programs, explore.Program{Name: "another controller", New: newExpiry})
	two.Checks = explore.Checks{} // the search is to be complete
	type forgotten struct {
		kind  string
		parts uint64
	}
	missed := map[string]forgotten{}
	for _, kind := range explore.StepNames {
		missed["all that "+kind+" has to do with"] = forgotten{kind, math.MaxUint64}
	}
	for part, mask := range explore.Parts() {
		missed["what has to do with "+part] = forgotten{"", mask}
	}
	for _, test := range []struct {
		name, bounds string
		setup        explore.Setup
	}{
		{"two processes", "processes=2,crashes=1,takeovers=1", elected},
		{"lost responses", "losses=2,crashes=1", naively(naive{})},
		{"a relist", "relists=1", naively(naive{})},
		{"two programs", "refusals=1,edits=1", two},
	} {
		t.Run(test.name, func(t *testing.T) {
			bounds, err := explore.ParseBounds(test.bounds)
			if err != nil {
				t.Fatal(err)
			}
			orders, result, err := test.setup.Orders(t.Context(), bounds)
			if err != nil {
				t.Fatal(err)
			}
			if err := orders.CompareSearch(); err != nil {
				t.Error(err)
			}
			pairs, err := orders.CompareOrders("", 0)
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d states, %d transitions, %d executed; compared %d", result.States, result.Transitions, result.Executed, pairs)
			for what, m := range missed {
				if _, err := orders.CompareOrders(m.kind, m.parts); err != nil {
					delete(missed, what)
				}
			}
		})
	}
	for what := range missed {
		t.Errorf("forgetting %s makes no difference", what)
	}
}
