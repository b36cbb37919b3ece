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

	"nicoleh.io/k8s-controller/test/lab"
)

// containerOf returns the Icecream's container of a Deployment, which may have others,
// too.
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

// eventuallyRuns waits until an Icecream is Ready, requires that its Deployment, which
// has the same name, runs that image, and returns the Deployment.
func eventuallyRuns(t *testing.T, n *lab.Namespace, name, image string) *appsv1.Deployment {
	t.Helper()
	n.EventuallyReady(t, name)
	d := n.Deployment(t, name)
	if got := containerOf(t, d).Image; got != image {
		t.Errorf("the Icecream is Ready with image %q, want %q", got, image)
	}
	return d
}

// An annotation makes a new generation of a Deployment, and changes nothing about its Pods.
func TestAnnotationOfTheDeploymentIsNoNews(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	before := n.EventuallyReady(t, "vanilla")
	for i := range 3 {
		began := time.Now()
		n.Kubectl(t, "annotate", "--overwrite", "deployment", "vanilla", fmt.Sprintf("kubernetes.io/change-cause=%d", i))
		eventuallySettled(t, n, "vanilla")
		time.Sleep(settleTime)
		if written := statusWrites(t, n, "vanilla", began); len(written) > 0 {
			t.Errorf("the status was written: %s", written)
		}
	}
	if after := n.EventuallyReady(t, "vanilla"); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the status was %+v\nand is now %+v", before.Status, after.Status)
	}
}

func TestWhatOthersAddIsKept(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
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
			t.Errorf("the Deployment has annotations %v and labels %v, and its Pods have annotations %v", d.Annotations, d.Labels, template.Annotations)
		}
		if containers := template.Spec.Containers; len(containers) != 2 || containers[0].Name != "sidecar" || containers[0].Image != "registry.example/sidecar:1" {
			t.Errorf("the containers are %+v", containers)
		}
		if d.Spec.MinReadySeconds != 1 || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			t.Errorf("minReadySeconds is %d, and the strategy is %+v", d.Spec.MinReadySeconds, d.Spec.Strategy)
		}
	}
	n.EventuallyReady(t, "vanilla")
	requireKept(n.Deployment(t, "vanilla"))

	n.Apply(t, icecreamYAML("vanilla", "replicas: 3", "image: registry.example/vanilla:2", "resources: {limits: {cpu: 100m}}"))
	d := eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:2")
	requireKept(d)
	if got := resourcesOf(t, n, "vanilla"); *d.Spec.Replicas != 3 || got["limits cpu"] != "100m" {
		t.Errorf("the Deployment has %d replicas with resources %v", *d.Spec.Replicas, got)
	}

	n.Apply(t, icecreamYAML("vanilla", "image: registry.example/vanilla:3"))
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
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
	n.EventuallyReady(t, "vanilla")
	before := n.LivePods(t)

	n.Kubectl(t, "rollout", "restart", "deployment/vanilla")
	n.Kubectl(t, "rollout", "status", "deployment/vanilla", "--timeout=120s")
	n.Eventually(t, "all Pods have been replaced", func(context.Context) error {
		now := podUIDs(n.LivePods(t))
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
		t.Error("the Deployment has lost the annotation about the restart")
	}

	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:2"))
	d := eventuallyRuns(t, n, "vanilla", "registry.example/vanilla:2")
	if got := d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]; got != restartedAt {
		t.Errorf("the Deployment was restarted at %q, but after an update the annotation says %q", restartedAt, got)
	}
}

func TestWhatOthersChangeIsRepaired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage   []string // a kubectl command
		isIntact func(d *appsv1.Deployment) bool
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
		"resources that the Icecream does not set": {
			[]string{"set", "resources", "deployment/vanilla", "--limits=memory=1Gi", "--requests=cpu=100m"},
			func(d *appsv1.Deployment) bool {
				resources := d.Spec.Template.Spec.Containers[0].Resources
				return len(resources.Limits) == 1 && len(resources.Requests) == 0
			},
		},
		"label": {
			[]string{"label", "deployment/vanilla", "app.kubernetes.io/managed-by-"},
			func(d *appsv1.Deployment) bool {
				return d.Labels["app.kubernetes.io/managed-by"] == "icecream-controller"
			},
		},
		"label that names the Icecream": {
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
			n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1", "resources: {limits: {cpu: 500m}}"))
			n.EventuallyReady(t, "vanilla")
			before := n.Deployment(t, "vanilla")
			if !test.isIntact(before) {
				t.Fatalf("the Deployment is damaged from the start: %+v", before)
			}

			began := time.Now()
			n.Kubectl(t, test.damage...)
			n.Eventually(t, "the Deployment is repaired", func(context.Context) error {
				if d := n.Deployment(t, "vanilla"); !test.isIntact(d) || d.ResourceVersion == before.ResourceVersion {
					return fmt.Errorf("the Deployment is %+v", d)
				}
				return nil
			})
			n.EventuallyReady(t, "vanilla")
			eventuallyTold(t, n, "vanilla", `Updated Deployment "vanilla"`, 1)
			if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"patch vanilla"}) {
				t.Errorf("the repair took these requests: %q", written)
			}
			if now := n.Deployment(t, "vanilla"); now.UID != before.UID {
				t.Errorf("the Deployment was re-created: its UID is %s and was %s", now.UID, before.UID)
			}
		})
	}
}

