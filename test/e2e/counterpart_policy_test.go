package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// podsOf returns the Pods of an Icecream that are not being deleted, by name.
func podsOf(t *testing.T, n *lab.Namespace, icecream string) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(n.LivePods(t), func(pod corev1.Pod) bool { return pod.Labels["controller.nicoleh.io/icecream"] != icecream })
}

// eventuallyHasPods waits until an Icecream has exactly that many Pods, all of them
// ready, and returns them.
func eventuallyHasPods(t *testing.T, n *lab.Namespace, icecream string, want int) (pods []corev1.Pod) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("Icecream %q has %d Pods", icecream, want), func(context.Context) error {
		pods = podsOf(t, n, icecream)
		if len(pods) != want || !allPodsReady(pods) {
			return fmt.Errorf("its Pods are %v", podUIDs(pods))
		}
		return nil
	})
	return pods
}

// replacePods deletes the Pods of an Icecream one after the other. Each time it waits
// until there is another Pod and the Icecream is Ready.
func replacePods(t *testing.T, n *lab.Namespace, icecream string) {
	t.Helper()
	replicas := int(*n.Icecream(t, icecream).Spec.Replicas)
	for _, pod := range eventuallyHasPods(t, n, icecream, replicas) {
		n.Kubectl(t, "delete", "pod", pod.Name)
		eventuallyHasPods(t, n, icecream, replicas)
		n.EventuallyReady(t, icecream)
	}
}

// allPodsReady reports whether all of the Pods are ready.
func allPodsReady(pods []corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return !isReadyPod(&pod) })
}

// requireNoWrites requires that the controller no longer writes any Deployment, even when
// Pods change.
func requireNoWrites(t *testing.T, n *lab.Namespace, name string) {
	t.Helper()
	began := time.Now()
	replacePods(t, n, name)
	time.Sleep(settleTime)
	n.EventuallyReady(t, name)
	if written := deploymentWrites(t, n, began); len(written) > 0 {
		t.Errorf("there was nothing left to write, but the controller made %s", written)
	}
}

// The controller accepts the images of a policy that replaces the registry.
func TestPolicyThatReplacesTheRegistry(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t)
	policy := n.StartMirrorPolicy(t, "mirror.example/")

	began := time.Now()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2", "image: registry.example/vanilla:1"))
	eventuallyRunsImage(t, n, "vanilla", "cone", "mirror.example/vanilla:1")
	eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonDeploymentAltered, "")
	requireNoWrites(t, n, "vanilla")
	if written := deploymentWrites(t, n, began); len(written) > 2 {
		t.Errorf("creating one Deployment took these requests: %q", steps(written))
	}
	requireAlteredEvents(t, n, "vanilla", 1, "image", "registry.example/vanilla:1", "mirror.example/vanilla:1")

	edited := time.Now()
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
	eventuallyRunsImage(t, n, "vanilla", "cone", "mirror.example/vanilla:2")
	requireNoWrites(t, n, "vanilla")
	if written := deploymentWrites(t, n, edited); len(written) > 2 {
		t.Errorf("one edit took these requests: %q", steps(written))
	}

	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/vanilla:2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	eventuallyRunsImage(t, n, "vanilla", "cup", "mirror.example/vanilla:2")
	requireNoWrites(t, n, "vanilla")

	c.Stop(t)
	restarted := time.Now()
	c.Start(t)
	n.Apply(t, icecreamYAML("mint")) // the controller looks at existing Icecreams first
	n.EventuallyReady(t, "mint")
	replacePods(t, n, "vanilla")
	if written := deploymentWrites(t, n, restarted, "cup"); len(written) > 1 {
		t.Errorf("after a restart the controller made %s", written)
	}

	policy.Stop(t)
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:3"`)
	eventuallyRunsImage(t, n, "vanilla", "cup", "registry.example/vanilla:3")
	requireNoWrites(t, n, "vanilla")
	requireNoWarnings(t, n, "vanilla")
}

// eventuallyRunsImage waits until a Deployment has that image, and the Icecream is Ready
// with it.
func eventuallyRunsImage(t *testing.T, n *lab.Namespace, name, deployment, image string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("Deployment %q has image %q", deployment, image), func(ctx context.Context) error {
		d, err := n.Deployments().Get(ctx, deployment, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := containerOf(t, d).Image; got != image {
			return fmt.Errorf("its image is %q", got)
		}
		return nil
	})
	n.EventuallyReady(t, name)
	if got := containerOf(t, n.Deployment(t, deployment)).Image; got != image {
		t.Errorf("the Icecream is Ready with image %q, want %q", got, image)
	}
}

// requireAlteredEvents requires that DeploymentAltered was reported that many times, as a
// Normal event whose message contains these words.
func requireAlteredEvents(t *testing.T, n *lab.Namespace, name string, times int, words ...string) {
	t.Helper()
	reported := 0
	for _, event := range n.Events(t, name) {
		if event.Reason != v1alpha1.ReasonDeploymentAltered {
			continue
		}
		reported += lab.Occurrences(event)
		if event.Type != corev1.EventTypeNormal || !containsAll(event.Note, words...) {
			t.Errorf("there is an event %s %s: %s; want a Normal one with the words %q", event.Type, event.Reason, event.Note, words)
		}
	}
	if reported != times {
		t.Errorf("DeploymentAltered was reported %d times, want %d", reported, times)
	}
}

