package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

const defaultImage = "docker.io/nginxinc/nginx-unprivileged:1.29.3-alpine"

func TestIcecreamGetsItsDeployment(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, `
apiVersion: controller.nicoleh.io/v1alpha1
kind: Icecream
metadata:
  name: vanilla
spec:
  deploymentName: scoop
  replicas: 3
  image: registry.example/vanilla:1
  resources:
    requests: {cpu: 100m, memory: 64Mi}
    limits: {memory: 64Mi}
`)
	n.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "icecream/vanilla")
	ice := n.Icecream(t, "vanilla")

	d := n.Deployment(t, "scoop")
	if got, want := d.OwnerReferences, []metav1.OwnerReference{{
		APIVersion: "controller.nicoleh.io/v1alpha1", Kind: "Icecream", Name: "vanilla", UID: ice.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}; !cmp.Equal(got, want) {
		t.Errorf("owner references of the Deployment (-want +got):\n%s", lab.Diff(want, got))
	}
	container := d.Spec.Template.Spec.Containers[0]
	if *d.Spec.Replicas != 3 || container.Image != "registry.example/vanilla:1" ||
		container.Resources.Requests.Cpu().String() != "100m" || container.Resources.Limits.Memory().String() != "64Mi" {
		t.Errorf("the Deployment has %d replicas of %s with resources %v", *d.Spec.Replicas, container.Image, container.Resources)
	}

	pods := n.LivePods(t)
	if len(pods) != 3 {
		t.Errorf("there are %d Pods, want 3", len(pods))
	}
	selector, err := labels.Parse(ice.Status.Selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("selector %q does not match Pod %s with %v", ice.Status.Selector, pod.Name, pod.Labels)
		}
	}
	nodes := lab.NodesOf(pods)
	want := v1alpha1.IcecreamStatus{
		ObservedGeneration: 1, DeploymentName: "scoop", Selector: ice.Status.Selector,
		Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
		Nodes: nodes, NodeCount: int32(len(nodes)), Placement: placement(nodes),
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: "True", ObservedGeneration: 1, Reason: "Available", Message: "3 of 3 Pods available"},
			{Type: "Reconciling", Status: "False", ObservedGeneration: 1, Reason: "Available"},
			{Type: "Stalled", Status: "False", ObservedGeneration: 1, Reason: "Available"},
		},
	}
	if diff := lab.Diff(want, withoutTimes(ice.Status)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	n.Eventually(t, "the events have been recorded", func(context.Context) error {
		var recorded []string
		notes := ""
		for _, event := range n.Events(t, "vanilla") {
			recorded = append(recorded, event.Type+" "+event.Reason)
			notes += event.Note + "\n"
			if event.ReportingController == "" || event.Regarding.UID != ice.UID {
				t.Errorf("event %s was reported by %q about UID %q", event.Reason, event.ReportingController, event.Regarding.UID)
			}
		}
		if !slices.Contains(recorded, "Normal Synced") {
			return fmt.Errorf("there is no event Synced among %q", recorded)
		}
		for _, words := range []string{`Created Deployment "scoop"`, "on node-", "Icecream synced successfully"} {
			if !strings.Contains(notes, words) {
				return fmt.Errorf("nothing says %q among:\n%s", words, notes)
			}
		}
		return nil
	})
	n.Eventually(t, "the log says where the Pods run", func(context.Context) error {
		for line := range strings.Lines(n.Controller.Log()) {
			if strings.HasPrefix(line, "I") && strings.Contains(line, "Placement changed") && strings.Contains(line, n.Name+"/vanilla") &&
				containsAll(line, pods[0].Name, pods[1].Name, pods[2].Name, pods[0].Spec.NodeName) {
				return nil
			}
		}
		return errors.New("no line names all the Pods")
	})
}

