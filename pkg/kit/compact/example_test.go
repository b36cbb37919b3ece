package compact_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/compact"
)

// Of all Pods, the cache then has each node's name in memory once.
func Example() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "vanilla", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
	}
	compact.Metadata(&pod.ObjectMeta)
	compact.Share(&pod.Spec.NodeName)
	fmt.Printf("%s on %s, written by %v\n", pod.Name, pod.Spec.NodeName, pod.ManagedFields)
	// Output: vanilla on node-1, written by []
}
