package icecream

import (
	"iter"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Observed is everything that goes into a decision about one Icecream: what the
// caches show at one time, and what this process remembers. Nothing in it is
// changed here.
type Observed struct {
	Now time.Time
	// StallAfter is how long a problem may last before the Icecream is Stalled, and how
	// long the Icecream must have been complete after a crash before it is Ready.
	StallAfter time.Duration

	Icecream *v1alpha1.Icecream
	// Undecodable says why the Icecream's spec could not be decoded; empty if it
	// was. The spec is then not what it asks for.
	Undecodable string
	Named       *appsv1.Deployment   // the one of the name asked for, whoever owns it; nil if there is none
	Owned       []*appsv1.Deployment // those that the Icecream controls, in any order
	Pods        []Pod                // those that carry the Icecream's label, in any order
	// OwnerIsGone reports that Named is controlled by an Icecream that no longer
	// exists, so that the garbage collector is about to delete it.
	OwnerIsGone bool

	Memory Memory
}

// WithUndecodable returns what is observed of an Icecream whose spec cannot be decoded, for
// that reason. What it asks for is unknown, but not what it has.
func (o Observed) WithUndecodable(why string) Observed {
	o.Undecodable = why
	o.Icecream = o.Icecream.DeepCopy()
	o.Icecream.Spec.DeploymentName = o.Icecream.Status.DeploymentName
	return o
}

// WithChild returns what is observed with an object that exists: one that the Icecream
// controls, or that has the name of a child that it asks for. ownerIsGone reports that it
// is controlled by an Icecream that no longer exists.
func (o Observed) WithChild(_ schema.GroupVersionResource, child metav1.Object, ownerIsGone bool) Observed {
	d, ok := child.(*appsv1.Deployment)
	if !ok {
		return o
	}
	if d.Name == DeploymentName(o.Icecream) {
		o.Named, o.OwnerIsGone = d, ownerIsGone
	}
	if metav1.IsControlledBy(d, o.Icecream) {
		o.Owned = append(o.Owned, d)
	}
	return o
}

// Assessment is what is known about one Icecream. It is worked out once per sync, and
// again if a write has changed something; the decision and the status both read it.
type Assessment struct {
	Observed

	target      *appsv1.Deployment   // the Icecream's Deployment of the name asked for, or nil
	old         []*appsv1.Deployment // its Deployments of other names, sorted by name
	inUse       *appsv1.Deployment   // the Deployment that runs its Pods, or nil
	isRolledOut bool                 // target is: there are as many Pods as asked for, and no others
	isComplete  bool                 // nothing is left to do for anybody
	specHash    string               // what Pods made from the spec have; not worked out if isComplete
	updated     int32                // how many Pods are made from the spec
	memory      Memory               // Observed.Memory with what is seen now
}

// Assess works out what is known about an Icecream.
func Assess(o Observed) Assessment {
	a := Assessment{Observed: o}
	if o.Named != nil && metav1.IsControlledBy(o.Named, o.Icecream) {
		a.target = o.Named
		a.isRolledOut = isRolledOut(o.Named)
	}
	for _, d := range o.Owned {
		if d.Name != DeploymentName(o.Icecream) {
			a.old = append(a.old, d)
		}
	}
	slices.SortFunc(a.old, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	a.inUse = a.findInUse()
	if a.isComplete = a.hasNothingLeft(); !a.isComplete {
		a.specHash = specHash(o.Icecream.Spec)
	}
	a.updated = a.countUpdated()
	a.memory = a.notice()
	return a
}

// after returns what is known once the Deployment of the name asked for has become
// what the API server answered to a write.
func (a Assessment) after(out Outcome) Assessment {
	written := deploymentOf(out)
	if written == nil {
		return a
	}
	o := a.Observed
	o.Named = written
	o.Owned = append(slices.Clone(a.old), written)
	return Assess(o)
}

// findInUse returns the Deployment that runs the Icecream's Pods: the one of the name
// asked for, unless that has yet to take the place of another.
func (a Assessment) findInUse() *appsv1.Deployment {
	old := slices.DeleteFunc(slices.Clone(a.old), func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
	if len(old) == 0 || a.isRolledOut {
		return a.target
	}
	for _, d := range old {
		if d.Name == a.Icecream.Status.DeploymentName {
			return d
		}
	}
	return old[0]
}

// hasNothingLeft reports whether nothing is left to do for anybody. It asks the Pods
// as well as the Deployment, so that an Icecream is never Ready with nodes missing
// from its status because one cache was ahead of the other.
func (a Assessment) hasNothingLeft() bool {
	if !a.isRolledOut || len(a.old) > 0 {
		return false
	}
	label := text.LabelValue(a.target.Name)
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

// countUpdated returns how many Pods are made from the spec. As long as the Deployment
// speaks only of an earlier one, the Pods themselves are counted.
func (a Assessment) countUpdated() int32 {
	d := a.target
	switch {
	case d == nil:
		return 0
	case isObserved(d):
		return d.Status.UpdatedReplicas
	}
	var current int32
	for range a.current() {
		current++
	}
	return min(current, d.Status.UpdatedReplicas)
}

// current are the Pods of the Deployment asked for that are made from the spec, unless the
// Icecream is complete.
func (a Assessment) current() iter.Seq[Pod] {
	pods, label, hash := a.Pods, text.LabelValue(a.target.Name), a.specHash
	return func(yield func(Pod) bool) {
		for _, pod := range pods {
			if pod.Deployment == label && pod.SpecHash == hash && !yield(pod) {
				return
			}
		}
	}
}
