package icecream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// Nothing is written for an Icecream whose spec nobody can decode, whatever there is.
// Its status says why, and keeps up with what runs.
func TestUndecodable(t *testing.T) {
	const why = "spec.image: that is no image"
	ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec = v1alpha1.IcecreamSpec{} })
	other := made(t, newIcecream())
	other.OwnerReferences = nil
	other.Labels = nil
	for name, deployments := range map[string][]*appsv1.Deployment{
		"no Deployment yet":      nil,
		"its Deployment":         {made(t, newIcecream())},
		"one of another name":    {made(t, newIcecream(calls("cone")))},
		"somebody else's":        {other},
		"an orphan":              {func() *appsv1.Deployment { d := made(t, newIcecream()); orphaned(d); return d }()},
		"one that has drifted":   {func() *appsv1.Deployment { d := made(t, newIcecream()); d.Spec.Replicas = ptr.To[int32](9); return d }()},
		"one that is to be gone": {func() *appsv1.Deployment { d := made(t, newIcecream()); beingDeleted(d); return d }()},
	} {
		t.Run(name, func(t *testing.T) {
			o := world(ice, deployments...)
			o.Undecodable = why
			a := Assess(o)
			d := Decide(a)
			want := Decision{Verdict: children.Blocked, Reason: v1alpha1.ReasonInvalidSpec, Message: "The spec cannot be decoded: " + why}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			s, news := statusAfter(a, d, Outcome{})
			if stalled := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled); stalled.Status != metav1.ConditionTrue || stalled.Reason != want.Reason || stalled.Message != want.Message {
				t.Errorf("Stalled is %+v", stalled)
			}
			if len(o.Owned) > 0 && (s.DeploymentName != o.Owned[0].Name || s.AvailableReplicas != o.Owned[0].Status.AvailableReplicas || s.AvailableReplicas == 0) {
				t.Errorf("the status has lost sight of %q: %+v", o.Owned[0].Name, s)
			}
			o.Icecream = ice.DeepCopy()
			o.Icecream.Status = s
			if _, more := statusOf(o, d, Outcome{}); len(more) > 0 {
				t.Errorf("first it tells %+v, and then %+v", news, more)
			}
		})
	}
}

// The deletion of an Icecream is the garbage collector's work, as that of any other.
func TestUndecodableAndBeingDeleted(t *testing.T) {
	ice := newIcecream()
	beingDeleted(ice)
	o := world(ice)
	o.Undecodable = "spec.image: that is no image"
	if d := Decide(Assess(o)); d.Verdict != children.Converged {
		t.Errorf("%+v, want Converged", d)
	}
}
