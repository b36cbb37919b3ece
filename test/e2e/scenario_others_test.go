package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// containerOf returns the Icecream's container among all that a Deployment has.
func containerOf(t *testing.T, d *appsv1.Deployment) corev1.Container {
	t.Helper()
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == "icecream" {
			return container
		}
	}
	t.Fatalf("Deployment %q has no container \"icecream\": %+v", d.Name, d.Spec.Template.Spec.Containers)
	return corev1.Container{}
}

// eventuallyRuns waits until a Deployment has that image in the Icecream's
// container and the Icecream is Ready with it.
func eventuallyRuns(t *testing.T, n *lab.Namespace, name, image string) *appsv1.Deployment {
	t.Helper()
	n.EventuallyReady(t, name)
	d := n.Deployment(t, name)
	if got := containerOf(t, d).Image; got != image {
		t.Errorf("it is Ready with image %q", got)
	}
	return d
}

func TestWhatOthersAddIsKept(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, flavour("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")

	n.Kubectl(t, "annotate", "deployment", "vanilla", "team.example/owner=ops")
	n.Kubectl(t, "label", "deployment", "vanilla", "team.example/tier=gold")
	patchDeployment(t, n, "vanilla", `[
		{"op": "add", "path": "/spec/template/spec/containers/0", "value": {"name": "sidecar", "image": "registry.example/sidecar:1"}},
		{"op": "add", "path": "/spec/template/metadata/annotations/team.example~1scrape", "value": "yes"},
		{"op": "add", "path": "/spec/minReadySeconds", "value": 1},
		{"op": "replace", "path": "/spec/strategy", "value": {"type": "Recreate"}}
	]`)
	requireKept := func(d *appsv1.Deployment) {
		t.Helper()
		template := d.Spec.Template
		if d.Annotations["team.example/owner"] != "ops" || d.Labels["team.example/tier"] != "gold" || template.Annotations["team.example/scrape"] != "yes" {
			t.Errorf("annotations %v, labels %v, annotations of the Pods %v", d.Annotations, d.Labels, template.Annotations)
		}
		if containers := template.Spec.Containers; len(containers) != 2 || containers[0].Name != "sidecar" || containers[0].Image != "registry.example/sidecar:1" {
			t.Errorf("the containers are %+v", containers)
		}
		if d.Spec.MinReadySeconds != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			t.Errorf("minReadySeconds %d, strategy %+v", d.Spec.MinReadySeconds, d.Spec.Strategy)
		}
	}
	n.EventuallyReady(t, "vanilla")
	requireKept(n.Deployment(t, "vanilla"))

	n.Apply(t, flavour("vanilla", "replicas: 3", "image: registry.example/vanilla:2", "resources: {limits: {cpu: 100m}}"))
	d := eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:2")
	requireKept(d)
	if got := resourcesOf(t, n, "vanilla"); *d.Spec.Replicas != 3 || got["limits cpu"] != "100m" {
		t.Errorf("it asks for %d replicas with %v", *d.Spec.Replicas, got)
	}

	n.Apply(t, flavour("vanilla", "image: registry.example/vanilla:3"))
	requireKept(eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:3"))
	for _, pod := range n.LivePods(t) {
		if len(pod.Spec.Containers) != 2 || pod.Annotations["team.example/scrape"] != "yes" {
			t.Errorf("Pod %s is %+v", pod.Name, pod)
		}
	}
}

func TestRolloutRestartRestartsThePods(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, flavour("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	before := n.LivePods(t)

	n.Kubectl(t, "rollout", "restart", "deployment/vanilla")
	n.Kubectl(t, "rollout", "status", "deployment/vanilla", "--timeout=120s")
	n.Eventually(t, "the Pods are others", func(context.Context) error {
		now := identities(n.LivePods(t))
		for _, pod := range before {
			if now[pod.Name] == pod.UID {
				return fmt.Errorf("Pod %s still runs", pod.Name)
			}
		}
		if len(now) != 2 {
			return fmt.Errorf("there are %d Pods", len(now))
		}
		return nil
	})
	n.EventuallyReady(t, "vanilla")
	restartedAt := n.Deployment(t, "vanilla").Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]
	if restartedAt == "" {
		t.Error("the Deployment does not know of the restart any more")
	}

	n.Apply(t, flavour("vanilla", "replicas: 2", "image: registry.example/vanilla:2"))
	d := eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:2")
	if got := d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]; got != restartedAt {
		t.Errorf("it was restarted at %q, and after an update at %q", restartedAt, got)
	}
}

