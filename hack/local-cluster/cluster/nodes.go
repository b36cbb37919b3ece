package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// ReadyAnnotation on a node says what its condition Ready shall be: "True",
// "False" or "Unknown".
const ReadyAnnotation = "local-cluster/ready"

func nodeName(n int) string { return fmt.Sprintf("node-%d", n) }

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
	name := nodeName(n)
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

// nodesReady reports whether all n nodes are Ready and take Pods. Those that
// were told not to be, in a former run, are as they should be.
func nodesReady(ctx context.Context, client kubernetes.Interface, n int) (bool, error) {
	for i := 1; i <= n; i++ {
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("reading node %d: %w", i, err)
		}
		if node.Annotations[ReadyAnnotation] == "" && (!isReady(node) || isTainted(node)) {
			return false, nil
		}
	}
	return true, nil
}

// admitPods removes the taint that every node is born with, which is the work
// of the controller manager where there is one.
func admitPods(ctx context.Context, client kubernetes.Interface, n int) error {
	for i := 1; i <= n; i++ {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := client.CoreV1().Nodes().Get(ctx, nodeName(i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isBirthTaint)
			_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("removing the taint of node %d: %w", i, err)
		}
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isTainted(node *corev1.Node) bool { return slices.ContainsFunc(node.Spec.Taints, isBirthTaint) }

func isBirthTaint(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeNotReady }
