package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/distribution/reference"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/difftest"
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
		notDNS       = "must be a DNS-1123 subdomain: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, such as 'my-icecream'"
		blankImage   = "must not be empty or contain spaces: leave image out to use the default image"
		notReference = "must be an image reference, [registry[:port]/]repository[:tag][@digest], with a repository in lower case, of at most 255 characters, such as 'registry.example.com:5000/team/icecream:1.2'"
		notDigest    = "must have 64 hexadecimal digits in lower case after '@sha256:', 96 after '@sha384:' or 128 after '@sha512:'"
		notQuantity  = "must be quantities of zero or more, such as 500m, 0.5 or 1Gi"
		notResource  = "must name known resources: cpu, memory, ephemeral-storage, huge pages such as hugepages-2Mi, or extended resources such as example.com/gpu"
		notWhole     = "must be whole numbers for extended resources such as example.com/gpu"
		notPages     = "must be multiples of the page size for huge pages, such as 4Mi for hugepages-2Mi"
		onlyPages    = "must come with cpu or memory for huge pages"
		notSame      = "must be written as in the limits for huge pages and for extended resources such as example.com/gpu, which cannot be overcommitted"
		aboveLimit   = "must not be above the limits"
		notClaims    = "must be empty: an Icecream's Pods have no resource claims"

		limits   = "spec.resources.limits: Invalid value: "
		requests = "spec.resources.requests: Invalid value: "
	)
	for _, test := range []struct{ name, spec, want string }{
		{"an empty deploymentName", `deploymentName: ""`, `spec.deploymentName: Invalid value: "": must not be empty: leave deploymentName out to use the Icecream's own name`},
		{"capitals in deploymentName", `deploymentName: Scoop`, `spec.deploymentName: Invalid value: "Scoop": ` + notDNS},
		{"an underscore in deploymentName", `deploymentName: my_scoop`, `spec.deploymentName: Invalid value: "my_scoop": ` + notDNS},
		{"a dash at the end of deploymentName", `deploymentName: scoop-`, `spec.deploymentName: Invalid value: "scoop-": ` + notDNS},
		{"a space in deploymentName", `deploymentName: "my scoop"`, `spec.deploymentName: Invalid value: "my scoop": ` + notDNS},
		{"an empty label in deploymentName", `deploymentName: my..scoop`, `spec.deploymentName: Invalid value: "my..scoop": ` + notDNS},
		{"a namespace in deploymentName", `deploymentName: shop/scoop`, `spec.deploymentName: Invalid value: "shop/scoop": ` + notDNS},
		{"a deploymentName of 254 characters", `deploymentName: ` + longName(254), "spec.deploymentName: Too long: may not be more than 253 bytes"},
		{"a number as deploymentName", `deploymentName: 7`, `spec.deploymentName: Invalid value: "integer": spec.deploymentName in body must be of type string: "integer"`},

		{"negative replicas", `replicas: -1`, "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"},
		{"replicas in words", `replicas: two`, `spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"`},
		{"replicas in quotes", `replicas: "2"`, `spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"`},
		{"half a replica", `replicas: 1.5`, `spec.replicas: Invalid value: "float64": spec.replicas in body must be of type int32: "float64"`},
		{"more replicas than an int32 holds", `replicas: 3000000000`, "spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"},

		{"an empty image", `image: ""`, `spec.image: Invalid value: "": ` + blankImage},
		{"a space in image", `image: "registry.example/a b"`, `spec.image: Invalid value: "registry.example/a b": ` + blankImage},
		{"a space before image", `image: " nginx"`, `spec.image: Invalid value: " nginx": ` + blankImage},
		{"a line break in image", `image: "nginx\n"`, `spec.image: Invalid value: "nginx\n": ` + blankImage},
		{"capitals in the repository of image", `image: registry.example/Vanilla:1`, `spec.image: Invalid value: "registry.example/Vanilla:1": ` + notReference},
		{"two tags in image", `image: "vanilla:1:2"`, `spec.image: Invalid value: "vanilla:1:2": ` + notReference},
		{"an empty tag in image", `image: "vanilla:"`, `spec.image: Invalid value: "vanilla:": ` + notReference},
		{"a tag of 129 characters in image", `image: "vanilla:` + strings.Repeat("t", 129) + `"`, notReference},
		{"a URL as image", `image: "https://registry.example/vanilla"`, `spec.image: Invalid value: "https://registry.example/vanilla": ` + notReference},
		{"a registry alone as image", `image: registry.example/`, `spec.image: Invalid value: "registry.example/": ` + notReference},
		{"an environment variable in image", `image: "registry.example/vanilla:${TAG}"`, `spec.image: Invalid value: "registry.example/vanilla:${TAG}": ` + notReference},
		{"a truncated digest in image", `image: "vanilla@sha256:0123456789abcdef0123456789abcdef"`, `spec.image: Invalid value: "vanilla@sha256:0123456789abcdef0123456789abcdef": ` + notDigest},
		{"a digest of four digits in image", `image: "vanilla@sha256:0123"`, `spec.image: Invalid value: "vanilla@sha256:0123": ` + notDigest},
		{"a digest that no node can check in image", `image: "vanilla@md5:0123456789abcdef0123456789abcdef"`, `spec.image: Invalid value: "vanilla@md5:0123456789abcdef0123456789abcdef": ` + notDigest},
		{"the ID of an image", `image: "` + strings.Repeat("0123456789abcdef", 4) + `"`, notReference},
		{"a quote in image", `image: 'vanilla"\'`, `spec.image: Invalid value: "vanilla\"\\": ` + notReference},
		{"an image of 1025 characters", `image: ` + strings.Repeat("v", 1025), "spec.image: Too long: may not be more than 1024 bytes"},
		{"a list as image", `image: [nginx]`, `spec.image: Invalid value: "array": spec.image in body must be of type string: "array"`},

		{"a quantity that is a word", `resources: {limits: {memory: lots}}`, limits + notQuantity},
		{"a quantity with a unit in the wrong case", `resources: {limits: {memory: 1gi}}`, limits + notQuantity},
		{"an empty quantity", `resources: {requests: {memory: ""}}`, requests + notQuantity},
		{"a quantity with a fractional exponent", `resources: {requests: {memory: 1e1.5}}`, requests + notQuantity},
		{"a quantity that takes hours to parse", `resources: {requests: {memory: "1e-999999999"}}`, requests + notQuantity},
		{"a quantity that takes hours to compare", `resources: {requests: {memory: "1e999999999"}, limits: {memory: "1E999999999"}}`, requests + notQuantity},
		{"huge pages that take hours to compare", `resources: {limits: {cpu: 1, hugepages-2Mi: "1e999999999"}}`, limits + notPages},
		{"an extended resource that takes hours to parse", `resources: {limits: {example.com/gpu: "1e-999999999"}}`, limits + notWhole},
		{"a negative quantity", `resources: {requests: {cpu: -1}}`, requests + notQuantity},
		{"a negative quantity with a unit", `resources: {limits: {memory: -1Gi}}`, limits + notQuantity},
		{"a fraction without quotes", `resources: {limits: {cpu: 0.5}}`, `spec.resources.limits.cpu: Invalid value: "number": spec.resources.limits.cpu in body must be of type integer,string: "number"`},
		{"capitals in a resource", `resources: {limits: {Memory: 1Gi}}`, limits + notResource},
		{"a resource that containers do not have", `resources: {requests: {storage: 1Gi}}`, requests + notResource},
		{"a resource as named in quotas", `resources: {limits: {requests.cpu: 1}}`, limits + notResource},
		{"an extended resource as named in quotas", `resources: {limits: {requests.example.com/gpu: 1}}`, limits + notResource},
		{"an extended resource without a domain", `resources: {limits: {gpu: 1}}`, limits + notResource},
		{"an extended resource with an empty name", `resources: {limits: {example.com/: 1}}`, limits + notResource},
		{"a resource without a name", `resources: {limits: {"": 1}}`, limits + notResource},
		{"huge pages without a size", `resources: {limits: {cpu: 1, hugepages-: 1Gi}}`, limits + notResource},
		{"huge pages of an invalid size", `resources: {limits: {cpu: 1, hugepages-2M: 4Mi}}`, limits + notResource},
		{"half a GPU", `resources: {limits: {example.com/gpu: "0.5"}}`, limits + notWhole},
		{"more GPUs than an int64 holds", `resources: {limits: {example.com/gpu: 16E}}`, limits + notWhole},
		{"GPUs in milli-units", `resources: {limits: {example.com/gpu: 2000m}}`, limits + notWhole},
		{"half a huge page", `resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}`, limits + notPages},
		{"huge pages without cpu or memory", `resources: {limits: {hugepages-2Mi: 4Mi}}`, limits + onlyPages},
		{"a request above its limit", `resources: {requests: {cpu: 1, memory: 2Gi}, limits: {cpu: 1, memory: 1Gi}}`, requests + aboveLimit},
		{"a request above its limit in another unit", `resources: {requests: {cpu: 1001m}, limits: {cpu: 1}}`, requests + aboveLimit},
		{"a GPU without a limit", `resources: {requests: {example.com/gpu: 1}}`, requests + notSame},
		{"fewer GPUs than the limit", `resources: {requests: {example.com/gpu: 1}, limits: {example.com/gpu: 2}}`, requests + notSame},
		{"as many GPUs as the limit in another notation", `resources: {requests: {example.com/gpu: 1k}, limits: {example.com/gpu: 1000}}`, requests + notSame},
		{"huge pages without a limit", `resources: {requests: {cpu: 1, hugepages-2Mi: 4Mi}}`, requests + notSame},
		{"more resources than the rules can check", `resources: {limits: {cpu: 1, example.com/a: 1, example.com/b: 1, example.com/c: 1, example.com/d: 1, example.com/e: 1, example.com/f: 1, example.com/g: 1}}`, "spec.resources.limits: Too many: 8: must have at most 7 items"},
		{"a resource claim", `resources: {claims: [{name: spoon}]}`, "spec.resources.claims: Invalid value: " + notClaims},
		{"a list as resources", `resources: []`, `spec.resources: Invalid value: "array": spec.resources in body must be of type object: "array"`},
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
		t.Errorf("a refused edit has changed the Icecream (-want +got):\n%s", difftest.Diff(good, got))
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
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	specs := []string{
		`deploymentName: "0"`,
		`deploymentName: a.b-c.d--e`,
		`deploymentName: null`,
		`replicas: 0`,
		`replicas: 1.0`,
		`replicas: null`,

		`image: vanilla`,
		`image: vanilla:1`,
		`image: team/vanilla`,
		`image: a.b/c_d/e__f/g--h/i.j:K_l.m-N`,
		`image: localhost/vanilla`,
		`image: "localhost:5000/vanilla"`,
		`image: "registry:5000/vanilla"`,
		`image: "10.0.0.1:5000/vanilla:1"`,
		`image: "[::1]:5000/vanilla:1"`,
		`image: "[2001:db8::1]/vanilla"`,
		`image: REGISTRY.example/vanilla`,
		`image: "vanilla` + digest + `"`,
		`image: "registry.example:5000/team/vanilla:1` + digest + `"`,
		`image: "vanilla@sha512:` + strings.Repeat("0123456789abcdef", 8) + `"`,
		`image: "vanilla:` + strings.Repeat("t", 128) + `"`,
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

// The schema accepts no resources that are refused in a Deployment. It refuses none that
// are accepted in a Deployment, other than those for which isStricter is true. The test
// combines each kind of name with each kind of quantity, as limit, request, or both.
func TestResourcesAreJudgedAsInDeployments(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	type object = map[string]any
	var cases []object
	both := func(name string, limit, request any) {
		cases = append(cases, object{"limits": object{name: limit}, "requests": object{name: request}})
	}
	single := func(name string, quantity any) {
		cases = append(cases, object{"limits": object{name: quantity}}, object{"requests": object{name: quantity}},
			object{"limits": object{name: quantity, "ephemeral-storage": "1"}, "requests": object{name: quantity, "cpu": "1"}})
	}
	for _, name := range []string{
		"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "example.com/gpu", "kubernetes.io/batch-cpu",
		"CPU", "pods", "storage", "requests.cpu", "limits.memory", "hugepages-", "hugepages-Mi", "hugepages--1Mi", "hugepages-0Mi",
		"", "/", "gpu", "/gpu", "example.com/", "example.com/a/b", "EXAMPLE.com/gpu", "example.com/GPU", "example.com/-",
		"requests.example.com/gpu", "limits.example.com/gpu", "example..com/gpu", "kubernetes.io/", "e xample.com/gpu",
		longName(244) + "/gpu", longName(245) + "/gpu", "example.com/" + strings.Repeat("g", 54), "example.com/" + strings.Repeat("g", 64),
	} {
		for _, quantity := range []any{int64(0), "1", "-1", "1.5", "1Gi"} {
			single(name, quantity)
		}
	}
	for _, name := range []string{"memory", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/batch-cpu"} {
		for _, quantity := range []any{
			int64(2097152), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), "", "-0", "+2", "1.", ".5", "1000m", "-1m", "2097152000m", "4Mi", "3Mi",
			"9Ei", "16E", "1e18", "1E18", "1e30", "9223372036854775", "9223372036854776", "9223372036854775807", "9223372036854775808",
			"lots", "1gi", " 1", "1e1.5", "1e", "1E1i", "1ki", "0x1", "1_000", "१",
		} {
			single(name, quantity)
		}
		related := []any{int64(1), "1", "1000m", "1.5", "1k", "2Mi", "2048Ki", "3Mi", "9Ei", "-1", "lots"}
		for _, limit := range related {
			for _, request := range related {
				both(name, limit, request)
			}
		}
	}

	compare(t, cases, func(resources object) (inIcecream, elsewhere bool, err error) {
		labels := object{"app": "same"}
		inIcecream, err = accepts(t.Context(), n, v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), icecreamWith("resources", resources))
		elsewhere, otherErr := accepts(t.Context(), n, appsv1.SchemeGroupVersion.WithResource("deployments"), object{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "same"}, "spec": object{
				"selector": object{"matchLabels": labels},
				"template": object{"metadata": object{"labels": labels}, "spec": object{
					"containers": []any{object{"name": "icecream", "image": "vanilla", "resources": resources}},
				}},
			},
		})
		// What is stricter on purpose says nothing.
		return inIcecream, elsewhere && (inIcecream || !isStricter(resources)), errors.Join(err, otherErr)
	})
}

