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

// An Icecream that was stored under another schema and cannot be decoded keeps its Deployment and delays no other, also
// after a restart. In such a case, the API server (v1.37)
//
//   - accepts a PUT to /status. It ignores what the request says about the spec, and refuses server-side apply;
//   - accepts an edit that corrects the spec, and may refuse any other edit;
//   - refuses every update, of the status and to correct the spec, if a rule of the schema in CEL reads the field that
//     has the wrong type. Only an event can tell what is wrong then, and only deletion helps.
func TestStoredUnderAnotherSchema(t *testing.T) {
	t.Parallel()
	n := NewLab(t, lab.Options{}).NewNamespace(t)
	c := n.Lab.StartController(t)
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.Create(t, "sundae", v1alpha1.IcecreamSpec{DeploymentName: "cup", Replicas: ptr.To[int32](2), Image: "registry.example/chocolate:1"})
	n.EventuallyReady(t, "vanilla")
	n.EventuallyReady(t, "sundae")
	had := n.Deployment(t, "cup")

	disableSchema(t, n)
	c.Stop(t)
	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":5}}`)
	undecodable := map[string]struct{ spec, why string }{
		"string-as-number":  {`{"replicas":"two"}`, "spec: json: cannot unmarshal string into Go struct field IcecreamSpec.spec.replicas of type int32"},
		"object-as-request": {`{"resources":{"requests":{"cpu":{}}}}`, "spec: quantities must match the regular expression"},
	}
	unwritable := map[string]struct{ spec, why string }{
		"number-as-name": {`{"deploymentName":7}`, "spec: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.deploymentName of type string"},
		"text-as-spec":   {`"text"`, "spec: json: cannot unmarshal string into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
	}
	for _, all := range []map[string]struct{ spec, why string }{undecodable, unwritable} {
		for name, bad := range all {
			n.Apply(t, manifestWith(name, bad.spec))
		}
	}
	// These can be decoded. One breaks a rule of the schema, one would take minutes to marshal, and one has a strange status.
	n.Apply(t, manifestWith("image", `{"image":"registry.example/${FLAVOR}"}`))
	n.Apply(t, manifestWith("digits", `{"resources":{"limits":{"memory":"1`+strings.Repeat("0", 200_000)+`"}}}`))
	n.Apply(t, manifestWith("bad-status", `{"replicas":1,"image":"registry.example/vanilla:1"}`))
	n.Kubectl(t, "patch", "icecream", "bad-status", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":"three","conditions":5}}`)
	enableSchema(t, n)

	mark := time.Now()
	c.Start(t)
	n.EventuallyReady(t, "bad-status")
	n.Kubectl(t, "scale", "icecream", "vanilla", "image", "digits", "--replicas=2")
	n.EventuallyReady(t, "vanilla")
	n.EventuallyReady(t, "image")
	n.EventuallyStalled(t, "digits", v1alpha1.ReasonInvalidSpec)
	n.EventuallyIcecream(t, "sundae", "says what is wrong", isUndecodable("spec: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"))
	if has := n.Deployment(t, "cup"); has.UID != had.UID || has.Generation != had.Generation {
		t.Error("the Deployment of the undecodable Icecream was touched")
	}
	for name, bad := range unwritable {
		eventuallyEvent(t, n, name, v1alpha1.ReasonInvalidSpec, bad.why)
		if refusal := n.Refused(t, manifestWith(name, `{"replicas":1}`)); !strings.Contains(refusal, "evaluating rule") {
			t.Errorf("the correction of %q is refused with\n%s", name, refusal)
		}
		if tried := n.Requests(t).By(c.User).Since(mark).ByObject()[name]; tried > 10 { // after 1 s, 2 s, 4 s, and so on
			t.Errorf("the status of %q was sent %d times", name, tried)
		}
		n.Kubectl(t, "delete", "icecream", name)
	}
	for name, bad := range undecodable {
		n.EventuallyIcecream(t, name, "says what is wrong", isUndecodable(bad.why))
		n.Apply(t, manifestWith(name, `{"replicas":1,"image":"registry.example/mended:1","resources":{"requests":{"cpu":"1m"}}}`))
		n.EventuallyReady(t, name)
	}
	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":"registry.example/pistachio:1"}}`)
	n.EventuallyReady(t, "sundae")
	if has := n.Deployment(t, "cup"); has.UID != had.UID {
		t.Errorf("the Deployment had UID %s, and now has UID %s", had.UID, has.UID)
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
