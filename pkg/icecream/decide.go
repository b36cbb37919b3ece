// What should be written. Read Observed and Plan, then Decide. deployment.go comes next.

package icecream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// Observed is what is known of one Icecream. Nothing in this package changes the objects that it points
// to.
type Observed struct {
	Now      time.Time
	Icecream *v1alpha1.Icecream
	// Undecodable says why the Icecream's spec could not be decoded; empty if it could. The decoded
	// spec is then empty and means nothing.
	Undecodable string
	// Live is the Deployment with the name that the Icecream asks for, even if somebody else owns it.
	// While the spec cannot be decoded, it is the one that the Icecream owns. It can be nil.
	Live *appsv1.Deployment
	// Older is an Icecream that asks for the same Deployment, was created before this one and is not
	// being deleted; nil if there is none.
	Older *v1alpha1.Icecream
	Pods  []Pod        // with the Icecream's label, in any order
	Last  pace.Attempt // the last write of the Deployment by this process
}

// Plan is what should be written for one Icecream, or why nothing can be.
type Plan struct {
	Want *appsv1.Deployment // as it should be; nil if there is nothing to write
	Wish pace.Wish          // identifies what Want asks for
	Wait time.Duration      // until Want can be written; without Want, until altered replicas are asked for again
	Held kstatus.Conclusion // why nothing can be written; otherwise the zero value
}

// Decide returns what should be written.
func Decide(o Observed) Plan {
	if why := o.invalid(); why != "" {
		return Plan{Held: kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: why}}
	}
	switch ice, live := o.Icecream, o.Live; {
	case live == nil && o.Older != nil:
		return held(v1alpha1.ReasonErrResourceExists,
			"Icecream %q, which is older, asks for the same Deployment %q; use another spec.deploymentName", o.Older.Name, DeploymentName(ice))

	case live == nil:
		return o.plan(NewDeployment(ice))

	case live.DeletionTimestamp != nil:
		return held(v1alpha1.ReasonDeploymentTerminating, "Waiting for Deployment %q to be deleted%s", live.Name, heldBy(live))

	case IsControlledBy(live, ice), isOrphan(live, ice):
		want := o.wanted(live)
		if !equality.Semantic.DeepEqual(live, want) {
			return o.plan(want)
		}
		if replicas(live) != replicasOf(ice) {
			return Plan{Wait: o.untilAskedAgain()}
		}
		return Plan{}

	case isOfFormer(live, ice):
		return held(v1alpha1.ReasonDeploymentTerminating, "Waiting for the garbage collector to delete Deployment %q of a former Icecream",
			live.Name)

	default:
		return held(v1alpha1.ReasonErrResourceExists, "Deployment %q already exists and is %s", live.Name, takenBy(live))
	}
}

// invalid returns why nothing can be decided from the spec; empty if that is possible.
func (o Observed) invalid() string {
	if o.Undecodable != "" {
		return "The spec cannot be decoded: " + o.Undecodable
	}
	if field := oversized(o.Icecream.Spec.Resources); field != "" {
		return field + " is too large a number"
	}
	return ""
}

// plan returns the plan to write want, at once or when the last attempt allows it.
func (o Observed) plan(want *appsv1.Deployment) Plan {
	wish := wishOf(o.Icecream)
	return Plan{Want: want, Wish: wish, Wait: o.Last.Wait(wish, o.Now)}
}

// wanted returns the live Deployment as it should be. It keeps what admission policies and webhooks made of the same
// wish, because they would change it again.
func (o Observed) wanted(live *appsv1.Deployment) *appsv1.Deployment {
	want := live.DeepCopy()
	setDeployment(want, o.Icecream)
	asked := want.Annotations[AnnotationAsked]
	if live.Annotations[AnnotationAsked] == asked {
		keepDigest(want, live)
	}
	made, isAltered := o.Last.Made.(*appsv1.Deployment)
	if !isAltered || made.UID != live.UID || o.Last.MadeOf.Digest != asked {
		return want
	}
	if equality.Semantic.DeepEqual(made.Spec.Template, live.Spec.Template) {
		want.Spec.Template = live.Spec.Template
	}
	if equality.Semantic.DeepEqual(made.Labels, live.Labels) && equality.Semantic.DeepEqual(made.Annotations, live.Annotations) {
		want.Labels, want.Annotations = live.Labels, live.Annotations
	}
	isSame := o.Last.MadeOf.Scale == replicasOf(o.Icecream) && replicas(made) == replicas(live)
	if isSame && o.untilAskedAgain() > 0 {
		want.Spec.Replicas = live.Spec.Replicas
	}
	return want
}

// untilAskedAgain returns how long to accept altered replicas: until an hour after the last write. The policy that set
// them can be gone by then.
func (o Observed) untilAskedAgain() time.Duration { return o.Last.At.Add(time.Hour).Sub(o.Now) }

// Made returns what admission has made of an accepted write; nil if it has altered nothing that is the Icecream's.
func Made(stored *appsv1.Deployment, ice *v1alpha1.Icecream) runtime.Object {
	stored = stripped(stored)
	if equality.Semantic.DeepEqual(stored, Observed{Icecream: ice}.wanted(stored)) {
		return nil
	}
	return stored
}

// Scaled returns the live Deployment with want's replicas, to be written if the rest cannot be. It returns nil if the
// Icecream does not own it, if the replicas are equal, or if there are none: an old image must not start.
func (o Observed) Scaled(want *appsv1.Deployment) *appsv1.Deployment {
	if d := o.Own(); d == nil || replicas(d) == replicas(want) || replicas(d) == 0 {
		return nil
	}
	scaled := o.Live.DeepCopy()
	scaled.Spec.Replicas = want.Spec.Replicas
	return scaled
}

// held returns the plan to write nothing, for a reason that may pass without an edit.
func held(reason, format string, args ...any) Plan {
	return Plan{Held: reconciling(reason, format, args...)}
}

// heldBy describes the finalizers that hold a Deployment that is being deleted; empty if there are none.
func heldBy(d *appsv1.Deployment) string {
	if len(d.Finalizers) == 0 {
		return ""
	}
	return " (finalizers: " + strings.Join(d.Finalizers, ", ") + ")"
}

// takenBy says who owns a Deployment that is not this Icecream's, and what to do about that.
func takenBy(d *appsv1.Deployment) string {
	if owner := metav1.GetControllerOfNoCopy(d); owner != nil {
		return fmt.Sprintf("owned by %s %q; use another spec.deploymentName", owner.Kind, owner.Name)
	}
	return "not owned by this Icecream; delete it, or use another spec.deploymentName"
}

// IsOlder reports whether an Icecream was created before another one. Of two in the same second, it
// is the one whose UID comes first.
func IsOlder(a, b *v1alpha1.Icecream) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID))) < 0
}
