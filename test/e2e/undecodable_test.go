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

// Icecreams may have been stored under another schema than the present one, such
// that nobody can decode them. What the API server (v1.36) allows for them:
//
//   - A PUT to /status is accepted for replicas: "two" or 3000000000, and for a spec
//     that is text or a list. It may leave the spec out, and needs no more metadata
//     than namespace, name, UID and resource version; what it says about the spec
//     and about annotations is ignored.
//   - Server-side apply to /status is refused ("failed to create typed live
//     object"), whoever applies, when the spec does not fit the schema.
//   - No form of a status write (PUT, merge patch, apply) is accepted where a
//     validation rule (CEL) of the schema reads a value of another type than the
//     schema's. The API server evaluates the rules of the spec on writes of the
//     status, too, and while it forgives a rule that is false if nothing has
//     changed, it does not forgive an error: "invalid data, expected string, got
//     int64 evaluating rule". A pattern, a minimum or a length in place of the rule
//     does no harm: those of the spec are not looked at. No rule can be written
//     that does not err, as an error of its argument is an error of all functions.
//     Where there is such a rule, an event has to do.
//   - An edit that mends the spec is accepted. One that does not, such as of a label,
//     is mostly refused.
var undecodable = []struct {
	name, spec string
	why        string // as the decoder says it
	isMute     bool   // whether a rule of the schema reads it, so that there can be no status
}{
	{name: "number-as-string", spec: `{"image":5}`, why: "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string", isMute: true},
	{name: "string-as-number", spec: `{"replicas":"two"}`, why: "spec.replicas: json: cannot unmarshal string into Go struct field IcecreamSpec.spec.replicas of type int32"},
	{name: "large-number", spec: `{"replicas":3000000000}`, why: "spec.replicas: json: cannot unmarshal number 3000000000 into Go struct field IcecreamSpec.spec.replicas of type int32"},
	{name: "object-as-quantity", spec: `{"resources":{"requests":{"cpu":{}}}}`, why: "spec.resources.requests.cpu: quantities must match the regular expression", isMute: true},
	{name: "list-as-spec", spec: `["text"]`, why: "spec: json: cannot unmarshal array into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
	{name: "text-as-spec", spec: `"text"`, why: "spec: json: cannot unmarshal string into Go struct field Icecream.spec of type v1alpha1.IcecreamSpec"},
	{name: "number-as-name", spec: `{"deploymentName":7}`, why: "spec.deploymentName: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.deploymentName of type string", isMute: true},
}

// undecodableManifest is an Icecream of that name and spec, in JSON.
func undecodableManifest(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"controller.nicoleh.io/v1alpha1","kind":"Icecream","metadata":{"name":%q},"spec":%s}`, name, spec)
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// laxen has the API server accept every spec and status of an Icecream.
func laxen(t *testing.T, n *lab.Namespace) {
	t.Helper()
	const lax = `[
		{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
		{"op":"replace","path":"/spec/versions/0/subresources","value":{"status":{}}}]`
	_, err := n.Lab.Dynamic.Resource(crds).Patch(t.Context(), "icecreams.controller.nicoleh.io", types.JSONPatchType, []byte(lax), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Eventually(t, "an Icecream of any form is accepted", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, undecodableManifest("probe", `{"image":5}`), "create", "--dry-run=server", "-f", "-")
		return err
	})
}

// tighten ends what laxen has begun.
func tighten(t *testing.T, n *lab.Namespace) {
	t.Helper()
	n.Kubectl(t, "replace", "-f", n.Lab.Path("artifacts/examples/crd-icecream.yaml"))
	n.Eventually(t, "no Icecream is accepted that does not fit the schema", func(ctx context.Context) error {
		_, err := n.TryKubectl(ctx, undecodableManifest("probe", `{"image":5}`), "create", "--dry-run=server", "-f", "-")
		switch {
		case err == nil:
			return errors.New("one is")
		case !strings.Contains(err.Error(), "must be of type string"):
			return err
		}
		return nil
	})
}

// isUndecodable returns a check that the status says so, in these words.
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

// requireWarning waits for the event that tells why the spec cannot be decoded.
func requireWarning(t *testing.T, n *lab.Namespace, name, why string) {
	t.Helper()
	n.Eventually(t, fmt.Sprintf("an event tells why %q is not worked on", name), func(context.Context) error {
		for _, event := range n.Events(t, name) {
			if event.Type == corev1.EventTypeWarning && event.Reason == v1alpha1.ReasonInvalidSpec && strings.Contains(event.Note, why) {
				return nil
			}
		}
		return fmt.Errorf("the events are %v", n.Events(t, name))
	})
}

// requireAtWork requires that an Icecream is looked after: an edit reaches its
// Deployment and its status.
func requireAtWork(t *testing.T, n *lab.Namespace, name string, replicas int32) {
	t.Helper()
	n.Kubectl(t, "patch", "icecream", name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	n.EventuallyReady(t, name)
	if got := *n.Deployment(t, name).Spec.Replicas; got != replicas {
		t.Errorf("the Deployment of %q has %d replicas, want %d", name, got, replicas)
	}
}

// Whatever was in store when a controller starts, it looks after all that it can
// decode, and says what it cannot.
func TestUndecodableFromTheBeginning(t *testing.T) {
	t.Parallel()
	n := NewLab(t, lab.Options{}).NewNamespace(t)
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	laxen(t, n)
	for _, bad := range undecodable {
		n.Apply(t, undecodableManifest(bad.name, bad.spec))
	}
	n.Apply(t, undecodableManifest("bad-status", `{"replicas":1,"image":"registry.example/vanilla:1"}`))
	n.Kubectl(t, "patch", "icecream", "bad-status", "--subresource=status", "--type=merge", "-p", `{"status":{"replicas":"three","conditions":5}}`)
	tighten(t, n)

	c := n.Lab.StartController(t, "-insecure-bind-address=127.0.0.1:0")
	n.Controller = c
	n.EventuallyReady(t, "vanilla")
	n.EventuallyReady(t, "bad-status")
	for _, bad := range undecodable {
		requireWarning(t, n, bad.name, bad.why)
		if !bad.isMute {
			n.EventuallyIcecream(t, bad.name, "says what is wrong", isUndecodable(bad.why))
		} else if ice := n.Icecream(t, bad.name); len(ice.Status.Conditions) > 0 {
			t.Errorf("%q has a status after all, so the test should require it: %+v", bad.name, ice.Status)
		}
	}
	requireAtWork(t, n, "vanilla", 2)
	if got := len(n.AllDeployments(t)); got != 2 {
		t.Errorf("there are %d Deployments, want those of 2 Icecreams", got)
	}
	if all, want := metricsOf(t, c), fmt.Sprintf(`icecream_objects{ready="False",reason="InvalidSpec"} %d`, len(undecodable)); !strings.Contains(all, want) {
		t.Errorf("there is no %s in\n%s", want, all)
	}
	list, err := n.Icecreams().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != len(undecodable)+2 {
		t.Errorf("a list of %d Icecreams, error %v", len(list.Items), err)
	}

	mark := time.Now()
	n.Steadily(t, "nothing is tried", 5*time.Second, func(context.Context) error { return nil })
	if tried := n.Requests(t).By(c.User).Since(mark); len(tried) > 0 {
		t.Errorf("while nothing had changed, the controller made requests: %s", tried)
	}

	for _, bad := range undecodable {
		n.Apply(t, undecodableManifest(bad.name, fmt.Sprintf(`{"replicas":1,"image":"registry.example/mended:1","deploymentName":%q,"resources":{"requests":{"cpu":"1m"}}}`, bad.name)))
		n.EventuallyReady(t, bad.name)
		if image := n.Deployment(t, bad.name).Spec.Template.Spec.Containers[0].Image; image != "registry.example/mended:1" {
			t.Errorf("the Deployment of %q runs %s", bad.name, image)
		}
	}
}

// An Icecream that can no longer be decoded keeps what it has, and stands in nobody's
// way, neither while the controller runs nor after it has been started again.
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

	laxen(t, n)
	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":5}}`)
	requireUntouched("under a lax schema")
	requireWarning(t, n, "sundae", why)
	requireAtWork(t, n, "vanilla", 3)

	tighten(t, n)
	requireAtWork(t, n, "vanilla", 2)
	requireUntouched("under the right schema")

	c.Stop(t)
	mark := time.Now()
	c.Start(t)
	requireAtWork(t, n, "vanilla", 1)
	requireUntouched("after a restart")
	if wrote := n.Requests(t).By(c.User).Since(mark).Writes().ByObject(); wrote["sundae"] > 0 {
		t.Errorf("the restart led to %d writes for the undecodable Icecream", wrote["sundae"])
	}

	n.Kubectl(t, "patch", "icecream", "sundae", "--type=merge", "-p", `{"spec":{"image":"registry.example/pistachio:1"}}`)
	n.EventuallyReady(t, "sundae")
	has := n.Deployment(t, "cup")
	if image := has.Spec.Template.Spec.Containers[0].Image; image != "registry.example/pistachio:1" || has.UID != had.UID {
		t.Errorf("the Deployment, which had UID %s, has %s and runs %s", had.UID, has.UID, image)
	}
}
