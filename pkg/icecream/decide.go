package icecream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Observed is everything that goes into a decision about one Icecream: what the caches
// show at one time, and what this process remembers. Nothing here changes what it points to.
type Observed struct {
	Now time.Time
	// StallAfter is how long a problem may last before the Icecream is Stalled, and how
	// long the Icecream must have been complete after a crash before it is Ready.
	StallAfter time.Duration

	Icecream *v1alpha1.Icecream
	// Undecodable says why the Icecream's spec could not be decoded; empty if it was. The
	// spec is then empty, which is not what it asks for.
	Undecodable string
	Named       *appsv1.Deployment   // the one of the name asked for, whoever owns it; nil if there is none
	Owned       []*appsv1.Deployment // those that the Icecream controls, in any order
	Pods        []Pod                // those that carry the Icecream's label, in any order
	// OwnerIsGone reports that Named is controlled by an Icecream that no longer exists, so
	// the garbage collector is about to delete it.
	OwnerIsGone bool

	Memory Memory
}

// Plan is what should be written for one Icecream now: a Deployment, deletions, or nothing.
type Plan struct {
	// Want is the Deployment to write; nil if there is none. If Live is nil, it is to be
	// created. Otherwise Patch changes Live to Want, with the UID of Live as a precondition.
	Want, Live *appsv1.Deployment
	Patch      []byte
	// Delete are the Deployments to delete.
	Delete []*appsv1.Deployment
	// RecheckLive: the writes would be wrong for an Icecream that is being deleted, and the
	// cache may not show that yet. So ask the API server first.
	RecheckLive bool
	// IsFight: somebody keeps undoing this write.
	IsFight bool

	// Held says why nothing is written although something should be; the zero value if
	// everything is as it should be. With IsRetry, it says why the API server refused the
	// same write before.
	Held    kstatus.Conclusion
	IsRetry bool

	// RequeueAfter is when to look again even if nothing changes; 0 is never.
	RequeueAfter time.Duration
}

// IsWrite reports whether there is something to write.
func (p Plan) IsWrite() bool { return p.Want != nil || len(p.Delete) > 0 }

// Postponed returns the plan to wait with a retry.
func (p Plan) Postponed(by time.Duration) Plan { return Plan{Held: p.Held, RequeueAfter: by} }

// Decide says what should be written now.
func Decide(o Observed) (Plan, error) {
	if o.Icecream.DeletionTimestamp != nil {
		return Plan{}, nil // What is ours now belongs to the garbage collector.
	}
	if o.Undecodable != "" {
		return Plan{Held: kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: "The spec cannot be decoded: " + o.Undecodable}}, nil
	}
	plan, err := o.decideDeployment()
	if err != nil {
		return plan, err
	}
	if !plan.IsWrite() && plan.Held.Reason == "" {
		plan = o.decideOld()
	}
	return o.pace(plan), nil
}

// ownerCheck is how often to look whether a Deployment whose owner is gone still has none:
// if the cache shows the owner later, that is no event of the Deployment.
const ownerCheck = time.Minute

// decideDeployment looks at the Deployment of the name asked for.
func (o Observed) decideDeployment() (Plan, error) {
	ice, live := o.Icecream, o.Named
	switch {
	case live == nil:
		// It may be missing because the Icecream is gone, too.
		return Plan{Want: newDeployment(ice), RecheckLive: ice.Status.ObservedGeneration > 0}, nil

	case o.target() != nil && live.DeletionTimestamp != nil:
		return waitFor("Deployment %q is being deleted and will be created again%s", live.Name, heldBy(live)), nil

	case o.target() != nil:
		return o.decideDrift(false)

	case live.DeletionTimestamp != nil:
		return waitFor("Deployment %q, which is not managed by this Icecream, is being deleted%s", live.Name, heldBy(live)), nil

	case o.OwnerIsGone:
		plan := waitFor("Deployment %q, whose Icecream no longer exists, is about to be deleted", live.Name)
		plan.RequeueAfter = ownerCheck
		return plan, nil

	case isOrphan(ice, live):
		// It may have been orphaned on purpose, by a deletion of the Icecream.
		plan, err := o.decideDrift(true)
		plan.RecheckLive = true
		return plan, err

	default:
		message := fmt.Sprintf("Resource %q already exists and is not managed by Icecream", live.Name)
		if owner := metav1.GetControllerOfNoCopy(live); owner != nil {
			message = fmt.Sprintf("Resource %q already exists and is managed by %s %q", live.Name, owner.Kind, owner.Name)
		}
		return Plan{Held: kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonErrResourceExists, Message: message}}, nil
	}
}

