package icecream

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
)

// Verdict says how a Decision leaves things.
type Verdict int

const (
	// Converged: everything that this controller writes is as it should be, or
	// as near to that as the API server lets it be. (What others make of it, such
	// as a rollout, may still be under way.)
	Converged Verdict = iota
	// Act: there is something to write.
	Act
	// Wait: nothing should be written now, and something is under way.
	Wait
	// Blocked: nothing can be written until somebody acts.
	Blocked
)

// Decision is what should be written for one Icecream.
type Decision struct {
	Verdict Verdict
	// Reason and Message explain Wait and Blocked. With Act, they say why the
	// same was refused before.
	Reason, Message string

	// Children are the objects to write, of any kind, one after the other.
	Children []apply.Child
	// Deletions are the objects to delete after that, of any kind, one after the other.
	// Nothing follows what fails.
	Deletions []apply.Deletion
	// RecheckLive: all this would be wrong for an Icecream that is being deleted, and
	// the caches may not show that yet; so ask the API server first.
	RecheckLive bool
	// IsRetry: the same was refused before, so others may go first.
	IsRetry bool

	// RequeueAfter, if not zero, is when to look again even if nothing changes.
	RequeueAfter time.Duration
}

// Outcome is what came of carrying out a Decision.
type Outcome struct {
	// Written are the Decision's Children as the API server stored them, up to the
	// first that it refused.
	Written []metav1.Object
	// Deleted are the UIDs of the Deletions, up to the first that it refused.
	Deleted []types.UID
	// Err is the API server's refusal; nil if everything was done.
	Err error
}

// deployment returns the Deployment that was written; nil if none was.
func (o Outcome) deployment() *appsv1.Deployment {
	for _, written := range o.Written {
		if d, ok := written.(*appsv1.Deployment); ok {
			return d
		}
	}
	return nil
}

// Decide says what should be written now. A spec that cannot be carried out is a
// Blocked decision, not an error.
func Decide(a Assessment) Decision {
	if a.Icecream.DeletionTimestamp != nil {
		// What is ours now belongs to the garbage collector.
		return Decision{Verdict: Converged}
	}
	if a.Undecodable != "" {
		return Decision{Verdict: Blocked, Reason: v1alpha1.ReasonInvalidSpec, Message: "The spec cannot be decoded: " + a.Undecodable}
	}
	d := a.decideDeployment()
	if d.Verdict == Converged {
		d = a.decideOld()
	}
	if d.Verdict == Act {
		d = a.backOff(d)
	}
	d.RequeueAfter = minRequeue(d.RequeueAfter, a.requeueAfter())
	return d
}

// ownerCheck is how often to look whether a Deployment whose owner is gone still
// has none: if the cache shows the owner later, that is no event of the Deployment.
const ownerCheck = time.Minute

// decideDeployment looks at the Deployment of the name asked for.
func (a Assessment) decideDeployment() Decision {
	live := a.Named
	switch {
	case live == nil:
		// Once a status has been written, the Deployment may be gone because the
		// Icecream is, too.
		return Decision{Verdict: Act, Children: []apply.Child{a.child(nil)}, RecheckLive: a.Icecream.Status.ObservedGeneration > 0}

	case a.target != nil && live.DeletionTimestamp != nil:
		return waitForEnd(live, "Deployment %q is being deleted and will be created again")

	case a.target != nil:
		child := a.child(live)
		if len(child.Drift) == 0 || a.memory.Write.accepts(child) {
			return Decision{Verdict: Converged}
		}
		return Decision{Verdict: Act, Children: []apply.Child{child}}

	case live.DeletionTimestamp != nil:
		return waitForEnd(live, "Deployment %q, which is not managed by this Icecream, is being deleted")

	case a.OwnerIsGone:
		d := waitForEnd(live, "Deployment %q belonged to an Icecream that no longer exists, and is about to be deleted")
		d.RequeueAfter = ownerCheck
		return d

	case isOrphan(a.Icecream, live):
		// It may have been orphaned on purpose, by a deletion of the Icecream.
		return Decision{Verdict: Act, Children: []apply.Child{a.child(live)}, RecheckLive: true}

	default:
		return Decision{
			Verdict: Blocked,
			Reason:  v1alpha1.ReasonErrResourceExists,
			Message: fmt.Sprintf("Resource %q already exists and is not managed by Icecream", live.Name),
		}
	}
}

