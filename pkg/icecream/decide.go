// What should be written. Read Observed and Plan, then Decide. status.go comes next.

package icecream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

// Observed is what is known about one Icecream. Nothing in this package changes the objects that it points to.
type Observed struct {
	Now      time.Time
	Icecream *v1alpha1.Icecream
	// Undecodable says why the spec could not be decoded. If it is set, Icecream.Spec is empty and means nothing.
	Undecodable string
	// Live is the Deployment that the Icecream names, even if something else owns it; nil if there is none. While the spec
	// cannot be decoded, Live is the Deployment that the Icecream owns.
	Live *appsv1.Deployment
	// Older is an older Icecream that asks for the same Deployment and is not being deleted; nil if there is none.
	Older *v1alpha1.Icecream
	Pods  []Pod        // with the Icecream's label, in any order; ofDeployment, in pods.go, says which of them count
	Last  pace.Attempt // this process's last write of the Deployment
}

// Plan is what should be written for one Icecream, or why nothing can be.
type Plan struct {
	// Apply sets the whole Deployment. It is nil if there is nothing to apply: an annotation of the Deployment has the
	// digest of this Apply, and nobody has changed or removed a field that it sets. It is also nil if Held is set.
	Apply *patch.Request
	// Scale sets only the replicas; it is possible even if Held is set. Beside an Apply, it is sent only after that was
	// refused, or has failed for ten seconds.
	Scale *patch.Request
	Wish  pace.Wish          // identifies what the requests ask for
	Wait  time.Duration      // until they can be sent; 0 is now
	Held  kstatus.Conclusion // why Apply is impossible; otherwise the zero value
}

// IsOpen reports whether there is something to write, now or later.
func (p Plan) IsOpen() bool { return p.Apply != nil || p.Scale != nil }

// Decide returns what should be written.
func Decide(o Observed) Plan {
	if o.Undecodable != "" {
		return invalidSpec("The spec cannot be decoded: " + o.Undecodable)
	}
	switch ice, live := o.Icecream, o.Live; {
	case live == nil && o.Older != nil:
		return held(v1alpha1.ReasonErrResourceExists,
			"Icecream %q, which is older, asks for the same Deployment %q; use another spec.deploymentName", o.Older.Name, DeploymentName(ice))

	case live != nil && live.DeletionTimestamp != nil:
		return held(v1alpha1.ReasonDeploymentTerminating, "Waiting for Deployment %q to be deleted%s", live.Name, heldBy(live))

	case live == nil, IsControlledBy(live, ice), isOrphan(live, ice): // Nobody controls an orphan, and its selector is this Icecream's.
		return o.plan()

	case isLeftover(live, ice): // A deleted Icecream of this name owns it.
		return held(v1alpha1.ReasonDeploymentTerminating, "Waiting for the garbage collector to delete Deployment %q of a former Icecream",
			live.Name)

	default:
		return held(v1alpha1.ReasonErrResourceExists, "Deployment %q already exists and is %s", live.Name, takenBy(live))
	}
}

// plan returns the requests that make the Deployment as the Icecream asks for it. If the spec is invalid or refused,
// the replicas are still scaled, but not from zero, because that would start an old image.
func (o Observed) plan() (p Plan) {
	want, err := NewDeployment(o.Icecream)
	if err == nil {
		p.Wish, p.Apply, err = patch.Apply(FieldManager, o.Live, want)
	}
	if err != nil {
		p = invalidSpec(err.Error())
	}
	p.Wish.Scale = replicasOf(o.Icecream)
	// From zero only if the spec is valid and nothing else is left to apply.
	if d := o.Own(); d != nil && (replicas(d) > 0 || p.Apply == nil && err == nil) {
		p.Scale = patch.Scale(FieldManager, d, replicas(d), p.Wish.Scale)
	}
	if p.IsOpen() {
		p.Wait = o.Last.Wait(p.Wish, o.Now)
	}
	return p
}

func invalidSpec(message string) Plan {
	message = text.Clip(message, maxMessage) // A decoder quotes what it cannot decode.
	return Plan{Held: kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: message}}
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

// takenBy says what owns a Deployment that is not this Icecream's, and what to do about it.
func takenBy(d *appsv1.Deployment) string {
	if owner := metav1.GetControllerOfNoCopy(d); owner != nil {
		return fmt.Sprintf("owned by %s %q; use another spec.deploymentName", owner.Kind, owner.Name)
	}
	return "not owned by this Icecream; delete it, or use another spec.deploymentName"
}

// IsOlder reports whether a was created before b. Within one second, their UIDs decide.
func IsOlder(a, b *v1alpha1.Icecream) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID))) < 0
}