// decideDrift compares a Deployment that is the Icecream's, or is to be adopted, with what
// the Icecream asks for.
func (o Observed) decideDrift(isAdoption bool) (Plan, error) {
	want := o.Named.DeepCopy()
	setDeployment(want, o.Icecream)
	if equality.Semantic.DeepEqual(o.Named, want) {
		return Plan{}, nil
	}
	plan := Plan{Live: o.Named, Want: want}
	if last := o.Memory.Write; last.Stored != "" && last.Want == o.fingerprint(plan) {
		stored, err := fingerprintOfDrift(o.Named, want)
		if err != nil || stored == last.Stored {
			return Plan{}, err
		}
	}
	var err error
	plan.Patch, err = patch.TwoWay(o.Named, want, isAdoption)
	return plan, err
}

// waitFor waits for a Deployment to be gone.
func waitFor(format string, args ...any) Plan {
	return Plan{Held: kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentTerminating, Message: fmt.Sprintf(format, args...)}}
}

// heldBy says in words which finalizers keep a Deployment that is being deleted from being
// gone; it is empty if there are none.
func heldBy(d *appsv1.Deployment) string {
	if len(d.Finalizers) == 0 {
		return ""
	}
	return "; it is held by " + strings.Join(d.Finalizers, ", ")
}

// deletionShows is how long the cache may take to show a deletion.
const deletionShows = time.Minute

// decideOld looks at the Deployments of names asked for before, which may go once the
// present one can take their place.
func (o Observed) decideOld() Plan {
	plan := Plan{RecheckLive: true}
	for _, old := range o.old() {
		if old.DeletionTimestamp == nil && o.isRolledOut() {
			plan.Delete = append(plan.Delete, old)
		}
	}
	if len(plan.Delete) == 0 {
		return Plan{}
	}
	return plan
}

// pace has a plan wait that was carried out before, if that was refused or somebody keeps
// undoing it.
func (o Observed) pace(plan Plan) Plan {
	last := o.Memory.lastOf(plan)
	if !plan.IsWrite() || last.Want != o.fingerprint(plan) {
		return plan
	}
	wait := last.wait(o.Now)
	if len(plan.Delete) > 0 && !last.isRefused() { // They are gone, as the cache will show.
		wait = last.At.Add(deletionShows).Sub(o.Now)
	}
	switch {
	case last.isRefused() && wait > 0:
		return Plan{Held: last.Refusal, RequeueAfter: wait}
	case last.isRefused():
		plan.Held, plan.IsRetry = last.Refusal, true
	case len(plan.Delete) > 0 && wait > 0:
		return Plan{RequeueAfter: wait}
	case wait > 0:
		return Plan{Held: kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentContested, Message: last.Contest}, RequeueAfter: wait}
	default:
		plan.IsFight = last.Count+1 >= backoff.Free
	}
	return plan
}

// fingerprint returns what distinguishes what a plan asks for from other requests,
// whatever it starts from.
func (o Observed) fingerprint(plan Plan) string {
	var wanted any
	if plan.Want != nil {
		wanted = newDeployment(o.Icecream)
	} else {
		var uids []types.UID
		for _, old := range plan.Delete {
			uids = append(uids, old.UID)
		}
		wanted = uids
	}
	raw, _ := json.Marshal(wanted) // cannot fail
	return text.Hash(raw)
}

// fingerprintOfDrift returns what distinguishes the differences between two Deployments
// from others.
func fingerprintOfDrift(live, want *appsv1.Deployment) (string, error) {
	drift, err := patch.Differences(live, want)
	if err != nil || len(drift) == 0 {
		return "", err
	}
	raw, err := json.Marshal(drift) // String leaves out the end of a long value.
	return text.Hash(raw), err
}

// Result is what came of carrying out a plan.
type Result struct {
	// Stored is the Deployment that was written, as the API server stored it; nil if none was.
	Stored *appsv1.Deployment
	// Refusal is the error by which the API server refused the plan; nil if it did not.
	Refusal error
	// Other is who had undone the write before; empty if that is unknown.
	Other string
}

