package cluster

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createNodes registers the nodes as kubelets do.
func (c *Cluster) createNodes(ctx context.Context) error {
	version, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	for i := 1; i <= c.options.Nodes; i++ {
		if _, err := c.client.CoreV1().Nodes().Create(ctx, newNode(i, version.GitVersion), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating node %d: %w", i, err)
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
				corev1.LabelArchStable: runtime.GOARCH,
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
				Architecture:    runtime.GOARCH,
				KubeletVersion:  version,
				OperatingSystem: "linux",
			},
		},
	}
}

// nodeIP returns the address of the n-th node, from the network that is reserved for
// benchmarks.
func nodeIP(n int) string { return fmt.Sprintf("198.18.%d.%d", (n>>8)&0xff, n&0xff) }

// nodesReady reports whether Pods can run on all nodes. The controller manager removes the
// taint with which a node is created.
func (c *Cluster) nodesReady(ctx context.Context) (bool, error) {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(nodes.Items, func(node corev1.Node) bool {
		isReady := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
		isTainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == corev1.TaintNodeNotReady
		})
		return !isReady || isTainted
	}), nil
}
