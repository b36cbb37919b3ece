package explore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nicoleh.io/k8s-controller/pkg/kit/explore"
)

// neverBack finds a status that shows the past: as long as there is one Deployment, it has
// ever more available Pods.
func neverBack(c explore.Change) error {
	if c.Subresource != "status" || c.By == "" {
		return nil
	}
	before, after := available(c.Before), available(c.After)
	if after < before && len(explore.All[appsv1.Deployment](c.After, deployments)) == 1 {
		return fmt.Errorf("the status goes back from %d to %d available replicas", before, after)
	}
	return nil
}

func available(w explore.World) int64 {
	n, _, err := unstructured.NestedInt64(w.Object(foos, namespace, "bar").Object, "status", "availableReplicas")
	if err != nil {
		return -1
	}
	return n
}

// oneDeployment finds a Deployment too many.
func oneDeployment(w explore.World) error {
	if n := len(explore.All[appsv1.Deployment](w, deployments)); n != 1 {
		return fmt.Errorf("the Foo has %d Deployments, want 1", n)
	}
	if available(w) != 1 {
		return errors.New("the status does not say that the Pod is available")
	}
	return nil
}

// twice and untilAnswered say whether to read once more, after n reads of which the last has
// returned err.
func twice(n int, _ error) bool { return n < 2 }

func untilAnswered(n int, err error) bool {
	isRefused := apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
	return n == 0 || isRefused && !apierrors.IsNotFound(err)
}

func search(t *testing.T, s explore.Setup, bounds string) explore.Result {
	t.Helper()
	parsed, err := explore.ParseBounds(bounds)
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.Search(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(result)
	return result
}

// What everybody knows of controllers after this pattern, the explorer finds in a moment.
func TestExploreNaive(t *testing.T) {
	for _, test := range []struct {
		name, bounds, wrong string
		naive               naive
	}{
		{name: "nothing goes wrong", bounds: ""},
		{name: "a Deployment of the former name stays", bounds: "edits=1", wrong: "the Foo has 2 Deployments, want 1"},
		{name: "a late request brings back the past", bounds: "losses=1,delays=1", naive: naive{forces: true}, wrong: "the status goes back from 1 to 0 available replicas"},
		{name: "polling hides a missed event", bounds: "", naive: naive{polls: true}, wrong: "for more than 1m0s, the status does not say that the Pod is available"},
		{name: "it reads twice what it could not create", bounds: "refusals=1", naive: naive{reads: twice}, wrong: "it sends get deployments one again, but has had a response to that, and has written nothing since"},
		{name: "it reads again only what it could not read", bounds: "refusals=2", naive: naive{reads: untilAnswered}},
		{name: "each sync is the reason for the next", bounds: "", naive: naive{countsSyncs: true}, wrong: "more than 10 requests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			setup := naively(test.naive)
			result := search(t, setup, test.bounds)
			c := result.Counterexample
			if test.wrong == "" {
				if c != nil || !result.IsComplete {
					t.Errorf("complete: %t, counterexample:\n%s", result.IsComplete, c)
				}
				return
			}
			if c == nil || !strings.Contains(c.Wrong, test.wrong) {
				t.Fatalf("got %v, want what is wrong to be %q", c, test.wrong)
			}
			again, err := setup.Replay(t.Context(), c.Bounds, c.Script())
			if err != nil {
				t.Fatal(err)
			}
			if again == nil || again.String() != c.String() {
				t.Errorf("got another story when replayed:\n%s\nwant\n%s", again, c)
			}
			// Whoever mends it sees that the test passes.
			if again, err := naively(test.naive).Replay(t.Context(), c.Bounds, "start.0.0.0 lead.0.0.0"); err != nil || again != nil {
				t.Errorf("got %v, %v for a script that leads to nothing wrong", again, err)
			}
		})
	}
}

func TestASyncThatWaitsMayReadAgain(t *testing.T) {
	setup := naively(naive{reads: twice})
	setup.Programs[0].Waits = true
	if result := search(t, setup, "refusals=1"); result.Counterexample != nil || !result.IsComplete {
		t.Errorf("complete: %t, counterexample:\n%s", result.IsComplete, result.Counterexample)
	}
}

// The README shows this story.
func TestExploreREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := search(t, naively(naive{}), "edits=1").Counterexample
	for _, shown := range []string{c.String(), c.GoTest("naively(naive{})")} {
		if !strings.Contains(string(readme), shown) {
			t.Errorf("README.md does not show\n%s", shown)
		}
	}
}

func TestSearchIsDeterministic(t *testing.T) {
	first, second := search(t, naively(naive{}), "losses=1"), search(t, naively(naive{}), "losses=1")
	if first.States != second.States || first.Transitions != second.Transitions || first.Depth != second.Depth {
		t.Errorf("got %v and then %v", first, second)
	}
}

func TestBounds(t *testing.T) {
	for _, raw := range []string{"", "crashes=1", "processes=2,workers=2,crashes=1,takeovers=2,losses=3,refusals=4,relists=5,delays=6,edits=7"} {
		b, err := explore.ParseBounds(raw)
		if err != nil || b.String() != raw {
			t.Errorf("%q: got %q, %v", raw, b, err)
		}
	}
	for _, raw := range []string{"crashes", "crashes=-1", "crashes=101", "crashes=many", "surprises=1"} {
		if b, err := explore.ParseBounds(raw); err == nil {
			t.Errorf("%q: got %q, want an error", raw, b)
		}
	}
}

func TestScriptsThatDoNotFit(t *testing.T) {
	for _, script := range []string{"nonsense", "start.0.0", "start.x.0.0"} {
		if _, err := naively(naive{}).Replay(t.Context(), explore.Bounds{}, script); err == nil {
			t.Errorf("%q: no error", script)
		}
	}
}

func Example() {
	setup := naively(naive{countsSyncs: true})
	result, err := setup.Search(context.Background(), explore.Bounds{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Counterexample.Wrong)
	// Output: more than 10 requests, though nothing has gone wrong
}
