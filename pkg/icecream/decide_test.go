package icecream

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

func scaled(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](9) }

// ownedBy gives the Deployment another controller of the same kind.
func ownedBy(uid types.UID) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = uid }
}

// What the stories in testdata/decisions do not tell.
func TestDecide(t *testing.T) {
	const (
		nothing    = "nothing to do"
		isForeign  = "blocked by ErrResourceExists"
		waitForEnd = "wait for DeploymentTerminating"
	)
	// with returns the Icecream's Deployment of that name ("" for its own), as edited.
	with := func(name string, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		return made(t, newIcecream(calls(name)), edits...)
	}
	for name, test := range map[string]struct {
		ice         *v1alpha1.Icecream
		deployments []*appsv1.Deployment
		want        string
	}{
		"another Icecream's Deployment": {newIcecream(), []*appsv1.Deployment{with("", ownedBy("another"))}, isForeign},
		"an owner is not the controller": {newIcecream(), []*appsv1.Deployment{with("", func(d *appsv1.Deployment) {
			d.OwnerReferences[0].Controller = nil
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{UID: "another", Controller: ptr.To(true)})
		})}, isForeign},
		"an orphan with another selector": {newIcecream(), []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels["flavor"] = "vanilla"
		})}, isForeign},
		"an orphan with an expression in its selector": {newIcecream(), []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "flavor", Operator: metav1.LabelSelectorOpExists}}
		})}, isForeign},
		"an orphan that says somebody else manages it": {newIcecream(), []*appsv1.Deployment{with("", orphaned, func(d *appsv1.Deployment) {
			d.Labels[labelManagedBy] = "Helm"
		})}, isForeign},
		"an orphan that is being deleted": {newIcecream(), []*appsv1.Deployment{with("", orphaned, beingDeleted)}, waitForEnd},
		"an orphan of an Icecream of the same name": {
			newIcecream(hasUID("next")),
			[]*appsv1.Deployment{with("", orphaned)},
			"recheck what is live; update sundae: metadata.ownerReferences",
		},

		"a rename, while the new one is not available": {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", rollingOut)}, nothing},
		"a rename, while the new one is being deleted": {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", beingDeleted)}, waitForEnd},
		"a rename, while the new one has drifted":      {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", scaled)}, "update cone: spec.replicas"},
		"a rename, while the old one is being deleted": {newIcecream(calls("cone")), []*appsv1.Deployment{with("", beingDeleted), with("cone")}, nothing},
		"a rename to an occupied name":                 {newIcecream(calls("cone")), []*appsv1.Deployment{with(""), with("cone", ownedBy("another"))}, isForeign},
		"two renames":                                  {newIcecream(calls("cup")), []*appsv1.Deployment{with(""), with("cone"), with("cup")}, "recheck what is live; delete cone; delete sundae"},

		"being deleted, without a Deployment":  {newIcecream(beingDeleted), nil, nothing},
		"being deleted, with drift":            {newIcecream(beingDeleted), []*appsv1.Deployment{with("", scaled), with("cone")}, nothing},
		"being deleted, with an orphan":        {newIcecream(beingDeleted), []*appsv1.Deployment{with("", orphaned)}, nothing},
		"our own is being deleted, with drift": {newIcecream(), []*appsv1.Deployment{with("", beingDeleted, scaled)}, waitForEnd},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inWordsOf(decide(t, seeing(test.ice, test.deployments...))); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A patch is for the very object that was looked at. An adoption depends on more than the
// UID, so it is for the very version.
func TestPreconditionsOfPatches(t *testing.T) {
	for name, test := range map[string]struct {
		edit      func(*appsv1.Deployment)
		isVersion bool
	}{"a repair": {scaled, false}, "an adoption": {orphaned, true}} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edit)
			var body metav1.PartialObjectMetadata
			if err := json.Unmarshal(decide(t, seeing(newIcecream(), d)).Patch, &body); err != nil {
				t.Fatal(err)
			}
			if body.UID != d.UID || (body.ResourceVersion == d.ResourceVersion) != test.isVersion {
				t.Errorf("UID %q and version %q, of %q and %q", body.UID, body.ResourceVersion, d.UID, d.ResourceVersion)
			}
		})
	}
}

// Nothing is written for an Icecream whose spec cannot be decoded, whatever there is. Its
// status says why, and keeps up with what runs.
func TestUndecodable(t *testing.T) {
	ice := newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Spec, ice.Status.DeploymentName = v1alpha1.IcecreamSpec{}, "cone"
	})
	for name, deployments := range map[string][]*appsv1.Deployment{
		"no Deployment":  nil,
		"its Deployment": {made(t, newIcecream(calls("cone")))},
		"drift":          {made(t, newIcecream(calls("cone")), scaled)},
		"an orphan":      {made(t, newIcecream(calls("cone")), orphaned)},
		"two":            {made(t, newIcecream()), made(t, newIcecream(calls("cone")))},
	} {
		t.Run(name, func(t *testing.T) {
			o := seeing(ice).WithUndecodable("spec.image: that is no image")
			seen := seeing(o.Icecream, deployments...) // of the name in use
			o.Named, o.Owned, o.Pods = seen.Named, seen.Owned, seen.Pods
			plan := decide(t, o)
			if plan.IsWrite() {
				t.Errorf("written: %s", inWordsOf(plan))
			}
			s := Status(o, plan).Status
			if got := verdictOf(s) + ": " + messageOf(s); got != "Stalled: InvalidSpec: The spec cannot be decoded: spec.image: that is no image" {
				t.Errorf("status: %s", got)
			}
			if len(deployments) > 0 && s.NodeCount != 2 || len(o.Owned) > 0 && (s.DeploymentName != "cone" || s.AvailableReplicas != 3) {
				t.Errorf("the status has lost sight of the Deployment: %+v", s)
			}
		})
	}
	deleted := seeing(newIcecream(beingDeleted)).WithUndecodable("spec.image: that is no image")
	if got := inWordsOf(decide(t, deleted)); got != "nothing to do" {
		t.Errorf("while it is being deleted: %s", got)
	}
}
