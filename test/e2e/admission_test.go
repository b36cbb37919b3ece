package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// The controller accepts the images of a policy that replaces the registry. It writes a
// Deployment no more than twice for one change, and again once after a restart.
func TestPolicyThatReplacesTheRegistry(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t)
	policy := n.StartMirrorPolicy(t, "mirror.example/")

	began := time.Now()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cone", "replicas: 2", "image: registry.example/vanilla:1"))
	eventuallyRunsImage(t, n, "vanilla", "cone", "mirror.example/vanilla:1")
	eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonDeploymentAltered, `image is "mirror.example/vanilla:1" instead of "registry.example/vanilla:1"`)
	eventuallyIdle(t, n, c)
	if written := deploymentWrites(t, n, began); len(written) > 2 {
		t.Errorf("creating one Deployment took these requests: %q", steps(written))
	}

	edited := time.Now()
	n.Apply(t, icecreamYAML("vanilla", "deploymentName: cup", "replicas: 2", "image: registry.example/vanilla:2"))
	eventuallyOnlyDeployments(t, n, "vanilla", "cup")
	eventuallyRunsImage(t, n, "vanilla", "cup", "mirror.example/vanilla:2")
	eventuallyIdle(t, n, c)
	if written := deploymentWrites(t, n, edited, "cup"); len(written) > 2 {
		t.Errorf("one edit took these requests: %q", steps(written))
	}

	c.Stop(t)
	restarted := time.Now()
	c.Start(t)
	n.Apply(t, icecreamYAML("mint")) // the controller looks at existing Icecreams first
	n.EventuallyReady(t, "mint")
	eventuallyIdle(t, n, c)
	if written := deploymentWrites(t, n, restarted, "cup"); len(written) > 1 {
		t.Errorf("after a restart the controller made %s", written)
	}

	policy.Stop(t)
	edit(t, n, "vanilla", `"image": "registry.example/vanilla:3"`)
	eventuallyRunsImage(t, n, "vanilla", "cup", "registry.example/vanilla:3")
	requireNoWarnings(t, n, "vanilla")
}

// Requests that a policy adds stay. If it adds them only at the creation, the next edit ends
// that.
func TestPolicyThatAddsRequests(t *testing.T) {
	t.Parallel()
	const added = `{"cpu":"50m"}`
	for operations, edited := range map[string]string{"CREATE": "", "CREATE, UPDATE": added} {
		t.Run(operations, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.StartPolicy(t, operations, `[JSONPatch{
				op: "add", path: "/spec/template/spec/containers/0/resources",
				value: Object.spec.template.spec.containers.resources{requests: {"cpu": "50m"}}
			}]`)
			requests := func() string {
				return n.Kubectl(t, "get", "deployment", "vanilla", "-o=jsonpath={.spec.template.spec.containers[0].resources.requests}")
			}
			n.Apply(t, icecreamYAML("vanilla", "image: registry.example/vanilla:1"))
			n.EventuallyReady(t, "vanilla")
			if got := requests(); got != added {
				t.Errorf("the requests are %q, want %q", got, added)
			}
			edit(t, n, "vanilla", `"image": "registry.example/vanilla:2"`)
			eventuallyRunsImage(t, n, "vanilla", "vanilla", "registry.example/vanilla:2")
			if got := requests(); got != edited {
				t.Errorf("after an edit, the requests are %q, want %q", got, edited)
			}
		})
	}
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
	requireNoWarnings(t, n, "vanilla")
}

// A refusal by a policy of the controller's own says what to change.
func TestPolicyThatAddsPower(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.MayBeRefused()
	n.StartPolicy(t, "CREATE, UPDATE", `[JSONPatch{op: "add", path: "/spec/template/spec/priorityClassName", value: "system-cluster-critical"}]`)
	n.Apply(t, icecreamYAML("vanilla"))
	eventuallyRefused(t, n, "vanilla", "ValidatingAdmissionPolicy 'k8s-controller-icecream-writes'",
		"gives Pods no node, priority, runtime or devices (if the cluster's own policies add it, add scheduling to policies.allow in the chart's values)")
}

// A webhook chooses the status code of its denial. Some of these codes are also what the API
// server returns when the client's cache is stale.
func TestWebhookThatRefuses(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: "no budget"}}
	}
	for name, test := range map[string]struct {
		operation     admissionv1.Operation
		err           error
		words         string
		before, after []string // specs
	}{
		"a creation":                       {admissionv1.Create, errors.New("no budget"), "no budget", nil, []string{"replicas: 2"}},
		"a creation as already existing":   {admissionv1.Create, status(http.StatusConflict, metav1.StatusReasonAlreadyExists), "no budget", nil, []string{"replicas: 2"}},
		"a creation by ending connections": {admissionv1.Create, lab.ErrDropConnection, "failed calling webhook", nil, []string{"replicas: 2"}},
		"an update as a conflict":          {admissionv1.Update, status(http.StatusConflict, metav1.StatusReasonConflict), "no budget", []string{"replicas: 2"}, []string{"replicas: 1"}},
		"a deletion as not found":          {admissionv1.Delete, status(http.StatusNotFound, metav1.StatusReasonNotFound), "no budget", []string{"deploymentName: cone"}, []string{"deploymentName: cup"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			if test.before != nil {
				n.Apply(t, icecreamYAML("vanilla", test.before...))
				n.EventuallyReady(t, "vanilla")
			}
			webhook := n.StartWebhook(t, func(request *admissionv1.AdmissionRequest) error {
				if request.UserInfo.Username != n.Controller.User || request.Operation != test.operation {
					return nil
				}
				return test.err
			})
			n.Apply(t, icecreamYAML("vanilla", test.after...))
			eventuallyRefused(t, n, "vanilla", test.words)
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonDeploymentRefused, test.words)
			webhook.Stop(t)
			n.EventuallyReady(t, "vanilla")
		})
	}
}

// eventuallyRefused waits until an Icecream says, in these words, that its Deployment is
// refused.
func eventuallyRefused(t *testing.T, n *lab.Namespace, name string, words ...string) {
	t.Helper()
	n.EventuallyIcecream(t, name, "says that its Deployment is refused", func(ice *v1alpha1.Icecream) error {
		ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonDeploymentRefused || !containsAll(ready.Message, words...) {
			return fmt.Errorf("its conditions are %+v", ice.Status.Conditions)
		}
		return nil
	})
}

// eventuallyRunsImage waits until a Deployment has that image, and the Icecream is Ready
// with it.
func eventuallyRunsImage(t *testing.T, n *lab.Namespace, name, deployment, image string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("Deployment %q has image %q", deployment, image), func(ctx context.Context) error {
		got, err := n.TryKubectl(ctx, "", "get", "deployment", deployment, `-o=jsonpath={.spec.template.spec.containers[?(@.name=="icecream")].image}`)
		if err == nil && strings.TrimSpace(got) != image {
			err = fmt.Errorf("its image is %q", got)
		}
		return err
	})
	n.EventuallyReady(t, name)
}
