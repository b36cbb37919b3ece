package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// reservedKey is the key of the label and the taint that reserve nodes for one namespace.
const reservedKey = "e2e.example/namespace"

// addOwnNodes adds nodes to the cluster on which only Pods of this namespace run: see
// runOnOwnNodes. They are removed when the test ends.
func addOwnNodes(t *testing.T, n *lab.Namespace, count int) []string {
	t.Helper()
	nodes := n.Lab.Kube.CoreV1().Nodes()
	size := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	var made []string
	for i := range count {
		name := fmt.Sprintf("%s-%d", n.Name, i+1)
		_, err := nodes.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, reservedKey: n.Name}},
			Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: reservedKey, Value: n.Name, Effect: corev1.TaintEffectNoSchedule}}},
			Status:     corev1.NodeStatus{Capacity: size, Allocatable: size},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, name)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
			defer cancel()
			if err := nodes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("deleting node %s: %v", name, err)
			}
		})
	}
	for _, name := range made {
		n.Eventually(t, "node "+name+" accepts Pods", func(ctx context.Context) error {
			node, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !isReadyNode(node) || len(node.Spec.Taints) != 1 {
				return fmt.Errorf("it has the taints %v and the conditions %+v", node.Spec.Taints, node.Status.Conditions)
			}
			return nil
		})
	}
	return made
}

