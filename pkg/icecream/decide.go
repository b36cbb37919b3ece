package icecream

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// Decision is what should be written for one Icecream. Package children has what is the
// same for all children of any owner.
type Decision = children.Decision

// Outcome is what came of a Decision.
type Outcome = children.Outcome

// rules are what decisions about any child of an Icecream have in common.
var rules = children.Rules{
	Owner: owner,
	Kind:  "Icecream",
	Reasons: children.Reasons{
		Terminating: v1alpha1.ReasonDeploymentTerminating,
		Exists:      v1alpha1.ReasonErrResourceExists,
		Invalid:     v1alpha1.ReasonInvalidSpec,
		Refused:     v1alpha1.ReasonDeploymentRefused,
		Contested:   v1alpha1.ReasonDeploymentContested,
		Created:     v1alpha1.ReasonDeploymentCreated,
		Adopted:     v1alpha1.ReasonDeploymentAdopted,
		Updated:     v1alpha1.ReasonDeploymentUpdated,
		Altered:     v1alpha1.ReasonDeploymentAltered,
	},
}

// deploymentOf returns the Deployment that was written; nil if none was.
func deploymentOf(out Outcome) *appsv1.Deployment {
	for _, written := range out.Written {
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
		return Decision{Verdict: children.Converged}
	}
	if a.Undecodable != "" {
		return Decision{Verdict: children.Blocked, Reason: v1alpha1.ReasonInvalidSpec, Message: "The spec cannot be decoded: " + a.Undecodable}
	}
	d := rules.Decide(a.need())
	if d.Verdict == children.Converged {
		d = a.decideOld(d)
	}
	d = rules.BackOff(d, *lastOf(&a.memory, d), a.live(), a.Now)
	d.RequeueAfter = backoff.MinRequeue(d.RequeueAfter, a.requeueAfter())
	return d
}

// need returns the Deployment of the name asked for as an object that the Icecream needs.
func (a Assessment) need() children.Need {
	ice := a.Icecream
	return children.Need{
		Kind:        "Deployment",
		Child:       func() apply.Child { return apply.Child{Resource: Deployments, Want: desired(ice)} },
		From:        &ice.Spec,
		Live:        a.live(),
		IsOwned:     a.target != nil,
		IsOrphan:    a.Named != nil && isOrphan(ice, a.Named),
		OwnerIsGone: a.OwnerIsGone,
		WasReported: ice.Status.ObservedGeneration > 0,
		Last:        a.memory.Write,
	}
}

// live returns the Deployment of the name asked for, whoever owns it; nil if there is none.
func (a Assessment) live() metav1.Object {
	if a.Named == nil {
		return nil
	}
	return a.Named
}

// decideOld looks at the Deployments of names asked for before, which may go once
// the present one can take their place. Without any, the decision about that one stands.
func (a Assessment) decideOld(converged Decision) Decision {
	d := Decision{Verdict: children.Act, Kind: "Deployment", RecheckLive: true}
	for _, old := range a.old {
		if old.DeletionTimestamp == nil && a.isRolledOut {
			d.Deletions = append(d.Deletions, apply.Delete(Deployments, old))
		}
	}
	if len(d.Deletions) == 0 {
		return converged
	}
	return d
}

// requeueAfter returns when something changes by the mere passing of time; zero if
// nothing does.
func (a Assessment) requeueAfter() time.Duration {
	next := a.memory.RequeueAfter(a.Now, a.StallAfter)
	if a.memory.Write.IsContested(a.Now) {
		next = backoff.MinRequeue(next, a.memory.Write.Wait(a.Now))
	}
	return next
}
