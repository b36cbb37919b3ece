package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// crdFile is the path of the CustomResourceDefinition in this repository.
const crdFile = "artifacts/examples/crd-icecream.yaml"

// undecodable has specs that an earlier schema might have allowed, and that cannot be
// decoded into the Go types of today. If such an Icecream is stored, the API server
// (v1.36) behaves like this:
//
//   - It accepts a PUT to /status. The request may omit the spec and all metadata other
//     than namespace, name, UID and resource version. The API server ignores what it
//     says about the spec and about annotations.
//   - It does so only if no rule of the schema in CEL reads a field that has the wrong type:
//     see unwritable. It does not check patterns, minimums and lengths in the spec.
//   - It refuses server-side apply to /status ("failed to create typed live object") by
//     any field manager if the spec does not fit the schema.
//   - It accepts an edit that corrects the spec. It may refuse any other edit, such as
//     of a label, depending on the spec. It does so with replicas: "two".
var undecodable = []struct {
	name, spec, status string
	why                string // in the words of the decoder
}{
	{name: "string-as-number", spec: `{"replicas":"two"}`, why: "spec: json: cannot unmarshal string into Go struct field IcecreamSpec.spec.replicas of type int32"},
	{name: "object-as-request", spec: `{"resources":{"requests":{"cpu":{}}}}`, why: "spec: quantities must match the regular expression"},
	{name: "bad-condition", spec: `{"replicas":{}}`, status: `{"replicas":0,"conditions":[{"type":{}}]}`, why: "spec: json: cannot unmarshal object into Go struct field IcecreamSpec.spec.replicas of type int32"},
	{name: "all-of-it", spec: `{"replicas":"two","image":[],"resources":{"limits":{"cpu":[]},"requests":{"cpu":{}}}}`, why: "spec: "},
}

