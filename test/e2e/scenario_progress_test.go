package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/test/lab"
)

// Replacing fifty Pods causes about two hundred changes. With such a long window, the
// controller reports only that a rollout has begun and that it is complete. It reports
// completion without waiting for the end of the window.
func TestProgressIsReportedOncePerWindow(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	n.StartController(t, "-icecream-status-window=1h")
	for _, step := range []struct {
		what, image string
		replicas    int
	}{
		{"the first rollout", "registry.example/vanilla:1", 50},
		{"an update", "registry.example/vanilla:2", 50},
		{"scaling down", "registry.example/vanilla:2", 10},
		{"scaling up", "registry.example/vanilla:2", 50},
	} {
		began := time.Now()
		n.Apply(t, icecreamYAML("vanilla", fmt.Sprintf("replicas: %d", step.replicas), "image: "+step.image))
		n.EventuallyReady(t, "vanilla")
		requireAccurateStatus(t, n, "vanilla", step.replicas)
		if written := statusWrites(t, n, "vanilla", began); len(written) > 3 {
			t.Errorf("%s took these status writes: %s", step.what, written)
		}
	}
}

func TestProgressIsReportedAsItGoes(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	for _, image := range []string{"registry.example/vanilla:1", "registry.example/vanilla:2"} {
		began := time.Now()
		n.Apply(t, icecreamYAML("vanilla", "replicas: 50", "image: "+image))
		n.EventuallyReady(t, "vanilla")
		// A few writes for the beginning and the end, and one every two seconds in
		// between.
		most := 4 + int(time.Since(began)/(2*time.Second))
		requireAccurateStatus(t, n, "vanilla", 50)
		if written := statusWrites(t, n, "vanilla", began); len(written) > most {
			t.Errorf("in %s there were more than %d status writes: %s", time.Since(began), most, written)
		}
	}
}

// requireAccurateStatus requires that the status of a Ready Icecream agrees with its Pods.
func requireAccurateStatus(t *testing.T, n *lab.Namespace, name string, replicas int) {
	t.Helper()
	ice := n.Icecream(t, name)
	wanted := int32(replicas)
	s := ice.Status
	if s.Replicas != wanted || s.UpdatedReplicas != wanted || s.ReadyReplicas != wanted || s.AvailableReplicas != wanted {
		t.Errorf("the Icecream has %d Pods, and its status is %+v", wanted, s)
	}
	if nodes := lab.NodesOf(n.LivePods(t)); !slices.Equal(s.Nodes, nodes) || int(s.NodeCount) != len(nodes) {
		t.Errorf("the status lists %d nodes: %+v; counting the Pods gives %+v", s.NodeCount, s.Nodes, nodes)
	}
}