// isReadyNode reports whether a node is ready.
func isReadyNode(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// runOnOwnNodes creates an Icecream whose Pods run on the namespace's own nodes.
// Icecreams have no fields for that, so the test sets them on the Deployment, as other
// tools may. Pods leave a node one second after it stops being ready.
func runOnOwnNodes(t *testing.T, n *lab.Namespace, name string, replicas int32) *v1alpha1.Icecream {
	t.Helper()
	n.Apply(t, icecreamYAML(name, "replicas: 0"))
	n.EventuallyReady(t, name)
	n.Kubectl(t, "patch", "deployment", name, "-p", fmt.Sprintf(`{"spec":{"template":{"spec":{
		"nodeSelector": {%[1]q: %[2]q},
		"tolerations": [
			{"key": %[1]q, "operator": "Exists"},
			{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
		]
	}}}}`, reservedKey, n.Name))
	n.Kubectl(t, "scale", "icecream/"+name, fmt.Sprintf("--replicas=%d", replicas))
	return n.EventuallyReady(t, name)
}

// eventuallyOnNodes waits until the Icecream is Ready with its Pods on exactly these nodes.
func eventuallyOnNodes(t *testing.T, n *lab.Namespace, name string, nodes ...v1alpha1.IcecreamNode) {
	t.Helper()
	n.EventuallyIcecream(t, name, "is Ready on the expected nodes", func(ice *v1alpha1.Icecream) error {
		if diff := cmp.Diff(nodes, ice.Status.Nodes); diff != "" {
			return fmt.Errorf("its nodes differ (-want +got):\n%s", diff)
		}
		return lab.IsReady(ice)
	})
}

// requirePlacementLogged waits until a line of the log says that these Pods are on that
// node.
func requirePlacementLogged(t *testing.T, n *lab.Namespace, name, node string, pods []corev1.Pod) {
	t.Helper()
	words := []string{"Placement changed", n.Name + "/" + name, node + ": "}
	for _, pod := range pods {
		words = append(words, pod.Name)
	}
	n.Eventually(t, "the log reports the placement", func(context.Context) error {
		for line := range strings.Lines(n.Controller.Log()) {
			if strings.HasPrefix(line, "I") && containsAll(line, words...) {
				return nil
			}
		}
		return fmt.Errorf("no line contains all of %q", words)
	})
}

func TestNodeThatIsNotReadyLosesItsPods(t *testing.T) {
	t.Parallel()
	n, nodes := runOnFirstOfTwo(t)

	n.Kubectl(t, "uncordon", nodes[1])
	n.Kubectl(t, "annotate", "node", nodes[0], cluster.ReadyAnnotation+"=False")
	eventuallyOnNodes(t, n, "vanilla", v1alpha1.IcecreamNode{Name: nodes[1], Pods: 2, ReadyPods: 2})
	eventuallyTold(t, n, "vanilla", "2 Pods on "+nodes[1], 1)
	requirePlacementLogged(t, n, "vanilla", nodes[1], n.LivePods(t))
}

func TestNodeThatFailsItsPodsAndIsDrained(t *testing.T) {
	t.Parallel()
	n, nodes := runOnFirstOfTwo(t)
	eventuallyTold(t, n, "vanilla", "2 Pods on "+nodes[0], 1)
	requirePlacementLogged(t, n, "vanilla", nodes[0], n.LivePods(t))

	// The node controller does this to Pods whose kubelet has stopped reporting.
	for _, pod := range n.LivePods(t) {
		n.Kubectl(t, "patch", "pod", pod.Name, "--subresource=status", "-p", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NodeNotReady"}]}}`)
	}
	n.EventuallyIcecream(t, "vanilla", "has no ready Pod", func(ice *v1alpha1.Icecream) error {
		want := []v1alpha1.IcecreamNode{{Name: nodes[0], Pods: 2, ReadyPods: 0}}
		if diff := cmp.Diff(want, ice.Status.Nodes); diff != "" || ice.Status.ReadyReplicas != 0 || ice.Status.AvailableReplicas != 0 {
			return fmt.Errorf("the status is %+v; its nodes differ (-want +got):\n%s", ice.Status, diff)
		}
		if lab.IsReady(ice) == nil {
			return errors.New("it is Ready")
		}
		return nil
	})
	requireKubectlShows(t, n, "vanilla", "False", v1alpha1.ReasonProgressing)

	n.Kubectl(t, "uncordon", nodes[1])
	n.Kubectl(t, "drain", nodes[0], "--ignore-daemonsets", "--timeout=120s")
	eventuallyOnNodes(t, n, "vanilla", v1alpha1.IcecreamNode{Name: nodes[1], Pods: 2, ReadyPods: 2})
	eventuallyTold(t, n, "vanilla", "2 Pods on "+nodes[1], 1)
	requirePlacementLogged(t, n, "vanilla", nodes[1], n.LivePods(t))
}

// Pods outlive their node until the Pod garbage collector deletes them, about a minute
// later.
func TestNodeThatIsDeleted(t *testing.T) {
	t.Parallel()
	n, nodes := runOnFirstOfTwo(t)
	before := podUIDs(n.LivePods(t))

	n.Kubectl(t, "uncordon", nodes[1])
	n.Kubectl(t, "delete", "node", nodes[0])
	n.Eventually(t, "the Pods of the node are gone", func(context.Context) error {
		for _, pod := range n.LivePods(t) {
			if before[pod.Name] == pod.UID {
				return fmt.Errorf("Pod %s still exists", pod.Name)
			}
		}
		return nil
	})
	eventuallyOnNodes(t, n, "vanilla", v1alpha1.IcecreamNode{Name: nodes[1], Pods: 2, ReadyPods: 2})
	requirePlacementLogged(t, n, "vanilla", nodes[1], n.LivePods(t))
}

func TestPodThatIsDeletedOrEvicted(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(ctx context.Context, n *lab.Namespace, pod string) error{
		"deleted": func(ctx context.Context, n *lab.Namespace, pod string) error {
			_, err := n.TryKubectl(ctx, "", "delete", "pod", pod)
			return err
		},
		"evicted": func(ctx context.Context, n *lab.Namespace, pod string) error {
			return n.Pods().EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}})
		},
		// A kubelet that is short of memory marks the Pod as failed and leaves it in
		// place.
		"evicted by its node": func(ctx context.Context, n *lab.Namespace, pod string) error {
			_, err := n.TryKubectl(ctx, "", "patch", "pod", pod, "--subresource=status", "-p",
				`{"status":{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}}`)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			nodes := addOwnNodes(t, n, 2)
			n.Kubectl(t, "cordon", nodes[1])
			runOnOwnNodes(t, n, "vanilla", 3)
			eventuallyOnNodes(t, n, "vanilla", v1alpha1.IcecreamNode{Name: nodes[0], Pods: 3, ReadyPods: 3})

			n.Kubectl(t, "uncordon", nodes[1])
			n.Kubectl(t, "cordon", nodes[0])
			if err := remove(t.Context(), n, n.LivePods(t)[0].Name); err != nil {
				t.Fatal(err)
			}
			eventuallyOnNodes(t, n, "vanilla",
				v1alpha1.IcecreamNode{Name: nodes[0], Pods: 2, ReadyPods: 2},
				v1alpha1.IcecreamNode{Name: nodes[1], Pods: 1, ReadyPods: 1})
			if ice := n.Icecream(t, "vanilla"); ice.Status.Placement != fmt.Sprintf("%s (2), %s (1)", nodes[0], nodes[1]) || ice.Status.NodeCount != 2 {
				t.Errorf("the status is %+v", ice.Status)
			}
			eventuallyTold(t, n, "vanilla", fmt.Sprintf("2 Pods on %s, 1 Pod on %s", nodes[0], nodes[1]), 0)
			moved := slices.DeleteFunc(n.LivePods(t), func(pod corev1.Pod) bool { return pod.Spec.NodeName != nodes[1] })
			requirePlacementLogged(t, n, "vanilla", nodes[1], moved)
		})
	}
}

// runOnFirstOfTwo creates the Icecream "vanilla" with two Pods, which run on the first of
// two nodes that the namespace has for itself. The second node is cordoned.
func runOnFirstOfTwo(t *testing.T) (n *lab.Namespace, nodes []string) {
	t.Helper()
	n = NewNamespace(t)
	nodes = addOwnNodes(t, n, 2)
	n.Kubectl(t, "cordon", nodes[1])
	runOnOwnNodes(t, n, "vanilla", 2)
	eventuallyOnNodes(t, n, "vanilla", v1alpha1.IcecreamNode{Name: nodes[0], Pods: 2, ReadyPods: 2})
	return n, nodes
}