func TestWhatOthersChangeIsRepaired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage  []string // a kubectl command
		isWhole func(d *appsv1.Deployment) bool
	}{
		"number of Pods": {
			[]string{"scale", "deployment/vanilla", "--replicas=5"},
			func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == 2 },
		},
		"image": {
			[]string{"set", "image", "deployment/vanilla", "icecream=registry.example/other:1"},
			func(d *appsv1.Deployment) bool {
				return d.Spec.Template.Spec.Containers[0].Image == "registry.example/vanilla:1"
			},
		},
		"resources": {
			[]string{"set", "resources", "deployment/vanilla", "--limits=cpu=7"},
			func(d *appsv1.Deployment) bool {
				return d.Spec.Template.Spec.Containers[0].Resources.Limits.Cpu().String() == "500m"
			},
		},
		"label": {
			[]string{"label", "deployment/vanilla", "app.kubernetes.io/managed-by-"},
			func(d *appsv1.Deployment) bool {
				return d.Labels["app.kubernetes.io/managed-by"] == "icecream-controller"
			},
		},
		"label that Icecreams are found by": {
			[]string{"label", "deployment/vanilla", "controller.nicoleh.io/icecream-", "controller.nicoleh.io/deployment=other", "--overwrite"},
			func(d *appsv1.Deployment) bool {
				return d.Labels["controller.nicoleh.io/icecream"] == "vanilla" && d.Labels["controller.nicoleh.io/deployment"] == "vanilla"
			},
		},
		"security context of the container": {
			[]string{"patch", "deployment/vanilla", "--type=json", "-p", `[{"op": "remove", "path": "/spec/template/spec/containers/0/securityContext"}]`},
			func(d *appsv1.Deployment) bool {
				context := d.Spec.Template.Spec.Containers[0].SecurityContext
				return context != nil && context.AllowPrivilegeEscalation != nil && !*context.AllowPrivilegeEscalation &&
					cmp.Equal(context.Capabilities, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}})
			},
		},
		"security context of the Pods": {
			[]string{"patch", "deployment/vanilla", "--type=json", "-p", `[{"op": "replace", "path": "/spec/template/spec/securityContext", "value": {"runAsNonRoot": false}}]`},
			func(d *appsv1.Deployment) bool {
				context := d.Spec.Template.Spec.SecurityContext
				return context.RunAsNonRoot != nil && *context.RunAsNonRoot && context.SeccompProfile != nil
			},
		},
		"container": {
			[]string{"patch", "deployment/vanilla", "--type=json", "-p", `[{"op": "replace", "path": "/spec/template/spec/containers/0/name", "value": "other"}]`},
			func(d *appsv1.Deployment) bool {
				for _, container := range d.Spec.Template.Spec.Containers {
					if container.Name == "icecream" && container.Image == "registry.example/vanilla:1" {
						return true
					}
				}
				return false
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, flavour("vanilla", "replicas: 2", "image: registry.example/vanilla:1", "resources: {limits: {cpu: 500m}}"))
			n.EventuallyReady(t, "vanilla")
			before := n.Deployment(t, "vanilla")
			if !test.isWhole(before) {
				t.Fatalf("it is broken from the start: %+v", before)
			}

			began := time.Now()
			n.Kubectl(t, test.damage...)
			n.Eventually(t, "it is repaired", func(context.Context) error {
				if d := n.Deployment(t, "vanilla"); !test.isWhole(d) || d.ResourceVersion == before.ResourceVersion {
					return fmt.Errorf("the Deployment is %+v", d)
				}
				return nil
			})
			n.EventuallyReady(t, "vanilla")
			eventuallyTold(t, n, "vanilla", v1alpha1.ReasonDeploymentUpdated, `Updated Deployment "vanilla"`)
			if got := notes(t, n, "vanilla", v1alpha1.ReasonDeploymentUpdated); len(got) != 1 {
				t.Errorf("people are told %q", got)
			}
			if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"patch vanilla"}) {
				t.Errorf("the repair took %q", written)
			}
			if now := n.Deployment(t, "vanilla"); now.UID != before.UID {
				t.Errorf("the Deployment was made anew: UID %s, before %s", now.UID, before.UID)
			}
		})
	}
}