// waitForEnd waits for a Deployment to be gone, for the reason in format.
func waitForEnd(d *appsv1.Deployment, format string) Decision {
	return Decision{Verdict: Wait, Reason: v1alpha1.ReasonDeploymentTerminating, Message: fmt.Sprintf(format, d.Name)}
}

// decideOld looks at the Deployments of names asked for before, which may go once
// the present one can take their place.
func (a Assessment) decideOld() Decision {
	d := Decision{Verdict: Act, RecheckLive: true}
	for _, old := range a.old {
		if old.DeletionTimestamp == nil && a.isRolledOut {
			d.Deletions = append(d.Deletions, apply.Delete(Deployments, old))
		}
	}
	if len(d.Deletions) == 0 {
		return Decision{Verdict: Converged}
	}
	return d
}

// backOff has a decision wait that was carried out before, if that was refused or
// somebody keeps undoing it.
func (a Assessment) backOff(d Decision) Decision {
	last := lastOf(&a.memory, d)
	if last.Want == "" || last.Want != d.want() {
		return d
	}
	wait := last.wait(a.Now)
	switch {
	case last.Reason != "" && wait > 0:
		return Decision{Verdict: refused(last.Reason), Reason: last.Reason, Message: last.Message, RequeueAfter: wait}
	case last.Reason != "":
		d.Reason, d.Message, d.IsRetry = last.Reason, last.Message, true
		return d
	case wait > 0:
		return Decision{Verdict: Wait, Reason: v1alpha1.ReasonDeploymentContested, Message: cmp.Or(last.Contest, d.contest(a.Named)), RequeueAfter: wait}
	default:
		return d
	}
}

// refused returns the verdict for as long as a write that was refused for that reason
// is not to be repeated yet.
func refused(reason string) Verdict {
	if reason == v1alpha1.ReasonInvalidSpec {
		return Blocked
	}
	return Wait
}

// Postponed returns the decision to wait instead, so that others go first with what was
// refused before.
func (d Decision) Postponed() Decision {
	return Decision{Verdict: refused(d.Reason), Reason: d.Reason, Message: d.Message, RequeueAfter: d.RequeueAfter}
}

// want returns a fingerprint of what the decision writes, whichever objects it is
// written to.
func (d Decision) want() string {
	if len(d.Children) > 0 {
		return wantOf(d.Children...)
	}
	var uids []types.UID
	for _, old := range d.Deletions {
		uids = append(uids, old.UID)
	}
	return fingerprintOf(uids)
}

func wantOf(children ...apply.Child) string {
	var wants []apply.Configuration
	for _, child := range children {
		wants = append(wants, child.Want)
	}
	return fingerprintOf(wants)
}

// drift returns what the decision is to repair.
func (d Decision) drift() (drift []apply.Difference) {
	for _, child := range d.Children {
		drift = append(drift, child.Drift...)
	}
	return drift
}

// contest says who has changed in live what the decision is to repair.
func (d Decision) contest(live *appsv1.Deployment) string {
	if live == nil {
		return fmt.Sprintf("Deployment %q keeps being deleted; the controller waits longer each time before it creates it again", *d.Children[0].Want.GetName())
	}
	drift := d.drift()
	var fields []string
	for _, f := range drift {
		fields = append(fields, f.Field)
	}
	what := "Deployment " + live.Name
	if len(fields) > 0 {
		what = fmt.Sprintf("%s of Deployment %q", strings.Join(fields, ", "), live.Name)
	}
	who := cmp.Or(strings.Join(owner.OthersIn(live, drift), ", "), "Somebody")
	return clip(fmt.Sprintf("%s keeps changing %s; the controller waits longer each time before it repairs that", who, what), maxMessage)
}

// requeueAfter returns when something changes by the mere passing of time; zero if
// nothing does.
func (a Assessment) requeueAfter() time.Duration {
	var next time.Duration
	if left, never := a.memory.stallsIn(a.Now); !never {
		next = left
	}
	if !a.memory.Gone.IsZero() {
		next = minRequeue(next, a.memory.settledAt(a.Now).Add(a.StallAfter).Sub(a.Now))
	}
	if a.memory.Write.isContested(a.Now) {
		next = minRequeue(next, a.memory.Write.wait(a.Now))
	}
	return next
}

// minRequeue returns the shorter of two delays, of which zero means none.
func minRequeue(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