// With returns what is known after a plan was carried out. altered says in which fields the
// API server stored the Deployment otherwise than requested.
func (o Observed) With(plan Plan, r Result) (after Observed, altered []patch.Difference, err error) {
	if !plan.IsWrite() {
		return o, nil, nil
	}
	next := Attempt{Want: o.fingerprint(plan), At: o.Now}
	if r.Refusal != nil {
		next.Refusal = refusalOf(r.Refusal)
	}
	if plan.IsFight {
		if next.Contest, err = contest(plan, r.Other); err != nil {
			return o, nil, err
		}
	}
	if r.Stored != nil {
		want := r.Stored.DeepCopy()
		setDeployment(want, o.Icecream)
		if !equality.Semantic.DeepEqual(r.Stored, want) {
			if altered, err = patch.Differences(r.Stored, want); err != nil {
				return o, nil, err
			}
			if next.Stored, err = fingerprintOfDrift(r.Stored, want); err != nil {
				return o, nil, err
			}
		}
		o.Owned = append(o.old(), r.Stored)
		o.Named = r.Stored
	}
	last := o.Memory.lastOf(plan)
	next = last.then(next)
	if plan.Want != nil {
		o.Memory.Write = next
	} else {
		o.Memory.Deletion = next
	}
	return o, altered, nil
}

// lastOf returns the last attempt of the plan's kind.
func (m Memory) lastOf(plan Plan) Attempt {
	if plan.Want != nil {
		return m.Write
	}
	return m.Deletion
}

// contest says who has undone what is written again and again.
func contest(plan Plan, other string) (string, error) {
	const says = "What the controller writes keeps being undone, last by %s; it waits longer each time before it repairs that"
	switch {
	case plan.Live == nil && plan.Want != nil:
		return fmt.Sprintf(says, fmt.Sprintf("a deletion of Deployment %q", plan.Want.Name)), nil
	case plan.Live == nil:
		return fmt.Sprintf(says, "somebody"), nil
	}
	drift, err := patch.Differences(plan.Live, plan.Want)
	if err != nil {
		return "", err
	}
	var fields []string
	for _, d := range drift {
		fields = append(fields, d.Field)
	}
	if other == "" {
		other = "somebody"
	}
	return text.Clip(fmt.Sprintf(says, fmt.Sprintf("%s in %s of Deployment %q", other, strings.Join(fields, ", "), plan.Live.Name)), maxMessage), nil
}

// LastWriter returns the name of the field manager that has written an object last, other
// than this controller and writers of its status, quoted; empty if there is none.
func LastWriter(obj metav1.Object) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		isOther := entry.Manager != FieldManager && entry.Subresource == ""
		if isOther && (last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last.Manager == "" {
		return ""
	}
	return fmt.Sprintf("%q", last.Manager)
}

// target is the Icecream's Deployment of the name asked for; nil if there is none.
func (o Observed) target() *appsv1.Deployment {
	if o.Named != nil && metav1.IsControlledBy(o.Named, o.Icecream) {
		return o.Named
	}
	return nil
}

// old are the Icecream's Deployments of other names, sorted by name.
func (o Observed) old() (old []*appsv1.Deployment) {
	for _, d := range o.Owned {
		if d.Name != DeploymentName(o.Icecream) {
			old = append(old, d)
		}
	}
	slices.SortFunc(old, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return old
}

// isRolledOut reports whether the target has as many Pods as asked for, and no others.
func (o Observed) isRolledOut() bool {
	target := o.target()
	return target != nil && isRolledOut(target)
}

// inUse is the Deployment that runs the Icecream's Pods: the target, unless that has yet to
// take the place of another. It is nil if there is none.
func (o Observed) inUse() *appsv1.Deployment {
	old := slices.DeleteFunc(o.old(), func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
	if len(old) == 0 || o.isRolledOut() {
		return o.target()
	}
	for _, d := range old {
		if d.Name == o.Icecream.Status.DeploymentName {
			return d
		}
	}
	return old[0]
}

// WithUndecodable returns what is observed of an Icecream whose spec cannot be decoded, for
// that reason. What it asks for is unknown, but not what it has.
func (o Observed) WithUndecodable(why string) Observed {
	o.Undecodable = why
	o.Icecream = o.Icecream.DeepCopy()
	o.Icecream.Spec.DeploymentName = o.Icecream.Status.DeploymentName
	return o
}
