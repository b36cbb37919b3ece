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
	"nicoleh.io/k8s-controller/test/lab"
)

// The last line of the log about an Icecream's placement says on which nodes its Pods run.
func TestLogFollowsThePods(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "walnut", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2)})
	n.EventuallyReady(t, "walnut")
	requireLastPlacement(t, n, "walnut")

	for _, edit := range []string{`{"spec":{"replicas":3}}`, `{"spec":{"replicas":1}}`} {
		n.Kubectl(t, "patch", "icecream", "walnut", "--type=merge", "-p", edit)
		n.EventuallyReady(t, "walnut")
		n.Eventually(t, "the other Pods are gone", func(context.Context) error {
			if pods := n.LivePods(t); len(pods) > int(*n.Icecream(t, "walnut").Spec.Replicas) {
				return fmt.Errorf("there are %d Pods", len(pods))
			}
			return nil
		})
		requireLastPlacement(t, n, "walnut")
	}
}

// requireLastPlacement waits until the last line of the log about an Icecream's placement
// agrees with the Pods of the namespace.
func requireLastPlacement(t *testing.T, n *lab.Namespace, icecream string) {
	t.Helper()
	onNode := map[string]int{}
	for _, pod := range n.LivePods(t) {
		onNode[pod.Spec.NodeName]++
	}
	var nodes []string
	for _, node := range slices.Sorted(maps.Keys(onNode)) {
		nodes = append(nodes, fmt.Sprintf("%s (%d)", node, onNode[node]))
	}
	want := fmt.Sprintf("placement=%q", strings.Join(nodes, ", "))
	n.Eventually(t, "the log says where the Pods run", func(context.Context) error {
		last := ""
		for line := range strings.Lines(n.Controller.Log()) {
			if strings.Contains(line, "Placement changed") && strings.Contains(line, fmt.Sprintf("object=%q", n.Name+"/"+icecream)) {
				_, last, _ = strings.Cut(strings.TrimSpace(line), "placement=")
				last = "placement=" + last
			}
		}
		if last != want {
			return fmt.Errorf("Pods by node differ (-want +logged):\n%s", lab.Diff(want, last))
		}
		return nil
	})
}
