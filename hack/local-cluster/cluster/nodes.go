package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// createNodes registers n nodes the way a kubelet does; those of a former run
// in the same directory are left as they are.
func createNodes(ctx context.Context, client kubernetes.Interface, n int, version string) error {
	for i := 1; i <= n; i++ {
		_, err := client.CoreV1().Nodes().Create(ctx, newNode(i, version), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("registering node %d: %w", i, err)
		}
	}
	return nil
}

func newNode(n int, version string) *corev1.Node {
	name := fmt.Sprintf("node-%d", n)
	size := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: architecture,
			},
		},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeIP(n)},
				{Type: corev1.NodeHostName, Address: name},
			},
			Capacity:    size,
			Allocatable: size,
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:    architecture,
				KubeletVersion:  version,
				OperatingSystem: "linux",
			},
		},
	}
}

// nodesReady reports whether all n nodes are Ready and take Pods.
func nodesReady(ctx context.Context, client kubernetes.Interface, n int) (bool, error) {
	for i := 1; i <= n; i++ {
		node, err := client.CoreV1().Nodes().Get(ctx, fmt.Sprintf("node-%d", i), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if !isReady(node) || isTainted(node) {
			return false, nil
		}
	}
	return true, nil
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// isTainted reports whether the node still has the taint that every node is
// born with.
func isTainted(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return true
		}
	}
	return false
}