func TestIcecreamWithoutASpec(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: plain}}`)
	ice := n.EventuallyReady(t, "plain")
	if ice.Spec.Replicas == nil || *ice.Spec.Replicas != 1 || ice.Spec.Image != defaultImage || ice.Spec.DeploymentName != "" {
		t.Errorf("the spec after defaulting is %+v", ice.Spec)
	}
	d := n.Deployment(t, "plain")
	if got := d.Spec.Template.Spec.Containers[0].Image; got != defaultImage || *d.Spec.Replicas != 1 {
		t.Errorf("the Deployment has %d replicas of %s", *d.Spec.Replicas, got)
	}
}

func TestExamplesOfTheRepository(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Kubectl(t, "apply", "-f", n.Lab.Path("artifacts/examples/example-icecream.yaml"))
	n.EventuallyReady(t, "example-icecream")
	n.Deployment(t, "example-icecream")
}

func TestKubectlShowsIcecreams(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "mint", v1alpha1.IcecreamSpec{DeploymentName: "leaf", Replicas: ptr.To[int32](2), Image: "registry.example/mint:2"})
	ice := n.EventuallyReady(t, "mint")

	for _, test := range []struct {
		args []string
		want []string
	}{
		{
			[]string{"get", "icecream", "mint"},
			[]string{"NAME READY DESIRED AVAILABLE NODES REASON AGE", fmt.Sprintf("mint True 2 2 %d Available ", ice.Status.NodeCount)},
		},
		{
			[]string{"get", "ice", "-o", "wide"},
			[]string{"AGE DEPLOYMENT IMAGE PLACEMENT", " leaf registry.example/mint:2 " + ice.Status.Placement},
		},
		{[]string{"get", "all"}, []string{"icecream.controller.nicoleh.io/mint True", "deployment.apps/leaf"}},
		{[]string{"get", "ice", "mint", "-o", "name"}, []string{"icecream.controller.nicoleh.io/mint"}},
		{
			[]string{"explain", "icecream.spec"},
			[]string{"deploymentName <string>", "the name of the Icecream", "replicas <integer>", "kubectl scale", "image <string>", "resources <Object>"},
		},
		{[]string{"explain", "icecream.status.nodes"}, []string{"readyPods <integer> -required-", "the number of these Pods that are ready"}},
		{[]string{"describe", "ice", "mint"}, []string{"Kind: Icecream", "Reason: Available", "Icecream synced successfully"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			// Events are written after the status, and discovery may not know the CRD
			// yet.
			n.Eventually(t, "kubectl prints what it should", func(ctx context.Context) error {
				output, err := n.TryKubectl(ctx, "", test.args...)
				if err != nil {
					return err
				}
				output = strings.ReplaceAll(output, "\t", " ")
				words := strings.Join(strings.Fields(output), " ")
				for _, want := range test.want {
					if !strings.Contains(words, want) {
						return fmt.Errorf("the output does not contain %q:\n%s", want, output)
					}
				}
				return nil
			})
		})
	}
}

func TestScaleToZeroAndBack(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "mango", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2)})
	before := n.EventuallyReady(t, "mango")
	uid := n.Deployment(t, "mango").UID

	n.Kubectl(t, "scale", "icecream/mango", "--replicas=0")
	ice := n.EventuallyReady(t, "mango")
	if len(ice.Status.Nodes) != 0 || ice.Status.NodeCount != 0 || ice.Status.Replicas != 0 || ice.Status.Placement != "" {
		t.Errorf("after scaling to zero, the status is %+v", ice.Status)
	}
	n.Eventually(t, "no Pod runs", func(context.Context) error {
		if pods := n.LivePods(t); len(pods) > 0 {
			return fmt.Errorf("there are %d Pods", len(pods))
		}
		return nil
	})

	n.Kubectl(t, "scale", "ice/mango", "--current-replicas=0", "--replicas=3")
	ice = n.EventuallyReady(t, "mango")
	if ice.Status.Replicas != 3 || ice.Status.Selector != before.Status.Selector {
		t.Errorf("after scaling up again, the status is %+v", ice.Status)
	}
	if got := n.Deployment(t, "mango").UID; got != uid {
		t.Errorf("the Deployment was re-created: its UID is %s and was %s", got, uid)
	}
	if scale, err := n.Icecreams().GetScale(t.Context(), "mango", metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if scale.Spec.Replicas != 3 || scale.Status.Replicas != 3 || scale.Status.Selector != ice.Status.Selector {
		t.Errorf("the scale subresource is %+v", scale)
	}
}

func TestAutoscalerReadsTheScale(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "pear", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2)})
	n.EventuallyReady(t, "pear")
	n.Kubectl(t, "autoscale", "icecream/pear", "--min=3", "--max=5", "--cpu=80%")

	// Without metrics, the autoscaler can only raise the replicas to its minimum.
	n.EventuallyIcecream(t, "pear", "is scaled by the autoscaler", func(ice *v1alpha1.Icecream) error {
		if *ice.Spec.Replicas != 3 {
			return fmt.Errorf("its spec has %d replicas", *ice.Spec.Replicas)
		}
		return lab.IsReady(ice)
	})
	n.Eventually(t, "the autoscaler sees the replicas", func(ctx context.Context) error {
		hpa, err := n.Lab.Kube.AutoscalingV2().HorizontalPodAutoscalers(n.Name).Get(ctx, "pear", metav1.GetOptions{})
		if err != nil {
			return err
		}
		able := slices.ContainsFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == autoscalingv2.AbleToScale && c.Status == corev1.ConditionTrue
		})
		if hpa.Status.CurrentReplicas != 3 || !able {
			text, err := json.Marshal(hpa.Status)
			return errors.Join(fmt.Errorf("the autoscaler's status is %s", text), err)
		}
		return nil
	})
}

// A controller that is restricted to one namespace needs only a Role there.
func TestOneNamespaceNeedsOnlyARole(t *testing.T) {
	t.Parallel()
	n, other := NewQuietNamespace(t), NewQuietNamespace(t)
	c := n.StartController(t)
	n.Create(t, "lemon", v1alpha1.IcecreamSpec{})
	other.Create(t, "lime", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "lemon")
	n.Kubectl(t, "patch", "ice", "lemon", "--type=merge", "-p", `{"spec":{"deploymentName":"zest","image":"registry.example/lemon:2"}}`)
	n.EventuallyReady(t, "lemon")
	if got := names(n.AllDeployments(t)); !cmp.Equal(got, []string{"zest"}) {
		t.Errorf("after the rename, the Deployments are %q", got)
	}
	if refused := n.Lab.Requests(t).By(c.User).Refused(); len(refused) > 0 {
		t.Errorf("requests of the controller were refused: %s", refused)
	}
	if lime := other.Icecream(t, "lime"); lime.Status.ObservedGeneration > 0 {
		t.Errorf("the controller has written a status in another namespace: %+v", lime.Status)
	}
}

// placement returns the one-line summary that a status has of its nodes.
func placement(nodes []v1alpha1.IcecreamNode) string {
	var words []string
	for _, node := range nodes {
		words = append(words, fmt.Sprintf("%s (%d)", node.Name, node.Pods))
	}
	return strings.Join(words, ", ")
}

// names returns the names of Deployments.
func names(deployments []appsv1.Deployment) []string {
	var all []string
	for _, d := range deployments {
		all = append(all, d.Name)
	}
	return all
}

// containsAll reports whether text contains all of the words.
func containsAll(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
