package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/difftest"
	"nicoleh.io/k8s-controller/test/lab"
)

// Whoever reads the log learns from its last word on an Icecream where its Pods
// run, and of no other Pods.
func TestLogFollowsThePods(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "walnut", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2)})
	n.EventuallyReady(t, "walnut")
	requireLastPlacement(t, n, "walnut")

	for _, edit := range []string{`{"spec":{"replicas":3}}`, `{"spec":{"deploymentName":"maple"}}`} {
		n.Kubectl(t, "patch", "icecream", "walnut", "--type=merge", "-p", edit)
		n.EventuallyReady(t, "walnut")
		n.Eventually(t, "what was replaced is gone", func(context.Context) error {
			if pods := n.LivePods(t); len(pods) > 3 {
				return fmt.Errorf("there are %d Pods", len(pods))
			}
			return nil
		})
		requireLastPlacement(t, n, "walnut")
	}
}

// requireLastPlacement waits until what the log says last of an Icecream's
// placement is where the Pods of the namespace are.
func requireLastPlacement(t *testing.T, n *lab.Namespace, icecream string) {
	t.Helper()
	onNode := map[string][]string{}
	for _, pod := range n.LivePods(t) {
		onNode[pod.Spec.NodeName] = append(onNode[pod.Spec.NodeName], pod.Name)
	}
	var nodes []string
	for _, node := range slices.Sorted(maps.Keys(onNode)) {
		nodes = append(nodes, node+": "+strings.Join(onNode[node], ", "))
	}
	want := fmt.Sprintf("placement=%q", strings.Join(nodes, "; "))
	n.Eventually(t, "the log tells where the Pods run", func(context.Context) error {
		last := ""
		for line := range strings.Lines(n.Controller.Log()) {
			if strings.Contains(line, "Placement changed") && strings.Contains(line, fmt.Sprintf("object=%q", n.Name+"/"+icecream)) {
				_, last, _ = strings.Cut(strings.TrimSpace(line), "placement=")
				last = "placement=" + last
			}
		}
		if last != want {
			return fmt.Errorf("(-pods +log):\n%s", difftest.Diff(want, last))
		}
		return nil
	})
}
