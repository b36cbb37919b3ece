// What should be written. Read Observed and Plan, then Decide: it is the rules, and knows nothing of
// the past. write.go comes next, then status.go.

package icecream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

// Observed is what is known of one Icecream: what the caches show, and what this process
// remembers. Nothing in this package changes the objects that it points to.
type Observed struct {
	Now time.Time

	Icecream *v1alpha1.Icecream
	// Undecodable says why the Icecream's spec could not be decoded; empty if it could. The
	// decoded spec is then empty and means nothing.
	Undecodable string
	// Live is the Deployment with the name that the Icecream asks for, even if somebody else
	// owns it. While the spec cannot be decoded, it is the one that the Icecream owns. It can
	// be nil.
	Live *appsv1.Deployment
	// OwnerIsGone reports that Live is controlled by an Icecream that no longer exists, so
	// the garbage collector is about to delete it.
	OwnerIsGone bool
	// Older is an Icecream that asks for a Deployment of the same name, was created before this
	// one and is not being deleted; nil if there is none.
	Older *v1alpha1.Icecream
	Pods  []Pod // with the Icecream's label, in any order

	// Memory is from the last sync. Standing is what the ledger says about the plan's asks: before
	// the writes, which of them are due, and afterwards, what came of them.
	Memory   Memory
	Standing ledger.Standing

	shape *bool // what hasShape has found; nil if it was not asked yet
}

// Plan is what should be written for one Icecream, or why nothing can be.
type Plan struct {
	// Asks are what the Icecream asks for, by part: Shape, then Replicas; none if nothing can be asked
	// for now. The ledger says which of them are due.
	Asks []ledger.Ask
	// Adopts means that the live Deployment becomes the Icecream's.
	Adopts bool
	// Held says why there are no asks; empty if the Icecream is being deleted.
	Held kstatus.Conclusion
	// RequeueAfter is when to sync again even if nothing changes; 0 means never.
	RequeueAfter time.Duration
}

// stalled returns the conclusion that only an edit of the Icecream will help, or that the deadline has
// passed.
func stalled(reason, message string) kstatus.Conclusion {
	return kstatus.Conclusion{State: kstatus.Stalled, Reason: reason, Message: message}
}

// reconciling returns the conclusion that the Icecream may still become Ready without an edit. If that
// takes too long, it is Stalled (see conclude).
func reconciling(reason, message string) kstatus.Conclusion {
	return kstatus.Conclusion{State: kstatus.Reconciling, Reason: reason, Message: message}
}

// ownerCheck is how often to check whether the owner of a Deployment is still missing. If the
// cache shows the owner later, that is no event of the Deployment.
const ownerCheck = time.Minute

// Decide returns what should be written.
func Decide(o Observed) Plan {
	if o.Icecream.DeletionTimestamp != nil {
		return Plan{} // Its Deployment is left to the garbage collector.
	}
	if why := o.invalid(); why != "" {
		return Plan{Held: stalled(v1alpha1.ReasonInvalidSpec, why)}
	}
	switch ice, live := o.Icecream, o.Live; {
	case live == nil && o.Older != nil:
		message := fmt.Sprintf("Icecream %q, which is older, asks for the same Deployment %q; use another spec.deploymentName",
			o.Older.Name, DeploymentName(ice))
		return Plan{Held: reconciling(v1alpha1.ReasonErrResourceExists, message)}

	case live == nil:
		return Plan{Asks: o.Asks()}

	case IsControlledBy(live, ice) && live.DeletionTimestamp != nil:
		return waitFor("Waiting for Deployment %q to be deleted%s; it will then be created again", live.Name, heldBy(live))

	case IsControlledBy(live, ice):
		return Plan{Asks: o.Asks()}

	case live.DeletionTimestamp != nil:
		return waitFor("Waiting for Deployment %q, which is not owned by this Icecream, to be deleted%s", live.Name, heldBy(live))

	case o.OwnerIsGone:
		plan := waitFor("Waiting for the garbage collector to delete Deployment %q, whose Icecream no longer exists", live.Name)
		plan.RequeueAfter = ownerCheck
		return plan

	case isOrphan(ice, live):
		return Plan{Asks: o.Asks(), Adopts: true}

	default:
		message := fmt.Sprintf("Deployment %q already exists and is not owned by this Icecream; delete it, or use another spec.deploymentName",
			live.Name)
		if owner := metav1.GetControllerOfNoCopy(live); owner != nil {
			message = fmt.Sprintf("Deployment %q already exists and is owned by %s %q; use another spec.deploymentName",
				live.Name, owner.Kind, owner.Name)
		}
		return Plan{Held: reconciling(v1alpha1.ReasonErrResourceExists, message)}
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

// waitFor returns the plan to wait until a Deployment is gone.
func waitFor(format string, args ...any) Plan {
	return Plan{Held: reconciling(v1alpha1.ReasonDeploymentTerminating, fmt.Sprintf(format, args...))}
}

// heldBy describes the finalizers that hold a Deployment that is being deleted; empty if
// there are none.
func heldBy(d *appsv1.Deployment) string {
	if len(d.Finalizers) == 0 {
		return ""
	}
	return " (finalizers: " + strings.Join(d.Finalizers, ", ") + ")"
}

// IsOlder reports whether an Icecream was created before another one. Of two in the same second, it
// is the one whose UID comes first.
func IsOlder(a, b *v1alpha1.Icecream) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(string(a.UID), string(b.UID))) < 0
}
