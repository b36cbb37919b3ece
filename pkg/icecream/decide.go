package icecream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Observed is everything that is known about one Icecream at one time, as the
// caches show it. Nothing in it is changed here.
type Observed struct {
	Now        time.Time
	StallAfter time.Duration // how long a trouble may last before the Icecream is Stalled

	Icecream *v1alpha1.Icecream
	Named    *appsv1.Deployment   // the one of the name asked for, whoever owns it; nil when there is none
	Owned    []*appsv1.Deployment // those that the Icecream controls, in any order
	Pods     []Pod                // those that carry the Icecream's label, in any order
}

// Verdict says how a Decision leaves things.
type Verdict int

const (
	// Converged: everything that this controller writes is as it should be.
	// (What others make of it, such as a rollout, may still be under way.)
	Converged Verdict = iota
	// Act: there is something to write.
	Act
	// Wait: nothing can be written now, and somebody is at it already.
	Wait
	// Blocked: nothing can be written until somebody acts.
	Blocked
)

// Decision is what should be written for one Icecream.
type Decision struct {
	Verdict Verdict
	// Reason and Message explain Wait and Blocked.
	Reason, Message string

	// Apply is the Deployment to write. Without a UID it does not exist and is
	// to be created; with one it is to be applied to that very object.
	Apply *appsv1ac.DeploymentApplyConfiguration
	// Claim, unless nil, is what the Deployment's managedFields have to be
	// before Apply can drop what the spec no longer asks for.
	Claim []metav1.ManagedFieldsEntry
	// Delete are Deployments that have been replaced. They are deleted one by
	// one, each under the precondition of its UID and resourceVersion.
	Delete []*appsv1.Deployment
	// Confirm: what is to be done would be wrong for an Icecream that is being
	// deleted, and caches may not show that yet; so ask the API server first.
	Confirm bool

	// Again, when above zero, is when to look again even if nothing changes.
	Again time.Duration
}

// Decide says what should be written now. A spec that cannot be carried out is a
// Blocked decision, not an error.
func Decide(o Observed) Decision {
	if o.Icecream.DeletionTimestamp != nil {
		// What is ours is the garbage collector's now.
		return Decision{Verdict: Converged}
	}
	d := decideDeployment(o)
	if d.Verdict == Converged {
		d = decideLeftBehind(o)
	}
	d.Again = stallsIn(o)
	return d
}

// decideDeployment looks at the Deployment of the name asked for.
func decideDeployment(o Observed) Decision {
	want := desired(o.Icecream)
	live := o.Named
	switch {
	case live == nil:
		// Once a status has been written, the Deployment may be gone because the
		// Icecream is, too.
		return Decision{Verdict: Act, Apply: want, Confirm: o.Icecream.Status.ObservedGeneration > 0}

	case metav1.IsControlledBy(live, o.Icecream) && live.DeletionTimestamp != nil:
		return Decision{
			Verdict: Wait,
			Reason:  v1alpha1.ReasonDeploymentTerminating,
			Message: fmt.Sprintf("Deployment %q is being deleted and will be created again", live.Name),
		}

	case metav1.IsControlledBy(live, o.Icecream):
		stale, claim := leftovers(o.Icecream.Spec.Resources, live)
		if stale || differs(live, want) {
			return Decision{Verdict: Act, Apply: want.WithUID(live.UID), Claim: claim}
		}
		return Decision{Verdict: Converged}

	case isOrphan(o.Icecream, live) && live.DeletionTimestamp == nil:
		// It may have been orphaned on purpose, by a deletion of the Icecream.
		return Decision{Verdict: Act, Apply: want.WithUID(live.UID), Confirm: true}

	default:
		return Decision{
			Verdict: Blocked,
			Reason:  v1alpha1.ReasonErrResourceExists,
			Message: fmt.Sprintf("Resource %q already exists and is not managed by Icecream", live.Name),
		}
	}
}

// decideLeftBehind looks at the Deployments of names asked for before, which may
// go once the present one can take their place.
func decideLeftBehind(o Observed) Decision {
	var remove []*appsv1.Deployment
	for _, d := range leftBehind(o) {
		if d.DeletionTimestamp == nil && isRolledOut(o.Named) {
			remove = append(remove, d)
		}
	}
	if len(remove) == 0 {
		return Decision{Verdict: Converged}
	}
	return Decision{Verdict: Act, Delete: remove, Confirm: true}
}

// leftBehind are the Icecream's Deployments of other names than it asks for, sorted
// by name.
func leftBehind(o Observed) []*appsv1.Deployment {
	var others []*appsv1.Deployment
	for _, d := range o.Owned {
		if d.Name != DeploymentName(o.Icecream) {
			others = append(others, d)
		}
	}
	slices.SortFunc(others, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return others
}

// target is the Icecream's Deployment of the name asked for, or nil.
func target(o Observed) *appsv1.Deployment {
	if o.Named != nil && metav1.IsControlledBy(o.Named, o.Icecream) {
		return o.Named
	}
	return nil
}
