package icecream

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
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

	// Apply is the Deployment to write. Without a UID it does not exist and is
	// to be created; with one it is to be applied to that very object.
	Apply *appsv1ac.DeploymentApplyConfiguration
	// Claim, unless nil, is what the Deployment's managedFields have to be
	// before Apply can drop what the spec no longer asks for.
	Claim []metav1.ManagedFieldsEntry
	// Drift is what Apply is to set right in an existing Deployment.
	Drift []Difference
	// Delete are Deployments that have been replaced. They are deleted one by
	// one, each under the precondition of its UID and resourceVersion.
	Delete []*appsv1.Deployment
	// Confirm: what is to be done would be wrong for an Icecream that is being
	// deleted, and caches may not show that yet; so ask the API server first.
	Confirm bool
	// IsRetry: the same was refused before, so others may go first.
	IsRetry bool

	// Again, when above zero, is when to look again even if nothing changes.
	Again time.Duration
}

// Decide says what should be written now. A spec that cannot be carried out is a
// Blocked decision, not an error.
func Decide(a Assessment) Decision {
	if a.Icecream.DeletionTimestamp != nil {
		// What is ours is the garbage collector's now.
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
		d = a.patient(d)
	}
	d.Again = soonest(d.Again, a.again())
	return d
}

// ownerCheck is how often to look whether a Deployment whose owner is gone still
// has none: an owner that the cache had not shown yet is no event of the
// Deployment.
const ownerCheck = time.Minute

// decideDeployment looks at the Deployment of the name asked for.
func (a Assessment) decideDeployment() Decision {
	want := desired(a.Icecream)
	live := a.Named
	switch {
	case live == nil:
		// Once a status has been written, the Deployment may be gone because the
		// Icecream is, too.
		return Decision{Verdict: Act, Apply: want, Confirm: a.Icecream.Status.ObservedGeneration > 0}

	case a.target != nil && live.DeletionTimestamp != nil:
		return waitForEnd(live, "Deployment %q is being deleted and will be created again")

	case a.target != nil:
		drift, claim := driftOf(live, want, a.Icecream.Spec.Resources)
		if len(drift) == 0 || a.memory.Write.accepts(want, live.UID, drift) {
			return Decision{Verdict: Converged}
		}
		return Decision{Verdict: Act, Apply: want.WithUID(live.UID), Claim: claim, Drift: drift}

	case live.DeletionTimestamp != nil:
		return waitForEnd(live, "Deployment %q, which is not managed by this Icecream, is being deleted")

	case a.OwnerIsGone:
		d := waitForEnd(live, "Deployment %q belonged to an Icecream that no longer exists, and is about to be deleted")
		d.Again = ownerCheck
		return d

	case isOrphan(a.Icecream, live):
		// It may have been orphaned on purpose, by a deletion of the Icecream.
		drift, claim := driftOf(live, want, a.Icecream.Spec.Resources)
		return Decision{Verdict: Act, Apply: want.WithUID(live.UID), Claim: claim, Drift: drift, Confirm: true}

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
	var remove []*appsv1.Deployment
	for _, d := range a.old {
		if d.DeletionTimestamp == nil && isRolledOut(a.Named) {
			remove = append(remove, d)
		}
	}
	if len(remove) == 0 {
		return Decision{Verdict: Converged}
	}
	return Decision{Verdict: Act, Delete: remove, Confirm: true}
}

// patient has a decision wait that was carried out before, if that was refused or
// somebody keeps undoing it.
func (a Assessment) patient(d Decision) Decision {
	last := lastOf(&a.memory, d)
	if last.Want == "" || last.Want != d.want() {
		return d
	}
	wait := last.wait(a.Now)
	switch {
	case last.Reason != "" && wait > 0:
		return Decision{Verdict: refused(last.Reason), Reason: last.Reason, Message: last.Message, Again: wait}
	case last.Reason != "":
		d.Reason, d.Message, d.IsRetry = last.Reason, last.Message, true
		return d
	case wait > 0:
		return Decision{Verdict: Wait, Reason: v1alpha1.ReasonDeploymentContested, Message: cmp.Or(last.Contest, d.contest(a.Named)), Again: wait}
	default:
		return d
	}
}

// refused is the verdict while a write that was refused for that reason is not to
// be repeated yet.
func refused(reason string) Verdict {
	if reason == v1alpha1.ReasonInvalidSpec {
		return Blocked
	}
	return Wait
}

// Later is the decision of someone who has to let others go first.
func (d Decision) Later() Decision {
	return Decision{Verdict: refused(d.Reason), Reason: d.Reason, Message: d.Message, Again: d.Again}
}

// want is a fingerprint of what the decision writes, whichever object it is
// written to.
func (d Decision) want() string {
	if d.Apply != nil {
		anywhere := *d.Apply.ObjectMetaApplyConfiguration
		anywhere.UID = nil
		apply := *d.Apply
		apply.ObjectMetaApplyConfiguration = &anywhere
		return fingerprintOf(apply)
	}
	var uids []string
	for _, old := range d.Delete {
		uids = append(uids, string(old.UID))
	}
	return fingerprintOf(uids)
}

// again is when something changes by the mere passing of time; zero if nothing
// does.
func (a Assessment) again() time.Duration {
	var next time.Duration
	if left, never := a.memory.stallsIn(a.Now); !never {
		next = left
	}
	if !a.memory.Gone.IsZero() {
		next = soonest(next, a.memory.settledAt(a.Now).Add(a.StallAfter).Sub(a.Now))
	}
	if a.memory.Write.isContested(a.Now) {
		next = soonest(next, a.memory.Write.wait(a.Now))
	}
	return next
}

// soonest is the shorter of two delays, of which zero means none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