// An edit of a field that the policy leaves alone reaches the Deployment at once, and
// drift in such a field is repaired.
func TestPolicyDoesNotKeepOtherFieldsFromBeingWritten(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartMirrorPolicy(t, "mirror.example/")
	n.Apply(t, icecreamYAML("vanilla", "replicas: 1", "image: registry.example/vanilla:1"))
	eventuallyRunsImage(t, n, "vanilla", "vanilla", "mirror.example/vanilla:1")

	n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=3")
	n.EventuallyReady(t, "vanilla")
	if got := *n.Deployment(t, "vanilla").Spec.Replicas; got != 3 {
		t.Errorf("the Icecream is Ready with %d replicas", got)
	}
	n.Kubectl(t, "scale", "deployment/vanilla", "--replicas=5")
	n.Eventually(t, "the Deployment is repaired", func(context.Context) error {
		if got := *n.Deployment(t, "vanilla").Spec.Replicas; got != 3 {
			return fmt.Errorf("it has %d replicas", got)
		}
		return nil
	})
	n.EventuallyReady(t, "vanilla")
	requireNoWrites(t, n, "vanilla")
}

// A policy that is created later takes effect when the Deployment is next written.
func TestPolicyThatComesLater(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 1", "image: registry.example/vanilla:1"))
	eventuallyRunsImage(t, n, "vanilla", "vanilla", "registry.example/vanilla:1")
	n.StartMirrorPolicy(t, "mirror.example/")
	n.Kubectl(t, "scale", "icecream/vanilla", "--replicas=2")
	eventuallyRunsImage(t, n, "vanilla", "vanilla", "mirror.example/vanilla:1")
	requireNoWrites(t, n, "vanilla")
	requireAlteredEvents(t, n, "vanilla", 1, "image", "registry.example/vanilla:1", "mirror.example/vanilla:1")
}

// Labels that a policy adds to all Pod templates are in nobody's way.
func TestPolicyThatAddsALabel(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartPolicy(t, "CREATE, UPDATE", `[JSONPatch{op: "add", path: "/spec/template/metadata/labels/costcenter", value: "42"}]`)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 1"))
	n.EventuallyReady(t, "vanilla")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	if got := n.Deployment(t, "cup").Spec.Template.Labels["costcenter"]; got != "42" {
		t.Errorf("the label is %q", got)
	}
	requireNoWrites(t, n, "vanilla")
	requireNoWarnings(t, n, "vanilla")
}

// A refusal by a policy of the controller's own says what to change.
func TestPolicyThatAddsPower(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.MayBeRefused()
	n.StartPolicy(t, "CREATE, UPDATE", `[JSONPatch{op: "add", path: "/spec/template/spec/priorityClassName", value: "system-cluster-critical"}]`)
	n.Apply(t, icecreamYAML("vanilla"))
	eventuallyRefused(t, n, "vanilla", "ValidatingAdmissionPolicy 'k8s-controller-icecream-writes'")
	eventuallyRefused(t, n, "vanilla", "gives Pods no node, priority, runtime or devices (if the cluster's own policies add it, add scheduling to policies.allow in the chart's values)")
}

// What a policy makes of the resources that the Icecream asks for is accepted until either
// side changes. If it does that only at the creation, the next edit ends it.
func TestPolicyThatAddsRequests(t *testing.T) {
	t.Parallel()
	added := map[string]string{"requests cpu": "50m", "requests memory": "64Mi"}
	for name, test := range map[string]struct {
		operations, spec string
		edited           map[string]string // the resources after an edit of the Icecream
	}{
		"at the creation":          {"CREATE", "replicas: 2", map[string]string{}},
		"at every write":           {"CREATE, UPDATE", "replicas: 2", added},
		"beside those of the spec": {"CREATE, UPDATE", "replicas: 2, resources: {requests: {memory: 64Mi}}", added},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, spec := NewNamespace(t), test.spec
			n.StartPolicy(t, test.operations, `[JSONPatch{
				op: "add", path: "/spec/template/spec/containers/0/resources",
				value: Object.spec.template.spec.containers.resources{requests: {"cpu": "50m", "memory": "64Mi"}}
			}]`)
			began := time.Now()
			n.Apply(t, icecreamYAML("vanilla", spec, "image: registry.example/vanilla:1"))
			n.EventuallyReady(t, "vanilla")
			requireNoWrites(t, n, "vanilla")
			if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"create vanilla"}) {
				t.Errorf("creating one Deployment took these requests: %q", written)
			}
			if diff := cmp.Diff(added, resourcesOf(t, n, "vanilla")); diff != "" {
				t.Errorf("the resources differ from those that the policy adds (-want +got):\n%s", diff)
			}
			edited := time.Now()
			edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
			eventuallyRunsImage(t, n, "vanilla", "vanilla", "registry.example/vanilla:2")
			requireNoWrites(t, n, "vanilla")
			if written := steps(deploymentWrites(t, n, edited)); !cmp.Equal(written, []string{"patch vanilla"}) {
				t.Errorf("one edit took these requests: %q", written)
			}
			if diff := cmp.Diff(test.edited, resourcesOf(t, n, "vanilla")); diff != "" {
				t.Errorf("after an edit, the resources differ (-want +got):\n%s", diff)
			}
			n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", spec, "image: registry.example/vanilla:2"))
			eventuallyOnlyDeployments(t, n, "vanilla", "cup")
		})
	}
}

// A policy may lower the limits that the spec asks for.
func TestPolicyThatLowersLimits(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartPolicy(t, "CREATE, UPDATE", `[JSONPatch{
		op: "add", path: "/spec/template/spec/containers/0/resources",
		value: Object.spec.template.spec.containers.resources{limits: {"cpu": "100m"}}
	}]`)
	n.Apply(t, icecreamYAML("vanilla", "resources: {limits: {cpu: 500m}}"))
	n.EventuallyReady(t, "vanilla")
	eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonDeploymentAltered, "")
	requireAlteredEvents(t, n, "vanilla", 1, "resources.limits", "cpu", "500m", "100m")
	requireNoWrites(t, n, "vanilla")
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "resources: {limits: {cpu: 500m}}"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
}
