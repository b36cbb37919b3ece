package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// editStatus edits the status of the Icecream "vanilla" as kubectl edit
// --subresource=status would.
func editStatus(t *testing.T, n *lab.Namespace, edit func(*v1alpha1.IcecreamStatus)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		ice, err := n.Icecreams().Get(t.Context(), "vanilla", metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(&ice.Status)
		_, err = n.Icecreams().UpdateStatus(t.Context(), ice, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var phantom = v1alpha1.IcecreamNode{Name: "phantom", Pods: 7}

// The controller replaces the whole status, whoever has written it before.
func TestStatusThatOthersHaveWritten(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(t *testing.T, n *lab.Namespace){
		"an extra node": func(t *testing.T, n *lab.Namespace) {
			editStatus(t, n, func(s *v1alpha1.IcecreamStatus) {
				s.Nodes = append(s.Nodes, phantom)
				s.Placement = "phantom (7)"
			})
		},
		"a status from a backup": func(t *testing.T, n *lab.Namespace) {
			editStatus(t, n, func(s *v1alpha1.IcecreamStatus) {
				s.ObservedGeneration = 1
				for i := range s.Conditions {
					s.Conditions[i].ObservedGeneration = 1
				}
				s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas = 7, 7, 7, 7
				s.Nodes, s.NodeCount, s.Placement = append(s.Nodes, phantom), 9, "phantom (7)"
				s.Selector = "phantom=7"
			})
		},
		"a status by server-side apply": func(t *testing.T, n *lab.Namespace) {
			_, err := n.Icecreams().Patch(t.Context(), "vanilla", types.ApplyPatchType, []byte(`{
				"apiVersion": "controller.nicoleh.io/v1alpha1", "kind": "Icecream",
				"status": {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "nodeCount": 9,
					"placement": "phantom (7)", "selector": "phantom=7", "nodes": [{"name": "phantom", "pods": 7, "readyPods": 0}]}}`),
				metav1.PatchOptions{FieldManager: "phantom", Force: ptr.To(true)}, "status")
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewQuietNamespace(t)
			c := n.StartController(t)
			n.Apply(t, icecreamYAML("vanilla", "replicas: 1"))
			n.EventuallyReady(t, "vanilla")
			n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=2")
			before := n.EventuallyReady(t, "vanilla")

			write(t, n)
			// These edits make the controller look at the Icecream, and change nothing in
			// the end.
			n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=3")
			n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=2")
			eventuallyHasPods(t, n, "vanilla", 2)
			n.EventuallyReady(t, "vanilla")
			want := expectedStatus(t, n, before)
			n.Eventually(t, "the status is the controller's own again", func(context.Context) error {
				if diff := cmp.Diff(want, withoutTimes(n.Icecream(t, "vanilla").Status)); diff != "" {
					return fmt.Errorf("it differs (-want +got):\n%s", diff)
				}
				return nil
			})
			eventuallyIdle(t, n, c)

			// Changes of Pods that do not affect the status cause no writes.
			rested := time.Now()
			pods := podsOf(t, n, "vanilla")
			for i := range 20 {
				n.Kubectl(t, "annotate", "pod", pods[i%2].Name, fmt.Sprintf("parlor.example/beat=%d", i), "--overwrite")
				time.Sleep(settleTime / 5)
			}
			if written := requestsOf(t, n).Since(rested).Writes(); len(written) > 0 {
				t.Errorf("nothing has changed, but the controller made %s", written)
			}
		})
	}
}

// expectedStatus returns the status that the Icecream "vanilla" should have when it is
// Ready with its current Pods. It takes the rest from a former status.
func expectedStatus(t *testing.T, n *lab.Namespace, before *v1alpha1.Icecream) v1alpha1.IcecreamStatus {
	t.Helper()
	want := before.DeepCopy().Status
	want.ObservedGeneration = n.Icecream(t, "vanilla").Generation
	for i := range want.Conditions {
		want.Conditions[i].ObservedGeneration = want.ObservedGeneration
	}
	want.Nodes = lab.NodesOf(podsOf(t, n, "vanilla"))
	want.NodeCount, want.Placement = int32(len(want.Nodes)), placement(want.Nodes)
	return withoutTimes(want)
}

// withoutTimes returns a copy of a status without its times.
func withoutTimes(s v1alpha1.IcecreamStatus) v1alpha1.IcecreamStatus {
	s = *s.DeepCopy()
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return s
}
