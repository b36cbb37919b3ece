package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// longName returns a valid object name of that length. Its parts are valid, too.
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

	const (
		limits   = "spec.resources.limits.memory: Invalid value: "
		requests = "spec.resources.requests.cpu: Invalid value: "
	)
	mismatch := func(field, value string) string {
		return fmt.Sprintf("spec.%s: Invalid value: %q: spec.%[1]s in body should match ", field, value)
	}
	for _, test := range []struct{ name, spec, want string }{
		{"an empty deploymentName", `deploymentName: ""`, mismatch("deploymentName", "")},
		{"capitals in deploymentName", `deploymentName: Scoop`, mismatch("deploymentName", "Scoop")},
		{"a dash at the end of deploymentName", `deploymentName: scoop-`, mismatch("deploymentName", "scoop-")},
		{"an empty label in deploymentName", `deploymentName: my..scoop`, mismatch("deploymentName", "my..scoop")},
		{"a namespace in deploymentName", `deploymentName: shop/scoop`, mismatch("deploymentName", "shop/scoop")},
		{"a line break in deploymentName", `deploymentName: "scoop\n"`, mismatch("deploymentName", "scoop\n")},
		{"a deploymentName of 254 characters", `deploymentName: ` + longName(254), "spec.deploymentName: Too long: may not be more than 253 bytes"},
		{"a number as deploymentName", `deploymentName: 7`, `spec.deploymentName: Invalid value: "integer": spec.deploymentName in body must be of type string: "integer"`},

		{"negative replicas", `replicas: -1`, "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"},
		{"replicas in words", `replicas: two`, `spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"`},
		{"half a replica", `replicas: 1.5`, `spec.replicas: Invalid value: "float64": spec.replicas in body must be of type int32: "float64"`},
		{"more replicas than an int32 holds", `replicas: 3000000000`, "spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"},

		{"an empty image", `image: ""`, mismatch("image", "")},
		{"a space before image", `image: " nginx"`, mismatch("image", " nginx")},
		{"a line break in image", `image: "nginx\n"`, mismatch("image", "nginx\n")},
		{"an environment variable in image", `image: "registry.example/vanilla:${TAG}"`, mismatch("image", "registry.example/vanilla:${TAG}")},
		{"an image of 1025 characters", `image: ` + strings.Repeat("v", 1025), "spec.image: Too long: may not be more than 1024 bytes"},
		{"a list as image", `image: [nginx]`, `spec.image: Invalid value: "array": spec.image in body must be of type string: "array"`},

		{"a quantity that is a word", `resources: {limits: {memory: lots}}`, limits + `"lots": spec.resources.limits.memory in body should match `},
		{"a quantity that takes hours to parse", `resources: {requests: {cpu: "1e-999999999"}}`, requests + `"1e-999999999": spec.resources.requests.cpu in body should match `},
		{"a quantity that takes hours to compare", `resources: {limits: {memory: "1E999999999"}}`, limits + `"1E999999999": spec.resources.limits.memory in body should match `},
		{"a fraction without quotes", `resources: {requests: {cpu: 0.5}}`, requests + `"number": spec.resources.requests.cpu in body must be of type integer,string: "number"`},
		{"a resource claim", `resources: {claims: [{name: spoon}]}`, "spec.resources.claims: Too many: 1: must have at most 0 items"},
		{"a number as limits", `resources: {limits: 1}`, `spec.resources.limits: Invalid value: "integer": spec.resources.limits in body must be of type object: "integer"`},

		{"an unknown field", `flavor: vanilla`, `unknown field "spec.flavor"`},
		{"an unknown field of resources", `resources: {cpu: 1}`, `unknown field "spec.resources.cpu"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if refusal := n.Refused(t, fmt.Sprintf(manifest, "fresh", test.spec)); !strings.Contains(refusal, test.want) {
				t.Errorf("kubectl apply says\n%s\nwhich does not contain %q", refusal, test.want)
			}
			// The API server says the same about an edit.
			patch, err := yaml.YAMLToJSON(fmt.Appendf(nil, "spec: {%s}", test.spec))
			if err != nil {
				t.Fatal(err)
			}
			_, err = n.Icecreams().Patch(t.Context(), "good", types.MergePatchType, patch, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("an edit fails with\n%v\nwhich does not contain %q", err, test.want)
			}
		})
	}

	if got := n.Icecream(t, "good"); !cmp.Equal(got, good) {
		t.Errorf("a refused edit has changed the Icecream (-want +got):\n%s", lab.Diff(good, got))
	}
	list := n.Kubectl(t, "get", "ice", "-o", "name")
	if want := "icecream.controller.nicoleh.io/good\n"; list != want {
		t.Errorf("the Icecreams are %q, want only the good one", list)
	}
}

// By default, the name of an Icecream is also the name of its Deployment.
func TestBadNamesAreRefused(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	for _, test := range []struct{ name, want string }{
		{"Scoop", `metadata.name: Invalid value: "Scoop": a lowercase RFC 1123 subdomain must consist of`},
		{"my_scoop", `metadata.name: Invalid value: "my_scoop": a lowercase RFC 1123 subdomain must consist of`},
		{"-scoop", `metadata.name: Invalid value: "-scoop": a lowercase RFC 1123 subdomain must consist of`},
		{longName(254), "must be no more than 253"},
	} {
		manifest := fmt.Sprintf(`{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: %q}}`, test.name)
		if refusal := n.Refused(t, manifest); !strings.Contains(refusal, test.want) {
			t.Errorf("kubectl apply of %q says\n%s\nwhich does not contain %q", test.name, refusal, test.want)
		}
	}
}

// Unusual but valid specs are accepted, by the Deployment as well.
func TestOddSpecsAreAccepted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	specs := []string{
		`deploymentName: "0"`,
		`deploymentName: a.b-c.d--e`,
		`deploymentName: null`,
		`replicas: 0`,
		`replicas: 1.0`,
		`replicas: null`,

		`image: vanilla`,
		`image: a.b/c_d/e__f/g--h/i.j:K_l.m-N`,
		`image: "[2001:db8::1]:5000/vanilla:1"`,
		`image: "REGISTRY.example:5000/team/vanilla:1@sha256:` + strings.Repeat("0123456789abcdef", 4) + `"`,
		`image: null`,

		`resources: {}`,
		`resources: null`,
		`resources: {limits: {}, requests: {}, claims: []}`,
		`resources: {limits: {cpu: 0, memory: "0"}}`,
		`resources: {requests: {cpu: 0.1k, memory: 1e3}, limits: {cpu: "+100", memory: 1Ki}}`,
		`resources: {requests: {cpu: 1000m}, limits: {cpu: 1}}`,
		`resources: {requests: {cpu: 1u, memory: 100m}}`,
		`resources: {requests: {cpu: 1500u}, limits: {cpu: 1700u}}`,
		`resources: {requests: {ephemeral-storage: .5Gi}, limits: {memory: 1.5Gi}}`,
		`resources: {requests: {memory: 9Ei}, limits: {cpu: "1E30"}}`,
		`resources: {limits: {example.com/gpu: 1}}`,
		`resources: {limits: {example.com/gpu: 1}, requests: {example.com/gpu: "1"}}`,
		`resources: {limits: {example.com/memory: 64Mi}, requests: {example.com/memory: 64Mi}}`,
		`resources: {limits: {example.com/gpu: 0}}`,
		`resources: {limits: {example.com/GPU_v1: 1}}`,
		`resources: {limits: {kubernetes.io/batch-cpu: 1.5k}, requests: {kubernetes.io/batch-cpu: 1.5k}}`,
		`resources: {limits: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi, memory: 1Gi}, requests: {hugepages-2Mi: 4Mi}}`,
		`resources: {limits: {hugepages-64Ki: 0}, requests: {cpu: 1}}`,
	}
	var manifests []string
	for i, spec := range specs {
		manifests = append(manifests, fmt.Sprintf(`{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: odd-%d}, spec: {%s}}`, i, spec))
	}
	n.Apply(t, strings.Join(manifests, "\n---\n"))
	for i, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			ice := n.EventuallyIcecream(t, fmt.Sprintf("odd-%d", i), "has a Deployment", func(ice *v1alpha1.Icecream) error {
				ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
				switch {
				case ready == nil:
					return errors.New("it has no status")
				case ready.Reason == v1alpha1.ReasonInvalidSpec:
					return nil // no reason to wait any longer
				case ice.Status.DeploymentName == "":
					return fmt.Errorf("it has no Deployment: %s", ready.Message)
				}
				return nil
			})
			if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); ready.Reason == v1alpha1.ReasonInvalidSpec {
				t.Fatalf("the schema accepts a spec that is refused in a Deployment: %s", ready.Message)
			}
			if got := n.Deployment(t, ice.Status.DeploymentName).Spec.Template.Spec.Containers[0].Image; got != ice.Spec.Image {
				t.Errorf("the Deployment has image %q, want %q", got, ice.Spec.Image)
			}
		})
	}
}

// The schema leaves the rules for containers to the API server, which applies them when the
// controller writes the Deployment. The status has its message.
func TestSpecsThatTheDeploymentRefuses(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	tests := []struct{ name, resources, says string }{
		{"negative", `limits: {memory: -1Gi}`, "limits[memory]: Invalid value: \"-1Gi\": must be greater than or equal to 0"},
		{"above-limit", `requests: {memory: 2Gi}, limits: {memory: 1Gi}`, "requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi"},
		{"capitals", `limits: {Memory: 1Gi}`, "limits[Memory]: Invalid value: \"Memory\": must be a standard resource"},
		{"other-resource", `requests: {storage: 1Gi}`, "requests[storage]: Invalid value: \"storage\": must be a standard resource for containers"},
		{"half-a-gpu", `limits: {example.com/gpu: "0.5"}`, "limits[example.com/gpu]: Invalid value: \"500m\": must be an integer"},
		{"gpu-without-limit", `requests: {example.com/gpu: 1}`, "Limit must be set for non overcommitable resources"},
		{"fewer-gpus", `requests: {example.com/gpu: 1}, limits: {example.com/gpu: 2}`, "must be equal to example.com/gpu limit of 2"},
		{"half-a-page", `limits: {cpu: 1, hugepages-2Mi: 3Mi}`, "limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi"},
		{"pages-alone", `limits: {hugepages-2Mi: 4Mi}`, "HugePages require cpu or memory"},
	}
	var manifests []string
	for _, test := range tests {
		manifests = append(manifests, fmt.Sprintf(`{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: %s}, spec: {resources: {%s}}}`, test.name, test.resources))
	}
	n.Apply(t, strings.Join(manifests, "\n---\n"))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ice := n.EventuallyStalled(t, test.name, v1alpha1.ReasonInvalidSpec)
			ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
			if !strings.Contains(ready.Message, test.says) {
				t.Errorf("condition Ready says\n%s\nwhich does not contain %q", ready.Message, test.says)
			}
			// Both times are whole seconds.
			if took := ready.LastTransitionTime.Sub(ice.CreationTimestamp.Time); took > 2*time.Second {
				t.Errorf("the status says so %s after the Icecream was created", took)
			}
		})
	}
}

// A spec that the API server refuses in a Deployment changes nothing, is reported once, and
// is not tried again until it changes.
func TestRefusedSpecIsReportedOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, before string }{
		{"from the beginning", ""},
		{"as an edit", `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := NewQuietNamespace(t)
			controller := n.StartController(t)
			if test.before != "" {
				n.Apply(t, test.before)
				n.EventuallyReady(t, "sorbet")
			}
			n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2, resources: {requests: {memory: 2Gi}, limits: {memory: 1Gi}}}}`)
			ice := n.EventuallyStalled(t, "sorbet", v1alpha1.ReasonInvalidSpec)
			const says = "must be less than or equal to memory limit of 1Gi"
			if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, says) {
				t.Errorf("condition Ready says %q, which does not contain %q", ready.Message, says)
			}
			if table := n.Kubectl(t, "get", "ice", "sorbet"); !strings.Contains(table, v1alpha1.ReasonInvalidSpec) {
				t.Errorf("kubectl get does not show the reason:\n%s", table)
			}
			warnings := 0
			n.Eventually(t, "there is a Warning", func(context.Context) error {
				warnings = 0
				for _, event := range n.Events(t, "sorbet") {
					if event.Type == "Warning" && event.Reason == v1alpha1.ReasonInvalidSpec {
						warnings++
					}
				}
				if warnings == 0 {
					return errors.New("there is none")
				}
				return nil
			})

			// The old Pods, if any, keep running.
			if test.before != "" {
				if d := n.Deployment(t, "sorbet"); d.Status.AvailableReplicas != 2 || ice.Status.AvailableReplicas != 2 {
					t.Errorf("%d Pods are available, the status says %d, and there were 2", d.Status.AvailableReplicas, ice.Status.AvailableReplicas)
				}
			}

			// The controller does not retry while nothing changes.
			mark := time.Now()
			time.Sleep(5 * time.Second)
			if tried := n.Requests(t).By(controller.User).Since(mark); len(tried) > 0 {
				t.Errorf("while nothing had changed, the controller made requests: %s", tried)
			}
			if warnings != 1 {
				t.Errorf("there are %d Warnings, want one", warnings)
			}

			n.Apply(t, `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: sorbet}, spec: {replicas: 2, resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}}}`)
			n.EventuallyReady(t, "sorbet")
			memory := n.Deployment(t, "sorbet").Spec.Template.Spec.Containers[0].Resources.Limits.Memory()
			if memory.String() != "1Gi" {
				t.Errorf("the memory limit of the Deployment is %s", memory)
			}
		})
	}
}

func TestLongestDeploymentNameIsAccepted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	name := longName(253)
	n.Create(t, "cone", v1alpha1.IcecreamSpec{DeploymentName: name})
	ice := n.EventuallyReady(t, "cone")
	if ice.Status.DeploymentName != name {
		t.Errorf("the status names Deployment %q", ice.Status.DeploymentName)
	}
	n.Deployment(t, name)
}

// Pods are selected by a label value, which cannot be as long as an object's name.
func TestLongNames(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	// These names differ only after the 63 characters that fit into a label value.
	one, other := longName(200)+"1", longName(200)+"2"
	longest := longName(253)
	for i, name := range []string{one, other, longest} {
		n.Create(t, name, v1alpha1.IcecreamSpec{Replicas: ptr.To(int32(i + 1))})
	}
	for i, name := range []string{one, other, longest} {
		ice := n.EventuallyReady(t, name)
		d := n.Deployment(t, name)
		if ice.Status.Replicas != int32(i+1) || *d.Spec.Replicas != int32(i+1) {
			t.Errorf("the status of %s has %d Pods and its Deployment has %d replicas, want %d", name, ice.Status.Replicas, *d.Spec.Replicas, i+1)
		}
		pods := n.Kubectl(t, "get", "pods", "--selector", ice.Status.Selector, "-o", "name")
		if got := strings.Count(pods, "\n"); got != i+1 {
			t.Errorf("the selector %s finds %d Pods, want %d", ice.Status.Selector, got, i+1)
		}
	}
}