// What the spec no longer asks for is dropped, however it got there: with the
// creation of the Deployment or with an update.
func TestResourcesThatAreNoLongerAskedForAreDropped(t *testing.T) {
	t.Parallel()
	const (
		none = ""
		some = "resources: {requests: {cpu: 100m}}"
		more = "resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 64Mi}}"
	)
	wants := map[string]map[string]string{
		none: {},
		some: {"requests cpu": "100m"},
		more: {"requests cpu": "100m", "requests memory": "64Mi", "limits memory": "64Mi"},
	}
	for name, specs := range map[string][]string{
		"given at creation":              {more, none},
		"given later":                    {none, more, none},
		"partly, given at creation":      {more, some},
		"partly, given later":            {none, more, some},
		"step by step":                   {more, some, none},
		"given, dropped and given again": {some, none, more, none, some},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			for i, spec := range specs {
				began := time.Now()
				n.Apply(t, flavour("vanilla", append([]string{"replicas: 1"}, nonEmpty(spec)...)...))
				n.EventuallyReady(t, "vanilla")
				if diff := cmp.Diff(wants[spec], resourcesOf(t, n, "vanilla")); diff != "" {
					t.Fatalf("after step %d the container has (-wanted +got):\n%s", i+1, diff)
				}
				// One that claims fields before it drops them patches twice.
				if written := steps(deploymentWrites(t, n, began)); len(written) > 2 {
					t.Errorf("step %d took %q", i+1, written)
				}
			}
		})
	}
}

func TestResourcesThatOthersSetAreKept(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, flavour("vanilla", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")
	n.Kubectl(t, "set", "resources", "deployment/vanilla", "--limits=cpu=500m", "--requests=cpu=100m")
	theirs := map[string]string{"limits cpu": "500m", "requests cpu": "100m"}
	requireTheirs := func(when string) {
		t.Helper()
		n.Steadily(t, "the resources are as others have set them "+when, aMoment, func(context.Context) error {
			if diff := cmp.Diff(theirs, resourcesOf(t, n, "vanilla")); diff != "" {
				return fmt.Errorf("they are not (-wanted +got):\n%s", diff)
			}
			return nil
		})
		n.EventuallyReady(t, "vanilla")
	}
	requireTheirs("at first")

	edit(t, n, "vanilla", `"image": "registry.example/vanilla:2", "replicas": 2`)
	eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:2")
	requireTheirs("after an update")

	// What both set is the Icecream's, and goes with its wish for it.
	n.Apply(t, flavour("vanilla", "image: registry.example/vanilla:2", "resources: {requests: {memory: 64Mi}}"))
	n.EventuallyReady(t, "vanilla")
	theirs["requests memory"] = "64Mi"
	requireTheirs("beside what the Icecream asks for")
	n.Apply(t, flavour("vanilla", "image: registry.example/vanilla:2"))
	n.EventuallyReady(t, "vanilla")
	delete(theirs, "requests memory")
	requireTheirs("when the Icecream no longer asks for more")
}

// A quantity can be written in many ways, of which the API server keeps one.
func TestQuantitiesInAnyNotationAreWrittenOnce(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	began := time.Now()
	n.Apply(t, flavour("vanilla", `resources: {requests: {cpu: "0.50", memory: 1e9}, limits: {cpu: 1000m, memory: "2147483648"}}`))
	n.EventuallyReady(t, "vanilla")
	n.Steadily(t, "it is Ready", aMoment, func(context.Context) error { return lab.IsReady(n.Icecream(t, "vanilla")) })
	if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"create vanilla"}) {
		t.Errorf("one Deployment took %q", written)
	}
}

// resourcesOf are the resources of the Icecream's container: "limits cpu": "1".
func resourcesOf(t *testing.T, n *lab.Namespace, name string) map[string]string {
	t.Helper()
	found := map[string]string{}
	resources := containerOf(t, n.Deployment(t, name)).Resources
	for kind, list := range map[string]corev1.ResourceList{"limits": resources.Limits, "requests": resources.Requests} {
		for resource, quantity := range list {
			found[kind+" "+string(resource)] = quantity.String()
		}
	}
	return found
}