// Resources that are removed from the spec are removed from the Deployment, whether they
// were set at its creation or by an update.
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
		"set at creation":                 {more, none},
		"set later":                       {none, more, none},
		"partly removed, set at creation": {more, some},
		"partly removed, set later":       {none, more, some},
		"step by step":                    {more, some, none},
		"set, removed and set again":      {some, none, more, none, some},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			for i, spec := range specs {
				began := time.Now()
				n.Apply(t, icecreamYAML("vanilla", append([]string{"replicas: 1"}, nonEmpty(spec)...)...))
				n.EventuallyReady(t, "vanilla")
				if diff := cmp.Diff(wants[spec], resourcesOf(t, n, "vanilla")); diff != "" {
					t.Fatalf("after step %d the container's resources differ (-want +got):\n%s", i+1, diff)
				}
				if written := steps(deploymentWrites(t, n, began)); len(written) != 1 {
					t.Errorf("step %d took these requests: %q", i+1, written)
				}
			}
		})
	}
}

// The same quantity can be written in many ways, which the API server normalizes.
func TestQuantitiesInAnyNotationAreWrittenOnce(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	began := time.Now()
	n.Apply(t, icecreamYAML("vanilla", `resources: {requests: {cpu: "0.50", memory: 1e9}, limits: {cpu: 1000m, memory: "2147483648"}}`))
	n.EventuallyReady(t, "vanilla")
	n.Steadily(t, "it stays Ready", settleTime, func(context.Context) error { return lab.IsReady(n.Icecream(t, "vanilla")) })
	if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, []string{"create vanilla"}) {
		t.Errorf("creating one Deployment took these requests: %q", written)
	}
}

// resourcesOf returns the resources of the Icecream's container. Its keys are like
// "limits cpu".
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

// nonEmpty returns those words that are not empty.
func nonEmpty(words ...string) []string {
	var kept []string
	for _, word := range words {
		if word != "" {
			kept = append(kept, word)
		}
	}
	return kept
}

// A policy may act only on creations. The sidecar that it adds stays for good. The limit that
// it gives the Icecream's own container stays until the Icecream is edited.
func TestPolicyThatActsOnlyAtTheCreation(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.StartPolicy(t, "CREATE", `[
		JSONPatch{op: "add", path: "/metadata/labels/policy.example~1seen", value: "yes"},
		JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources", value: Object.spec.template.spec.containers.resources{limits: {"memory": "1Gi"}}},
		JSONPatch{op: "add", path: "/spec/template/spec/containers/0", value: Object.spec.template.spec.containers{name: "sidecar", image: "registry.example/sidecar:1"}}
	]`)
	began := time.Now()
	require := func(image string, resources map[string]string, writes ...string) {
		t.Helper()
		d := eventuallyRuns(t, n, "vanilla", image)
		if d.Labels["policy.example/seen"] != "yes" {
			t.Errorf("the labels are %v", d.Labels)
		}
		if containers := d.Spec.Template.Spec.Containers; len(containers) != 2 || containers[0].Name != "sidecar" {
			t.Errorf("the containers are %+v", containers)
		}
		if diff := cmp.Diff(resources, resourcesOf(t, n, "vanilla")); diff != "" {
			t.Errorf("the container's resources differ (-want +got):\n%s", diff)
		}
		if written := steps(deploymentWrites(t, n, began)); !cmp.Equal(written, writes) {
			t.Errorf("it took these requests: %q, want %q", written, writes)
		}
	}
	n.Apply(t, icecreamYAML("vanilla", "replicas: 2", "image: registry.example/vanilla:1"))
	n.EventuallyReady(t, "vanilla")
	n.Steadily(t, "it stays Ready", settleTime, func(context.Context) error { return lab.IsReady(n.Icecream(t, "vanilla")) })
	require("registry.example/vanilla:1", map[string]string{"limits memory": "1Gi"}, "create vanilla")
	n.Apply(t, icecreamYAML("vanilla", "replicas: 3", "image: registry.example/vanilla:2", "resources: {requests: {cpu: 100m}}"))
	require("registry.example/vanilla:2", map[string]string{"requests cpu": "100m"}, "create vanilla", "patch vanilla")
	n.Apply(t, icecreamYAML("vanilla", "replicas: 1", "image: registry.example/vanilla:3"))
	require("registry.example/vanilla:3", map[string]string{}, "create vanilla", "patch vanilla", "patch vanilla")
}

func TestDeploymentThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for cascade, keepsPods := range map[string]bool{"background": false, "foreground": false, "orphan": true} {
		t.Run(cascade, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
			ice := n.EventuallyReady(t, "vanilla")
			before, pods := n.Deployment(t, "vanilla"), podUIDs(n.LivePods(t))

			began := time.Now()
			n.Kubectl(t, "delete", "deployment", "vanilla", "--cascade="+cascade)
			n.Eventually(t, "there is a new Deployment", func(ctx context.Context) error {
				now, err := n.Deployments().Get(ctx, "vanilla", metav1.GetOptions{})
				if err == nil && now.UID == before.UID {
					return errors.New("it is still the old one")
				}
				return err
			})
			n.EventuallyReady(t, "vanilla")
			n.Eventually(t, "it has its Pods", func(context.Context) error {
				now := podUIDs(n.LivePods(t))
				if keepsPods && !cmp.Equal(now, pods) {
					return fmt.Errorf("the Pods were %v and are now %v", pods, now)
				}
				if len(now) != 2 {
					return fmt.Errorf("the Pods are %v", now)
				}
				return nil
			})
			now := n.Deployment(t, "vanilla")
			if !metav1.IsControlledBy(now, ice) || now.DeletionTimestamp != nil {
				t.Errorf("the Deployment is %+v", now.ObjectMeta)
			}
			if written := steps(deploymentWrites(t, n, began).Where(isAccepted)); !cmp.Equal(written, []string{"create vanilla"}) {
				t.Errorf("the re-creation took these requests: %q", written)
			}
			eventuallyTold(t, n, "vanilla", `Created Deployment "vanilla"`, 2)
		})
	}
}