// The schema accepts the images that the kubelet and container runtimes accept, by the
// package with which they parse them, and no others. (Not tried are names without a slash
// of 248 to 255 characters: they get the prefix library/ on a node, and are too long then.)
func TestImagesAreJudgedAsByNodes(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	hex := func(length int) string { return strings.Repeat("0123456789abcdef", length/16) }
	part := strings.Repeat("p", 50)
	longRepository := func(length int) string {
		return (strings.Repeat(part+"/", length/51+1) + part)[:length]
	}
	var cases []string
	hosts := []string{
		"", "localhost/", "a.b:5000/", "A/", "a/", "a.b/", "A.b/", "a-b.c/", "a--b.c/", "a.b-c/", "10.0.0.1/", "a:1/", "[::1]/", "[2001:db8::1]:5000/",
		"a..b/", ".a/", "a./", "a.b./", "-a.b/", "a-.b/", "a.-b/", "a.b-/", "a_b.c/", "a_b/", "-a/", "A_b/", "a:/", "a.b:x/", ":1/", "[::1/", "::1/", "[]/", "[::g]/", "/", "a@b/", "ä.b/",
	}
	repositories := []string{
		"v", "v/w", "v.w", "v_w", "v__w", "v---w", "v.w_x/y--z", "1",
		"", "/v", "v/", "v//w", "v..w", "v___w", "v._w", "-v", "v-", "_v", "v.", "V", "v/W", hex(64), longRepository(246), longRepository(255), longRepository(256),
	}
	for _, host := range hosts {
		for _, repository := range repositories[:3] {
			cases = append(cases, host+repository)
		}
	}
	for _, repository := range repositories[3:] {
		for _, host := range hosts[:4] {
			cases = append(cases, host+repository)
		}
	}
	for _, name := range []string{"v", "a.b:5000/v"} {
		for _, tag := range []string{"", ":t", ":T_t.t-t", ":_", ":1", ":" + hex(128), ":", ":.t", ":-t", ":t:t", ":t/t", ":" + hex(128) + "t", ":ä"} {
			for _, digest := range []string{
				"", "@sha256:" + hex(64), "@sha384:" + hex(96), "@sha512:" + hex(128),
				"@", "@sha256", "@sha256:", "@sha256:" + hex(48), "@sha256:" + hex(80), "@sha256:" + strings.ToUpper(hex(64)), "@SHA256:" + hex(64), "@sha512:" + hex(64),
				"@md5:" + hex(32), "@sha1:" + hex(48), "@sha256+b64:" + hex(64), "@sha256:" + hex(64) + "@sha256:" + hex(64), "@" + hex(64), "@:" + hex(64),
			} {
				cases = append(cases, name+tag+digest)
			}
		}
	}
	compare(t, cases, func(image string) (inIcecream, elsewhere bool, err error) {
		inIcecream, err = accepts(t.Context(), n, v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), icecreamWith("image", image))
		_, refusal := reference.ParseNormalizedNamed(image)
		return inIcecream, refusal == nil, err
	})
}