// unwritable has specs in which a field that the rule about deploymentName reads has the wrong
// type. The API server refuses every update of such an Icecream, of its status and to correct it.
// Only an event can tell what is wrong, and only deletion helps.
var unwritable = []struct{ name, spec, why string }{
	{"number-as-name", `{"deploymentName":7}`, "spec: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.deploymentName of type string"},
	{"text-as-spec", `"text"`, "spec: json: cannot unmarshal string into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
}

// mistakes are specs that can be decoded. Each breaks one rule of the schema.
var mistakes = []struct {
	name, spec, fixed, other, want string
	isRefused                      bool // whether the API server refuses it in a Deployment, too
}{
	{"image", `{"image":"registry.example/${FLAVOR}"}`, `{"image":"registry.example/vanilla"}`, `{"image":"registry.example/${TASTE}"}`, `spec.image: Invalid value: "registry.example/${TASTE}"`, false},
	{"digits", digits("1"), `{"resources":{"limits":null}}`, digits("2"), `spec.resources.limits.memory: Invalid value: "2000`, true},
}

// digits returns a spec with a limit that takes minutes to marshal.
func digits(first string) string {
	return fmt.Sprintf(`{"resources":{"limits":{"memory":%q}}}`, first+strings.Repeat("0", 200_000))
}

// An Icecream that was stored under another schema and cannot be decoded keeps its Deployment
// and does not affect others, whether the controller keeps running or is restarted. A mistake
// of another kind does not prevent other edits.
func TestStoredUnderAnotherSchema(t *testing.T) {
	t.Parallel()
	n := NewLab(t, lab.Options{}).NewNamespace(t)
	c := n.Lab.StartController(t, "-insecure-bind-address=127.0.0.1:0")
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.Create(t, "sundae", v1alpha1.IcecreamSpec{DeploymentName: "cup", Replicas: ptr.To[int32](2), Image: "registry.example/chocolate:1"})
	n.EventuallyReady(t, "vanilla")
	n.EventuallyReady(t, "sundae")
	had := n.Deployment(t, "cup")
	requireUntouched := func(when string) {
		t.Helper()
		ice := n.EventuallyIcecream(t, "sundae", "says what is wrong "+when, isUndecodable("spec: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"))
		if s := ice.Status; s.Replicas != 2 || s.AvailableReplicas != 2 {
			t.Errorf("%s, the status is %+v", when, s)
		}
		if has := n.Deployment(t, "cup"); has.UID != had.UID || has.Generation != had.Generation {
			t.Errorf("%s, the Deployment of the undecodable Icecream was touched", when)
		}
	}

	disableSchema(t, n)
	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":5}}`)
	requireUntouched("under a lax schema")
	requireSynced(t, n, "vanilla", 2)
	c.Stop(t)
	for _, bad := range undecodable {
		n.Apply(t, manifestWith(bad.name, bad.spec))
		if bad.status != "" {
			n.Kubectl(t, "patch", "icecream", bad.name, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":%s}`, bad.status))
		}
	}
	for _, m := range mistakes {
		n.Apply(t, manifestWith(m.name, m.spec))
	}
	for _, bad := range unwritable {
		n.Apply(t, manifestWith(bad.name, bad.spec))
	}
	n.Apply(t, manifestWith("bad-status", `{"replicas":1,"image":"registry.example/vanilla:1"}`))
	n.Kubectl(t, "patch", "icecream", "bad-status", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":"three","conditions":5}}`)
	enableSchema(t, n)

	mark := time.Now()
	c.Start(t)
	n.EventuallyReady(t, "bad-status")
	requireSynced(t, n, "vanilla", 1)
	requireUntouched("after a restart")
	if wrote := n.Requests(t).By(c.User).Since(mark).Writes().ByObject(); wrote["sundae"] > 0 {
		t.Errorf("the restart led to %d writes for the undecodable Icecream", wrote["sundae"])
	}
	for _, bad := range undecodable {
		n.EventuallyIcecream(t, bad.name, "says what is wrong", isUndecodable(bad.why))
		eventuallyEvent(t, n, bad.name, v1alpha1.ReasonInvalidSpec, bad.why)
	}
	for _, bad := range unwritable {
		eventuallyEvent(t, n, bad.name, v1alpha1.ReasonInvalidSpec, bad.why)
		if refusal := n.Refused(t, manifestWith(bad.name, `{"replicas":1}`)); !strings.Contains(refusal, "evaluating rule") {
			t.Errorf("the correction of %q is refused with\n%s", bad.name, refusal)
		}
		if tried := n.Requests(t).By(c.User).Since(mark).ByObject()[bad.name]; tried > 10 { // after 1 s, 2 s, 4 s, and so on
			t.Errorf("the status of %q was sent %d times", bad.name, tried)
		}
		n.Kubectl(t, "delete", "icecream", bad.name)
	}
	invalid := len(undecodable) + 1
	for _, m := range mistakes {
		requireEditable(t, n, m.name, m.isRefused)
		if m.isRefused {
			invalid++
		}
	}
	n.Eventually(t, "the metrics count those with an invalid spec", func(context.Context) error {
		if all, want := c.Metrics(t), fmt.Sprintf(`icecream_objects{icecream_namespace=%q,ready="False",reason="InvalidSpec"} %d`, n.Name, invalid); !strings.Contains(all, want) {
			return fmt.Errorf("there is no %s in the metrics:\n%s", want, all)
		}
		return nil
	})

	for _, m := range mistakes {
		if refusal := n.Refused(t, manifestWith(m.name, m.other)); !strings.Contains(refusal, m.want) {
			t.Errorf("another mistake in %q is refused with\n%s\nwhich does not contain %q", m.name, refusal, m.want)
		}
		n.Kubectl(t, "patch", "icecream", m.name, "--type=merge", "-p", `{"spec":`+m.fixed+`}`)
		n.EventuallyReady(t, m.name)
	}
	for _, bad := range undecodable {
		if refusal := n.Refused(t, manifestWith(bad.name, `{"replicas":1,"image":"registry.example/a b"}`)); !strings.Contains(refusal, "spec.image in body should match") {
			t.Errorf("an edit of %q with another mistake is refused with\n%s", bad.name, refusal)
		}
		n.Apply(t, manifestWith(bad.name, fmt.Sprintf(`{"replicas":1,"image":"registry.example/mended:1","deploymentName":%q,"resources":{"requests":{"cpu":"1m"}}}`, bad.name)))
		n.EventuallyReady(t, bad.name)
	}
	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":"registry.example/pistachio:1"}}`)
	n.EventuallyReady(t, "sundae")
	if has := n.Deployment(t, "cup"); has.UID != had.UID {
		t.Errorf("the Deployment had UID %s, and now has UID %s", had.UID, has.UID)
	}
}

// requireEditable requires that an Icecream with a mistake can be labeled and scaled.
func requireEditable(t *testing.T, n *lab.Namespace, name string, isRefused bool) {
	t.Helper()
	n.Kubectl(t, "label", "icecream", name, "flavor=plain")
	n.Kubectl(t, "scale", "icecream", name, "--replicas=2")
	if isRefused {
		n.EventuallyStalled(t, name, v1alpha1.ReasonInvalidSpec)
	} else {
		n.EventuallyReady(t, name)
	}
}

// manifestWith returns the manifest of an Icecream with that name and spec, in JSON.
func manifestWith(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"controller.nicoleh.io/v1alpha1","kind":"Icecream","metadata":{"name":%q},"spec":%s}`, name, spec)
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// disableSchema makes the API server accept any spec and status of an Icecream.
func disableSchema(t *testing.T, n *lab.Namespace) {
	t.Helper()
	const lax = `[
		{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
		{"op":"replace","path":"/spec/versions/0/subresources","value":{"status":{}}}]`
	_, err := n.Lab.Dynamic.Resource(crds).Patch(t.Context(), "icecreams.controller.nicoleh.io", types.JSONPatchType, []byte(lax), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Eventually(t, "any Icecream is accepted", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, manifestWith("probe", `{"image":5}`), "create", "--dry-run=server", "-f", "-")
		return err
	})
}

// enableSchema undoes disableSchema.
func enableSchema(t *testing.T, n *lab.Namespace) {
	t.Helper()
	n.Kubectl(t, "replace", "-f", n.Lab.Path(crdFile))
	n.Eventually(t, "an Icecream that does not fit the schema is refused", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, manifestWith("probe", `{"image":5}`), "create", "--dry-run=server", "-f", "-")
		switch {
		case err == nil:
			return errors.New("it is accepted")
		case !strings.Contains(err.Error(), "must be of type string"):
			return err
		}
		return nil
	})
}

// isUndecodable returns a check that the status reports a spec that cannot be decoded,
// and says why.
func isUndecodable(why string) func(*v1alpha1.Icecream) error {
	return func(ice *v1alpha1.Icecream) error {
		if err := lab.IsStalled(v1alpha1.ReasonInvalidSpec)(ice); err != nil {
			return err
		}
		message := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady).Message
		if !strings.HasPrefix(message, "The spec cannot be decoded: "+why) {
			return fmt.Errorf("the message is %q", message)
		}
		return nil
	}
}

// requireSynced requires that the controller still acts on an Icecream: an edit reaches
// its Deployment and its status.
func requireSynced(t *testing.T, n *lab.Namespace, name string, replicas int32) {
	t.Helper()
	n.Kubectl(t, "patch", "icecream", name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	n.EventuallyReady(t, name)
	if got := *n.Deployment(t, name).Spec.Replicas; got != replicas {
		t.Errorf("the Deployment of %q has %d replicas, want %d", name, got, replicas)
	}
}
