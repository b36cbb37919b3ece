package icecream

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

func scaled(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) }

// A patch is for the very object that was looked at. An adoption depends on more than the
// UID, so it is for the very version.
func TestPreconditionsOfPatches(t *testing.T) {
	for name, test := range map[string]struct {
		edit      func(*appsv1.Deployment)
		isVersion bool
	}{"a repair": {scaled, false}, "an adoption": {orphaned, true}} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edit)
			o, _ := asking(seeing(newIcecream(), d))
			patch, err := o.Patch(o.Standing.Due)
			if err != nil {
				t.Fatal(err)
			}
			var body metav1.PartialObjectMetadata
			if err := json.Unmarshal(patch, &body); err != nil {
				t.Fatal(err)
			}
			if body.UID != d.UID || (body.ResourceVersion == d.ResourceVersion) != test.isVersion {
				t.Errorf("UID %q and version %q, of %q and %q", body.UID, body.ResourceVersion, d.UID, d.ResourceVersion)
			}
		})
	}
}

// An Icecream costs no more than any other, whatever number of digits a quantity has that was
// stored under another schema, and whatever the schema admits. Without the limit, the first
// takes half a minute.
func TestDigitsOfQuantities(t *testing.T) {
	longest := strings.Repeat("9", 20) + "." + strings.Repeat("9", 12)
	for name, test := range map[string]struct {
		quantity resource.Quantity
		want     string
	}{
		"stored before, with many digits": {
			resource.MustParse("1" + strings.Repeat("0", 200_000)), "Stalled: InvalidSpec: spec.resources.requests.memory is too large a number",
		},
		"stored before, with a long exponent": {resource.MustParse("1e30000000"), "Stalled: InvalidSpec: spec.resources.requests.memory is too large a number"},
		"the longest that are admitted":       {resource.MustParse(longest + "Ei"), "Reconciling: Progressing: The Deployment is being created"},
		"with the largest exponent":           {resource.MustParse(longest + "e99"), "Reconciling: Progressing: The Deployment is being created"},
		"with the smallest exponent":          {resource.MustParse(longest + "e-99"), "Reconciling: Progressing: The Deployment is being created"},
	} {
		t.Run(name, func(t *testing.T) {
			ice := newIcecream(func(ice *v1alpha1.Icecream) {
				ice.Spec.Resources.Requests = corev1.ResourceList{"memory": test.quantity}
			})
			start := time.Now()
			theirs := made(t, newIcecream(), func(d *appsv1.Deployment) { // Nothing bounds the numbers of a Deployment.
				d.Spec.Template.Spec.Containers[0].Resources.Requests = ice.Spec.Resources.Requests
			})
			for _, o := range []Observed{seeing(ice), seeing(ice, made(t, newIcecream(), scaled)), seeing(newIcecream(), theirs)} {
				o, plan := asking(o)
				s := Status(o, plan).Status
				if len(o.Standing.Due) > 0 && o.Live != nil {
					if _, err := o.Patch(o.Standing.Due); err != nil {
						t.Fatal(err)
					}
				}
				if o.Live == nil && verdictOf(s)+": "+messageOf(s) != test.want {
					t.Errorf("got %s: %s, want %s", verdictOf(s), messageOf(s), test.want)
				}
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Nothing is written for an Icecream whose spec cannot be decoded, whatever there is. Its
// status says why, and keeps up with what runs.
func TestUndecodable(t *testing.T) {
	ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec = v1alpha1.IcecreamSpec{} })
	own := func(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		return made(t, newIcecream(calls("cone")), edits...)
	}
	for name, live := range map[string]*appsv1.Deployment{
		"no Deployment":  nil,
		"its Deployment": own(),
		"drift":          own(scaled),
	} {
		t.Run(name, func(t *testing.T) {
			o := seeing(ice)
			o.Undecodable = "spec.image: that is no image"
			if live != nil {
				o.Live, o.Pods = live, podsOf(live, "node-1", "node-2")
			}
			o, plan := asking(o)
			if plan.Asks != nil {
				t.Error("something is written")
			}
			s := Status(o, plan).Status
			if got := verdictOf(s) + ": " + messageOf(s); got != "Stalled: InvalidSpec: The spec cannot be decoded: spec.image: that is no image" {
				t.Errorf("status: %s", got)
			}
			if live != nil && (s.NodeCount != 2 || s.AvailableReplicas != 3) {
				t.Errorf("the status has lost sight of the Deployment: %+v", s)
			}
		})
	}
	deleted := seeing(newIcecream(beingDeleted))
	deleted.Undecodable = "spec.image: that is no image"
	if plan := Decide(deleted); plan.Asks != nil || plan.Held.Reason != "" {
		t.Errorf("while it is being deleted: %+v", plan)
	}
}
