package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/difftest"
)

// longName is a valid object name of that length, of parts that are valid too.
func longName(length int) string {
	return strings.Repeat(strings.Repeat("a", 62)+".", 5)[:length-1] + "z"
}

func TestBadSpecsAreRefused(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	const manifest = `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: %q}, spec: {%s}}`

	n.Apply(t, fmt.Sprintf(manifest, "good", "replicas: 2, image: registry.example/good:1"))
	n.EventuallyReady(t, "good")
	good := n.Icecream(t, "good")

	for _, test := range []struct{ name, spec, tells string }{
		{"an empty deploymentName", `deploymentName: ""`, "must not be empty: leave deploymentName out to use the Icecream's own name"},
		{"capitals in deploymentName", `deploymentName: Scoop`, "must be a DNS-1123 subdomain"},
		{"an underscore in deploymentName", `deploymentName: my_scoop`, "must be a DNS-1123 subdomain"},
		{"a dash at the end of deploymentName", `deploymentName: scoop-`, "must be a DNS-1123 subdomain"},
		{"a deploymentName of 254 characters", `deploymentName: ` + longName(254), "may not be more than 253"},
		{"a number as deploymentName", `deploymentName: 7`, "must be of type string"},
		{"negative replicas", `replicas: -1`, "should be greater than or equal to 0"},
		{"replicas in words", `replicas: two`, "must be of type integer"},
		{"more replicas than a number holds", `replicas: 3000000000`, "should be less than or equal to 2147483647"},
		{"an empty image", `image: ""`, "must not be empty or contain spaces: leave image out to use the default image"},
		{"a space in image", `image: "registry.example/a b"`, "must not be empty or contain spaces"},
		{"a list as image", `image: [nginx]`, "must be of type string"},
		{"an unknown field", `flavour: vanilla`, `unknown field "spec.flavour"`},
		{"a quantity that is none", `resources: {limits: {memory: lots}}`, "spec.resources.limits.memory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, object := range []string{"fresh", "good"} {
				if told := n.Refused(t, fmt.Sprintf(manifest, object, test.spec)); !strings.Contains(told, test.tells) {
					t.Errorf("kubectl apply of %q says\n%s\nwhich does not say %q", object, told, test.tells)
				}
			}
		})
	}

	if got := n.Icecream(t, "good"); !cmp.Equal(got, good) {
		t.Errorf("a refused edit has changed the Icecream (-want +got):\n%s", difftest.Diff(good, got))
	}
	list := n.Kubectl(t, "get", "ice", "-o", "name")
	if want := "icecream.controller.nicoleh.io/good\n"; list != want {
		t.Errorf("refused Icecreams exist: %q", list)
	}
}

func TestLongestDeploymentNameIsAccepted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	name := longName(253)
	n.Create(t, "cone", v1alpha1.IcecreamSpec{DeploymentName: name})
	ice := n.EventuallyReady(t, "cone")
	if ice.Status.DeploymentName != name {
		t.Errorf("the Deployment in use is %q", ice.Status.DeploymentName)
	}
	n.Deployment(t, name)
}

// Some mistakes only the Deployment's own validation finds.
func TestSpecThatTheDeploymentRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, before string }{
		{"from the beginning", ""},
		{"as an edit", `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			if test.before != "" {
				n.Apply(t, test.before)
				n.EventuallyReady(t, "sorbet")
			}
			n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2, resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}}`)
			ice := n.EventuallyStalled(t, "sorbet", v1alpha1.ReasonInvalidSpec)
			const says = "must be less than or equal to memory limit of 1Gi"
			if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, says) {
				t.Errorf("Ready says %q, which does not say %q", ready.Message, says)
			}
			if table := n.Kubectl(t, "get", "ice", "sorbet"); !strings.Contains(table, v1alpha1.ReasonInvalidSpec) {
				t.Errorf("kubectl get does not say why:\n%s", table)
			}
			warnings := 0
			n.Eventually(t, "there is a warning", func(context.Context) error {
				warnings = 0
				for _, event := range n.Events(t, "sorbet") {
					if event.Type == "Warning" && event.Reason == v1alpha1.ReasonInvalidSpec {
						warnings++
					}
				}
				if warnings == 0 {
					return fmt.Errorf("there is none")
				}
				return nil
			})

			// The old Pods, if any, run on.
			if test.before != "" {
				if d := n.Deployment(t, "sorbet"); d.Status.AvailableReplicas != 2 || ice.Status.AvailableReplicas != 2 {
					t.Errorf("%d Pods are available, the status says %d, and there were 2", d.Status.AvailableReplicas, ice.Status.AvailableReplicas)
				}
			}

			// Time alone changes nothing, so nothing is tried.
			mark := time.Now()
			n.Steadily(t, "nothing is tried", 5*time.Second, func(context.Context) error { return nil })
			if tried := n.Requests(t).By(n.Controller.User).Since(mark); len(tried) > 0 {
				t.Errorf("while nothing had changed, the controller made requests: %s", tried)
			}
			if warnings != 1 {
				t.Errorf("%d warnings", warnings)
			}

			n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2, resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}}}`)
			n.EventuallyReady(t, "sorbet")
			memory := n.Deployment(t, "sorbet").Spec.Template.Spec.Containers[0].Resources.Limits.Memory()
			if memory.String() != "1Gi" {
				t.Errorf("the Deployment has a limit of %s", memory)
			}
		})
	}
}

// A selector of Pods cannot be longer than a label value, and a name can.
func TestLongNames(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	// What differs only beyond the 63 characters of a label value is told apart.
	one, other := longName(200)+"1", longName(200)+"2"
	longest := longName(253)
	for i, name := range []string{one, other, longest} {
		n.Create(t, name, v1alpha1.IcecreamSpec{Replicas: ptr.To(int32(i + 1))})
	}
	for i, name := range []string{one, other, longest} {
		ice := n.EventuallyReady(t, name)
		d := n.Deployment(t, name)
		if ice.Status.Replicas != int32(i+1) || *d.Spec.Replicas != int32(i+1) {
			t.Errorf("%d Pods of %d, by the status of %s", ice.Status.Replicas, i+1, name)
		}
		pods := n.Kubectl(t, "get", "pods", "--selector", ice.Status.Selector, "-o", "name")
		if got := strings.Count(pods, "\n"); got != i+1 {
			t.Errorf("the selector %s finds %d Pods, want %d", ice.Status.Selector, got, i+1)
		}
	}
}