func nonEmpty(words ...string) []string {
	var kept []string
	for _, word := range words {
		if word != "" {
			kept = append(kept, word)
		}
	}
	return kept
}

// A policy that changes Deployments at their creation only is obeyed for good.
func TestWhatAnAdmissionPolicyAddsIsKept(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartPolicy(t, "CREATE", `[
		JSONPatch{op: "add", path: "/metadata/labels/policy.example~1seen", value: "yes"},
		JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources", value: Object.spec.template.spec.containers.resources{limits: {"memory": "1Gi"}}},
		JSONPatch{op: "add", path: "/spec/template/spec/containers/0", value: Object.spec.template.spec.containers{name: "sidecar", image: "registry.example/sidecar:1"}}
	]`)

	requireKept := func(d *appsv1.Deployment) {
		t.Helper()
		if d.Labels["policy.example/seen"] != "yes" {
			t.Errorf("the labels are %v", d.Labels)
		}
		if containers := d.Spec.Template.Spec.Containers; len(containers) != 2 || containers[0].Name != "sidecar" {
			t.Errorf("the containers are %+v", containers)
		}
		if got := resourcesOf(t, n, "vanilla")["limits memory"]; got != "1Gi" {
			t.Errorf("the memory is limited to %q", got)
		}
	}
	began := time.Now()
	n.Apply(t, flavour("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
	requireKept(eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:1"))
	n.Steadily(t, "it is Ready", aMoment, func(context.Context) error { return lab.IsReady(n.Icecream(t, "vanilla")) })
	if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"create vanilla"}) {
		t.Errorf("one Deployment took %q", written)
	}

	n.Apply(t, flavour("vanilla", "replicas: 3", "image: registry.example/vanilla:2", "resources: {requests: {cpu: 100m}}"))
	requireKept(eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:2"))
	n.Apply(t, flavour("vanilla", "replicas: 1", "image: registry.example/vanilla:3"))
	d := eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:3")
	requireKept(d)
	if requests := containerOf(t, d).Resources.Requests; len(requests) > 0 {
		t.Errorf("what is no longer asked for is still there: %v", requests)
	}
	if written := steps(deploymentWrites(t, n, began)); len(written) > 5 {
		t.Errorf("a creation and two updates took %q", written)
	}
}

func TestDeploymentThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for cascade, keepsPods := range map[string]bool{"background": false, "foreground": false, "orphan": true} {
		t.Run(cascade, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, flavour("vanilla", "replicas: 2"))
			ice := n.EventuallyReady(t, "vanilla")
			before, pods := n.Deployment(t, "vanilla"), identities(n.LivePods(t))

			began := time.Now()
			n.Kubectl(t, "delete", "deployment", "vanilla", "--cascade="+cascade)
			n.Eventually(t, "there is another Deployment", func(ctx context.Context) error {
				now, err := n.Deployments().Get(ctx, "vanilla", metav1.GetOptions{})
				if err == nil && now.UID == before.UID {
					return errors.New("it is the one of before")
				}
				return err
			})
			n.EventuallyReady(t, "vanilla")
			n.Eventually(t, "it has its Pods", func(context.Context) error {
				now := identities(n.LivePods(t))
				if keepsPods && !cmp.Equal(now, pods) {
					return fmt.Errorf("they were %v and are %v", pods, now)
				}
				if len(now) != 2 {
					return fmt.Errorf("they are %v", now)
				}
				return nil
			})
			now := n.Deployment(t, "vanilla")
			if !metav1.IsControlledBy(now, ice) || now.DeletionTimestamp != nil {
				t.Errorf("the Deployment is %+v", now.ObjectMeta)
			}
			if written := steps(deploymentWrites(t, n, began).Where(isAccepted)); !cmp.Equal(written, []string{"create vanilla"}) {
				t.Errorf("to make it again took %q", written)
			}
			n.Eventually(t, "people are told twice that it was created", func(context.Context) error {
				if got := notes(t, n, "vanilla", v1alpha1.ReasonDeploymentCreated); len(got) != 2 {
					return fmt.Errorf("they are told %q", got)
				}
				return nil
			})
		})
	}
}
