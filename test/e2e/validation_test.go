package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// longName returns a valid object name of that length. Its parts are valid, too.
func longName(length int) string {
	return strings.Repeat(strings.Repeat("a", 62)+".", 5)[:length-1] + "z"
}

// limitsOf returns that many limits or requests.
func limitsOf(count int) string {
	var list []string
	for i := range count {
		list = append(list, fmt.Sprintf("example.com/flavor-%d: 1", i))
	}
	return strings.Join(list, ", ")
}

func TestBadSpecsAreRefused(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	const manifest = `{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: %q}, spec: {%s}}`

	const (
		limits   = "spec.resources.limits.memory: Invalid value: "
		requests = "spec.resources.requests.cpu: Invalid value: "
	)
	zeros := strings.Repeat("0", 200_000)
	mismatch := func(field, value string) string {
		return fmt.Sprintf("spec.%s: Invalid value: %q: spec.%[1]s in body should match ", field, value)
	}
	for _, test := range []struct{ name, spec, want string }{
		{"an empty deploymentName", `deploymentName: ""`, mismatch("deploymentName", "")},
		{"capitals in deploymentName", `deploymentName: Scoop`, mismatch("deploymentName", "Scoop")},
		{"a line break in deploymentName", `deploymentName: "scoop\n"`, mismatch("deploymentName", "scoop\n")},
		{"a deploymentName of 254 characters", `deploymentName: ` + longName(254), "spec.deploymentName: Too long: may not be more than 253 bytes"},

		{"negative replicas", `replicas: -1`, "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"},
		{"half a replica", `replicas: 1.5`, `spec.replicas: Invalid value: "float64": spec.replicas in body must be of type int32: "float64"`},
		{"more replicas than an int32 holds", `replicas: 3000000000`, "spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"},

		{"an empty image", `image: ""`, mismatch("image", "")},
		{"an environment variable in image", `image: "registry.example/vanilla:${TAG}"`, mismatch("image", "registry.example/vanilla:${TAG}")},
		{"an image of 1025 characters", `image: ` + strings.Repeat("v", 1025), "spec.image: Too long: may not be more than 1024 bytes"},

		{"a quantity that is a word", `resources: {limits: {memory: lots}}`, limits + `"lots": spec.resources.limits.memory in body should match `},
		{"a quantity that takes hours to parse", `resources: {requests: {cpu: "1e-999999999"}}`, requests + `"1e-999999999": spec.resources.requests.cpu in body should match `},
		{"a quantity that takes seconds to marshal", `resources: {limits: {memory: "1` + zeros + `"}}`, limits + `"1000`},
		{"a quantity of 21 digits", `resources: {limits: {memory: "` + zeros[:21] + `"}}`, limits + `"000`},
		{"a fraction of 13 digits", `resources: {limits: {memory: "1.` + zeros[:13] + `"}}`, limits + `"1.000`},
		{"33 limits", `resources: {limits: {` + limitsOf(33) + `}}`, "spec.resources.limits: Too many: 33: must have at most 32 items"},
		{"33 requests", `resources: {requests: {` + limitsOf(33) + `}}`, "spec.resources.requests: Too many: 33: must have at most 32 items"},
		{"a limit with a long name", `resources: {limits: {example.com/` + longName(318-len("example.com/")) + `: "1"}}`, "spec.resources.limits: Invalid value: the name of a resource has at most 317 characters"},
		{"a request with a long name", `resources: {requests: {` + strings.Repeat("a", 318) + `: "1"}}`, "spec.resources.requests: Invalid value: the name of a resource has at most 317 characters"},
		{"a fraction without quotes", `resources: {requests: {cpu: 0.5}}`, requests + `"number": spec.resources.requests.cpu in body must be of type integer,string: "number"`},
		{"a resource claim", `resources: {claims: [{name: spoon}]}`, `unknown field "spec.resources.claims"`},

		{"an unknown field", `flavor: vanilla`, `unknown field "spec.flavor"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if refusal := n.Refused(t, fmt.Sprintf(manifest, "fresh", test.spec)); !strings.Contains(refusal, test.want) {
				t.Errorf("kubectl apply says\n%s\nwhich does not contain %q", refusal, test.want)
			}
		})
	}

	if list := n.Kubectl(t, "get", "ice", "-o", "name"); list != "" {
		t.Errorf("there are Icecreams: %q", list)
	}
}

// Unusual but valid specs are accepted, by the Deployment as well.
func TestOddSpecsAreAccepted(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	specs := []string{
		`deploymentName: a.b-c.d--e`,
		`replicas: 0`,

		`image: a.b/c_d/e__f/g--h/i.j:K_l.m-N`,
		`image: "[2001:db8::1]:5000/vanilla:1"`,
		`image: "REGISTRY.example:5000/team/vanilla:1@sha256:` + strings.Repeat("0123456789abcdef", 4) + `"`,

		`resources: {limits: {}, requests: {}}`,
		`resources: {requests: {cpu: 0.1k, memory: 1e3}, limits: {cpu: "+100", memory: 1Ki}}`,
		`resources: {requests: {cpu: 1u, memory: 100m}}`,
		`resources: {requests: {cpu: 1500u}, limits: {cpu: 1700u}}`,
		`resources: {requests: {memory: 9Ei}, limits: {cpu: "1E30"}}`,
		`resources: {requests: {memory: 99999999999999999999.999999999999Ei}}`,
		`resources: {limits: {` + limitsOf(32) + `}, requests: {` + limitsOf(32) + `}}`,
		`resources: {limits: {example.com/gpu: 1}, requests: {example.com/gpu: "1"}}`,
		`resources: {limits: {kubernetes.io/batch-cpu: 1.5k}, requests: {kubernetes.io/batch-cpu: 1.5k}}`,
		`resources: {limits: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi, memory: 1Gi}, requests: {hugepages-2Mi: 4Mi}}`,
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
				case ice.Status.Selector == "":
					return fmt.Errorf("it has no Deployment: %s", ready.Message)
				}
				return nil
			})
			if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); ready.Reason == v1alpha1.ReasonInvalidSpec {
				t.Fatalf("the schema accepts a spec that is refused in a Deployment: %s", ready.Message)
			}
			if got := n.Deployment(t, cmp.Or(ice.Spec.DeploymentName, ice.Name)).Spec.Template.Spec.Containers[0].Image; got != ice.Spec.Image {
				t.Errorf("the Deployment has image %q, want %q", got, ice.Spec.Image)
			}
		})
	}
}
