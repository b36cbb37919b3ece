package icecream

import (
	"iter"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Observed is everything that goes into a decision about one Icecream: what the
// caches show at one time, and what this process remembers. Nothing in it is
// changed here.
type Observed struct {
	Now time.Time
	// StallAfter is how long a trouble may last before the Icecream is Stalled,
	// and how long it must have been well after a crash before it is Ready.
	StallAfter time.Duration

	Icecream *v1alpha1.Icecream
	// Undecodable says why the Icecream's spec could not be decoded; empty if it
	// was. The spec is then not what it asks for.
	Undecodable string
	Named       *appsv1.Deployment   // the one of the name asked for, whoever owns it; nil when there is none
	Owned       []*appsv1.Deployment // those that the Icecream controls, in any order
	Pods        []Pod                // those that carry the Icecream's label, in any order
	// OwnerIsGone reports that Named is controlled by an Icecream that no longer
	// exists, so that the garbage collector is about to delete it.
	OwnerIsGone bool

	Memory Memory
}

// Assessment is what is known about one Icecream, worked out once: the decision
// and the status both read it.
type Assessment struct {
	Observed

	target     *appsv1.Deployment   // the Icecream's Deployment of the name asked for, or nil
	old        []*appsv1.Deployment // its Deployments of other names, sorted by name
	isComplete bool                 // nothing is left to do for anybody
	memory     Memory               // Observed.Memory with what is seen now
	left       []Difference         // what the API server stored otherwise than it was just requested to
}

// Assess works out what is known about an Icecream.
func Assess(o Observed) Assessment {
	a := Assessment{Observed: o}
	if o.Named != nil && metav1.IsControlledBy(o.Named, o.Icecream) {
		a.target = o.Named
	}
	for _, d := range o.Owned {
		if d.Name != DeploymentName(o.Icecream) {
			a.old = append(a.old, d)
		}
	}
	slices.SortFunc(a.old, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	a.isComplete = a.hasNothingLeft()
	a.memory = a.notice()
	return a
}

// after is what is known once the Deployment of the name asked for has become
// what the API server answered to a write.
func (a Assessment) after(out Outcome) Assessment {
	if out.Deployment == nil {
		return a
	}
	o := a.Observed
	o.Named = out.Deployment
	o.Owned = append(slices.Clone(a.old), out.Deployment)
	return Assess(o)
}

// hasNothingLeft reports whether nothing is left to do for anybody. It asks the Pods
// as well as the Deployment, so that an Icecream is never Ready with nodes missing
// from its status because one cache was ahead of the other.
func (a Assessment) hasNothingLeft() bool {
	if a.target == nil || len(a.old) > 0 || !isRolledOut(a.target) {
		return false
	}
	label := LabelValue(a.target.Name)
	var placed, ready int32
	for _, pod := range a.Pods {
		if pod.Deployment != label {
			continue
		}
		if pod.Node != "" {
			placed++
		}
		if pod.Ready {
			ready++
		}
	}
	return placed == a.target.Status.Replicas && ready == a.target.Status.Replicas
}

// current are the Pods of the Deployment asked for that are made from the current
// spec.
func (a Assessment) current() iter.Seq[Pod] {
	label, hash := LabelValue(a.target.Name), specHash(a.Icecream.Spec)
	return func(yield func(Pod) bool) {
		for _, pod := range a.Pods {
			if pod.Deployment == label && pod.SpecHash == hash && !yield(pod) {
				return
			}
		}
	}
}

// isTerminating reports whether all of these Deployments are being deleted.
func isTerminating(deployments []*appsv1.Deployment) bool {
	return !slices.ContainsFunc(deployments, func(d *appsv1.Deployment) bool { return d.DeletionTimestamp == nil })
}