// icecreamWith returns an Icecream with a field of its spec.
func icecreamWith(field string, value any) map[string]any {
	return map[string]any{
		"apiVersion": "controller.nicoleh.io/v1alpha1", "kind": "Icecream",
		"metadata": map[string]any{"name": "same"}, "spec": map[string]any{field: value},
	}
}

// accepts reports whether the API server would store the object.
func accepts(ctx context.Context, n *lab.Namespace, in schema.GroupVersionResource, object map[string]any) (bool, error) {
	_, err := n.Lab.Dynamic.Resource(in).Namespace(n.Name).Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return false, nil
	}
	return err == nil, err
}

// compare requires that what is accepted in an Icecream is what is accepted elsewhere.
func compare[T any](t *testing.T, cases []T, judge func(T) (inIcecream, elsewhere bool, err error)) {
	t.Helper()
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	var accepted atomic.Int64
	for _, c := range cases {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			inIcecream, elsewhere, err := judge(c)
			switch {
			case err != nil:
				t.Errorf("%v: %v", c, err)
			case inIcecream != elsewhere:
				t.Errorf("%v: accepted in an Icecream: %t, elsewhere: %t", c, inIcecream, elsewhere)
			case inIcecream:
				accepted.Add(1)
			}
		})
	}
	wait.Wait()
	// If almost everything was refused, the comparison would prove nothing.
	t.Logf("%d of %d are accepted", accepted.Load(), len(cases))
	if accepted.Load() < 100 {
		t.Error("too few are accepted for the comparison to mean anything")
	}
}

// isStricter reports whether the schema refuses resources that a Deployment may have,
// because an exact rule would cost too much: negative zero, spaces, long exponents, huge
// pages and extended resources that are not plain numbers, and requests that must equal
// their limits but are written differently.
func isStricter(resources map[string]any) bool {
	limits, _ := resources["limits"].(map[string]any)
	requests, _ := resources["requests"].(map[string]any)
	for _, list := range []map[string]any{limits, requests} {
		for name, quantity := range list {
			text := fmt.Sprint(quantity)
			isCounted := strings.HasPrefix(name, "hugepages-") || strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/")
			if strings.HasPrefix(text, "-") || strings.HasPrefix(text, " ") || longExponent.MatchString(text) || isCounted && !count.MatchString(text) {
				return true
			}
		}
	}
	for name, request := range requests {
		if (strings.Contains(name, "/") || strings.HasPrefix(name, "hugepages-")) && fmt.Sprint(request) != fmt.Sprint(limits[name]) {
			return true
		}
	}
	return false
}

var (
	longExponent = regexp.MustCompile(`[eE]...`)
	count        = regexp.MustCompile(`^\d{1,9}[kMi]*$`)
)

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
