package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// undecodable has specs that an earlier schema might have allowed, and that cannot be
// decoded into the Go types of today. If such an Icecream is stored, the API server
// (v1.36) behaves like this:
//
//   - It accepts a PUT to /status. The request may omit the spec and all metadata other
//     than namespace, name, UID and resource version. The API server ignores what it
//     says about the spec and about annotations.
//   - It does so only because the schema has no validation rules in CEL. The API server
//     evaluates these for changes of the status, too. It tolerates a rule that is violated
//     if the value has not changed, but it does not tolerate an error, such as "invalid
//     data, expected string, got int64 evaluating rule". It does not check patterns,
//     minimums and lengths in the spec.
//   - It refuses server-side apply to /status ("failed to create typed live object") by
//     any field manager if the spec does not fit the schema.
//   - It accepts an edit that corrects the spec. It may refuse any other edit, such as
//     of a label, depending on the spec. It does so with replicas: "two".
var undecodable = []struct {
	name, spec, status string
	why                string // in the words of the decoder
}{
	{name: "number-as-image", spec: `{"image":5}`, why: "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"},
	{name: "object-as-image", spec: `{"image":{}}`, why: "spec.image: json: cannot unmarshal object into Go struct field IcecreamSpec.spec.image of type string"},
	{name: "string-as-number", spec: `{"replicas":"two"}`, why: "spec.replicas: json: cannot unmarshal string into Go struct field IcecreamSpec.spec.replicas of type int32"},
	{name: "large-number", spec: `{"replicas":3000000000}`, why: "spec.replicas: json: cannot unmarshal number 3000000000 into Go struct field IcecreamSpec.spec.replicas of type int32"},
	{name: "object-as-request", spec: `{"resources":{"requests":{"cpu":{}}}}`, why: "spec.resources.requests.cpu: quantities must match the regular expression"},
	{name: "list-as-limit", spec: `{"resources":{"limits":{"hugepages-2Mi":[]}}}`, why: "spec.resources.limits.hugepages-2Mi: quantities must match the regular expression"},
	{name: "words-as-limit", spec: `{"resources":{"limits":{"hugepages-2Mi":"lots"}}}`, why: "spec.resources.limits.hugepages-2Mi: quantities must match the regular expression"},
	{name: "number-as-requests", spec: `{"resources":{"requests":5}}`, why: "spec.resources.requests: json: cannot unmarshal number into Go struct field"},
	{name: "text-as-limits", spec: `{"resources":{"limits":"text"}}`, why: "spec.resources.limits: json: cannot unmarshal string into Go struct field"},
	{name: "number-as-claims", spec: `{"resources":{"claims":5}}`, why: "spec.resources.claims: json: cannot unmarshal number into Go struct field"},
	{name: "object-in-claim", spec: `{"resources":{"claims":[{"name":{}}]}}`, why: "spec.resources.claims[0].name: json: cannot unmarshal object into Go struct field"},
	{name: "number-as-resources", spec: `{"resources":5}`, why: "spec.resources: json: cannot unmarshal number into Go struct field"},
	{name: "list-as-spec", spec: `["text"]`, why: "spec: json: cannot unmarshal array into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
	{name: "text-as-spec", spec: `"text"`, why: "spec: json: cannot unmarshal string into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
	{name: "number-as-name", spec: `{"deploymentName":7}`, why: "spec.deploymentName: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.deploymentName of type string"},
	{name: "like-an-object", spec: `{"apiVersion":5,"kind":{},"metadata":[],"status":5,"image":5}`, why: "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"},
	{name: "number-as-status", spec: `{"image":5}`, status: `5`, why: "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"},
	{name: "bad-conditions", spec: `{"resources":{"limits":{"cpu":{}}}}`, status: `{"replicas":"three","conditions":5}`, why: "spec.resources.limits.cpu: quantities must match the regular expression"},
	{name: "bad-condition", spec: `"text"`, status: `{"replicas":0,"conditions":[{"type":{}}]}`, why: "spec: json: cannot unmarshal string into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
	{name: "all-of-it", spec: `{"deploymentName":7,"replicas":"two","image":[],"resources":{"limits":5,"requests":{"cpu":{}},"claims":5}}`, why: "spec."},
}

// undecodableManifest returns the manifest of an Icecream with that name and spec, in
// JSON.
func undecodableManifest(name, spec string) string {
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
		_, err := n.TryKubectl(ctx, undecodableManifest("probe", `{"image":5}`), "create", "--dry-run=server", "-f", "-")
		return err
	})
}

// enableSchema undoes disableSchema.
func enableSchema(t *testing.T, n *lab.Namespace) {
	t.Helper()
	n.Kubectl(t, "replace", "-f", n.Lab.Path(crdFile))
	n.Eventually(t, "an Icecream that does not fit the schema is refused", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, undecodableManifest("probe", `{"image":5}`), "create", "--dry-run=server", "-f", "-")
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

// eventuallyWarned waits for the event that says why the spec cannot be decoded.
func eventuallyWarned(t *testing.T, n *lab.Namespace, name, why string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("an event says why %q cannot be decoded", name), func(context.Context) error {
		for _, event := range n.Events(t, name) {
			if event.Type == corev1.EventTypeWarning && event.Reason == v1alpha1.ReasonInvalidSpec && strings.Contains(event.Note, why) {
				return nil
			}
		}
		return fmt.Errorf("the events are %v", n.Events(t, name))
	})
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

// If undecodable Icecreams are stored when the controller starts, it still acts on all
// others, and reports those that it cannot decode.
func TestUndecodableFromTheBeginning(t *testing.T) {
	t.Parallel()
	n := NewLab(t, lab.Options{}).NewNamespace(t)
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	disableSchema(t, n)
	for _, bad := range undecodable {
		n.Apply(t, undecodableManifest(bad.name, bad.spec))
		if bad.status != "" {
			n.Kubectl(t, "patch", "icecream", bad.name, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":%s}`, bad.status))
		}
	}
	n.Apply(t, undecodableManifest("bad-status", `{"replicas":1,"image":"registry.example/vanilla:1"}`))
	n.Kubectl(t, "patch", "icecream", "bad-status", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":"three","conditions":5}}`)
	enableSchema(t, n)

	c := n.Lab.StartController(t, "-insecure-bind-address=127.0.0.1:0")
	n.Controller = c
	n.EventuallyReady(t, "vanilla")
	n.EventuallyReady(t, "bad-status")
	for _, bad := range undecodable {
		eventuallyWarned(t, n, bad.name, bad.why)
		n.EventuallyIcecream(t, bad.name, "says what is wrong", isUndecodable(bad.why))
	}
	requireSynced(t, n, "vanilla", 2)
	if got := len(n.AllDeployments(t)); got != 2 {
		t.Errorf("there are %d Deployments, want those of 2 Icecreams", got)
	}
	if all, want := c.Metrics(t), fmt.Sprintf(`icecream_objects{ready="False",reason="InvalidSpec"} %d`, len(undecodable)); !strings.Contains(all, want) {
		t.Errorf("there is no %s in the metrics:\n%s", want, all)
	}
	list, err := n.Icecreams().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != len(undecodable)+2 {
		t.Errorf("a list returned %d Icecreams and error %v, want %d Icecreams", len(list.Items), err, len(undecodable)+2)
	}

	mark := time.Now()
	time.Sleep(5 * time.Second)
	if tried := n.Requests(t).By(c.User).Since(mark); len(tried) > 0 {
		t.Errorf("while nothing had changed, the controller made requests: %s", tried)
	}

	for _, bad := range undecodable {
		if refusal := n.Refused(t, undecodableManifest(bad.name, `{"replicas":1,"image":"registry.example/a b"}`)); !strings.Contains(refusal, "spec.image in body should match") {
			t.Errorf("an edit of %q with another mistake is refused with\n%s", bad.name, refusal)
		}
		n.Apply(t, undecodableManifest(bad.name, fmt.Sprintf(`{"replicas":1,"image":"registry.example/mended:1","deploymentName":%q,"resources":{"requests":{"cpu":"1m"}}}`, bad.name)))
		n.EventuallyReady(t, bad.name)
		if image := n.Deployment(t, bad.name).Spec.Template.Spec.Containers[0].Image; image != "registry.example/mended:1" {
			t.Errorf("the Deployment of %q runs %s", bad.name, image)
		}
	}
}

// An Icecream that can no longer be decoded keeps its Deployment and does not affect
// other Icecreams, whether the controller keeps running or is restarted.
func TestUndecodableFromNowOn(t *testing.T) {
	t.Parallel()
	n := NewLab(t, lab.Options{}).NewNamespace(t)
	c := n.Lab.StartController(t)
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.Create(t, "sundae", v1alpha1.IcecreamSpec{DeploymentName: "cup", Replicas: ptr.To[int32](2), Image: "registry.example/chocolate:1"})
	n.EventuallyReady(t, "vanilla")
	n.EventuallyReady(t, "sundae")
	had := n.Deployment(t, "cup")
	const why = "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"

	requireUntouched := func(when string) {
		t.Helper()
		ice := n.EventuallyIcecream(t, "sundae", "says what is wrong "+when, isUndecodable(why))
		if s := ice.Status; s.DeploymentName != "cup" || s.Replicas != 2 || s.AvailableReplicas != 2 || s.UpdatedReplicas != 2 || s.NodeCount == 0 {
			t.Errorf("%s, the status is %+v", when, s)
		}
		if has := n.Deployment(t, "cup"); has.UID != had.UID || has.Generation != had.Generation || has.DeletionTimestamp != nil {
			t.Errorf("%s, the Deployment of the undecodable Icecream was touched", when)
		}
		if got := len(n.AllDeployments(t)); got != 2 {
			t.Errorf("%s, there are %d Deployments", when, got)
		}
	}

	disableSchema(t, n)
	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":5}}`)
	requireUntouched("under a lax schema")
	eventuallyWarned(t, n, "sundae", why)
	requireSynced(t, n, "vanilla", 3)

	enableSchema(t, n)
	requireSynced(t, n, "vanilla", 2)
	requireUntouched("under the right schema")

	c.Stop(t)
	mark := time.Now()
	c.Start(t)
	requireSynced(t, n, "vanilla", 1)
	requireUntouched("after a restart")
	if wrote := n.Requests(t).By(c.User).Since(mark).Writes().ByObject(); wrote["sundae"] > 0 {
		t.Errorf("the restart led to %d writes for the undecodable Icecream", wrote["sundae"])
	}

	// Its status still follows the Deployment.
	for _, replicas := range []int32{3, 1} {
		n.Kubectl(t, "scale", "deployment", "cup", fmt.Sprintf("--replicas=%d", replicas))
		n.EventuallyIcecream(t, "sundae", fmt.Sprintf("has %d Pods", replicas), func(ice *v1alpha1.Icecream) error {
			if ice.Status.Replicas != replicas || ice.Status.AvailableReplicas != replicas {
				return fmt.Errorf("its status is %+v", ice.Status)
			}
			return isUndecodable(why)(ice)
		})
	}

	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":"registry.example/pistachio:1"}}`)
	n.EventuallyReady(t, "sundae")
	has := n.Deployment(t, "cup")
	if image := has.Spec.Template.Spec.Containers[0].Image; image != "registry.example/pistachio:1" || has.UID != had.UID {
		t.Errorf("the Deployment had UID %s, and now has UID %s and runs %s", had.UID, has.UID, image)
	}
}
