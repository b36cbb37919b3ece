package lab

import (
	"fmt"

	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// violationsOfCurrent returns the parts of a Current status that contradict the spec: counts of
// replicas and, if it is the first such status, the Pods on the nodes. While it stays Ready, a Pod
// that was deleted is gone from the nodes at once, and from the Deployment's counts a little later.
func violationsOfCurrent(ice *v1alpha1.Icecream, isFirst bool) (found []string) {
	s, want := ice.Status, ptr.Deref(ice.Spec.Replicas, 1)
	for what, count := range map[string]int32{
		"replicas": s.Replicas, "updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
	} {
		if count != want {
			found = append(found, fmt.Sprintf("it is Current with %d %s, want %d", count, what, want))
		}
	}
	if !isFirst || int(s.NodeCount) != len(s.Nodes) { // a status lists no more than 100 nodes
		return found
	}
	var pods, readyPods int32
	for _, node := range s.Nodes {
		pods += node.Pods
		readyPods += node.ReadyPods
	}
	if pods != want || readyPods != want {
		found = append(found, fmt.Sprintf("it is Current with %d Pods on its nodes, %d of them ready, want %d", pods, readyPods, want))
	}
	return found
}
