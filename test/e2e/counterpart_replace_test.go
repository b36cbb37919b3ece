package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// icecreamRecording holds the states of all Icecreams of a namespace, in the order in
// which they were observed.
type icecreamRecording struct {
	n *lab.Namespace

	mu     sync.Mutex
	states []v1alpha1.Icecream
}

// watchIcecreams records the states of a namespace's Icecreams from now on, until the
// test ends.
func watchIcecreams(t *testing.T, n *lab.Namespace) *icecreamRecording {
	t.Helper()
	now, err := n.Icecreams().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := n.Icecreams().Watch(context.WithoutCancel(t.Context()), metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	s := &icecreamRecording{n: n}
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range watcher.ResultChan() {
			if ice, ok := event.Object.(*v1alpha1.Icecream); ok {
				s.mu.Lock()
				s.states = append(s.states, *ice)
				s.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		watcher.Stop()
		watching.Wait()
	})
	return s
}

// requireNeverStalled waits until all changes so far have been recorded, and requires
// that no Icecream was Stalled in any of them.
func (s *icecreamRecording) requireNeverStalled(t *testing.T) {
	t.Helper()
	s.n.Eventually(t, "all changes have been recorded", func(ctx context.Context) error {
		list, err := s.n.Icecreams().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, ice := range s.states {
			seen[ice.ResourceVersion] = true
		}
		for _, ice := range list.Items {
			if !seen[ice.ResourceVersion] {
				return fmt.Errorf("the last change of Icecream %q is missing", ice.Name)
			}
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ice := range s.states {
		if stalled := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
			t.Errorf("at resource version %s Icecream %q was Stalled: %s: %s", ice.ResourceVersion, ice.Name, stalled.Reason, stalled.Message)
		}
	}
}

// requireReplaced waits until the second Icecream named "vanilla" is Ready with a
// Deployment of its own. It requires that the Icecream was never Stalled and that there
// are no Warnings.
func requireReplaced(t *testing.T, n *lab.Namespace, seen *icecreamRecording, before *v1alpha1.Icecream) {
	t.Helper()
	ice := n.EventuallyReady(t, "vanilla")
	if ice.UID == before.UID {
		t.Fatal("the Icecream was not replaced")
	}
	if d := n.Deployment(t, "vanilla"); !metav1.IsControlledBy(d, ice) {
		t.Errorf("the Deployment is %+v", d.ObjectMeta)
	}
	seen.requireNeverStalled(t)
	eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonSynced, "")
	requireNoWarnings(t, n, "vanilla")
}

// replace runs kubectl replace --force. That deletes the Icecream and creates it again
// while the garbage collector is still deleting the Deployment of the first one.
func replace(t *testing.T, n *lab.Namespace, manifest string) {
	t.Helper()
	if _, err := n.TryKubectl(t.Context(), manifest, "replace", "--force", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func TestReplaceByForce(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	for range 3 {
		before := n.Icecream(t, "vanilla")
		seen := watchIcecreams(t, n)
		replace(t, n, icecreamYAML("vanilla", "replicas: 2"))
		requireReplaced(t, n, seen, before)
	}
}

// A garbage collector that has much to do may start late.
func TestReplaceByForceWhileTheGarbageCollectorIsSlow(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{})
	c := l.StartController(t, "-icecream-stall-after=3s")
	n := l.NewNamespace(t)
	n.Controller = c
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	before := n.EventuallyReady(t, "vanilla")

	if err := l.PauseComponent(cluster.ControllerManager); err != nil {
		t.Fatal(err)
	}
	seen := watchIcecreams(t, n)
	replace(t, n, icecreamYAML("vanilla", "replicas: 2"))
	requireTerminating(t, n, "vanilla", "vanilla")
	if err := l.ResumeComponent(cluster.ControllerManager); err != nil {
		t.Fatal(err)
	}
	requireReplaced(t, n, seen, before)
}
