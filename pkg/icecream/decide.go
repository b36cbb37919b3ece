package icecream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

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
	// Bare is to be created if an admission policy refuses Want: without what others have
	// added to the spec of the Deployment whose place it takes. It is nil without a rename.
	Bare *appsv1.Deployment
	// Delete are the Deployments to delete.
	Delete []*appsv1.Deployment
	// RecheckLive: the writes would be wrong for an Icecream that is being deleted, and the
	// cache may not show that yet. So ask the API server first.
	RecheckLive bool
	// IsFight: somebody keeps undoing this write.
	IsFight bool

	// Held says why the Deployment of the name asked for is not written although it should
	// be; the zero value if it is as it should be. One of a former name can be written
	// nevertheless.
	Held kstatus.Conclusion
	// Refused says why the API server refused the same write before; the zero value if it
	// did not.
	Refused kstatus.Conclusion

	// RequeueAfter is when to look again even if nothing changes; 0 is never.
	RequeueAfter time.Duration
}

// IsWrite reports whether there is something to write.
func (p Plan) IsWrite() bool { return p.Want != nil || len(p.Delete) > 0 }

// IsRetry reports whether the API server refused the same write before.
func (p Plan) IsRetry() bool { return p.Refused.Reason != "" }

// Postponed returns the plan to wait with a retry.
func (p Plan) Postponed(by time.Duration) Plan {
	return Plan{Held: cmp.Or(p.Held, p.Refused), RequeueAfter: by}
}

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
	plan = o.pace(plan)
	if plan.IsWrite() || plan.Held.Reason != "" && o.isRolledOut() {
		return plan, nil
	}
	old, err := o.decideOld()
	if err != nil {
		return plan, err
	}
	old = o.pace(old)
	old.RequeueAfter = backoff.MinRequeue(old.RequeueAfter, plan.RequeueAfter)
	old.Held = cmp.Or(plan.Held, old.Held)
	return old, nil
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
		plan := Plan{Want: newDeployment(ice), RecheckLive: ice.Status.ObservedGeneration > 0}
		if old := o.inUse(); old != nil {
			plan.Want, plan.Bare = renamed(old, ice)
		}
		return plan, nil

	case o.target() != nil && live.DeletionTimestamp != nil:
		return waitFor("Deployment %q is being deleted and will be created again%s", live.Name, heldBy(live)), nil

	case o.target() != nil:
		return o.decideDrift(live, false)

	case live.DeletionTimestamp != nil:
		return waitFor("Deployment %q, which is not managed by this Icecream, is being deleted%s", live.Name, heldBy(live)), nil

	case o.OwnerIsGone:
		plan := waitFor("Deployment %q, whose Icecream no longer exists, is about to be deleted", live.Name)
		plan.RequeueAfter = ownerCheck
		return plan, nil

	case isOrphan(ice, live):
		// It may have been orphaned on purpose, by a deletion of the Icecream.
		plan, err := o.decideDrift(live, true)
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
func (o Observed) decideDrift(live *appsv1.Deployment, isAdoption bool) (Plan, error) {
	want := o.wanted(live)
	if equality.Semantic.DeepEqual(live, want) {
		return Plan{}, nil
	}
	plan := Plan{Live: live, Want: want}
	if last := o.lastOf(plan); last.Want == o.fingerprint(plan) && last.Stored == fingerprintOf(differences(live, want)) {
		return Plan{}, nil
	}
	var err error
	plan.Patch, err = patch.TwoWay(live, want, isAdoption)
	return plan, err
}

// wanted returns a Deployment of the Icecream's as it should be. One of a former name keeps
// what it runs, but not how often.
func (o Observed) wanted(live *appsv1.Deployment) *appsv1.Deployment {
	want := live.DeepCopy()
	if o.isNamed(want) {
		setDeployment(want, o.Icecream)
	} else {
		setReplicas(want, o.Icecream)
	}
	return want
}

// isNamed reports whether a Deployment has the name that the Icecream asks for.
func (o Observed) isNamed(d *appsv1.Deployment) bool { return d.Name == DeploymentName(o.Icecream) }

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

// decideOld looks at the Deployments of names asked for before. They may go once the present
// one can take their place; until then, the one in use has as many Pods as asked for.
func (o Observed) decideOld() (Plan, error) {
	old := o.replaced()
	switch {
	case len(old) == 0:
		return Plan{}, nil
	case o.isRolledOut():
		return Plan{Delete: old, RecheckLive: true}, nil
	default:
		return o.decideDrift(o.inUse(), false)
	}
}

// pace has a plan wait that was carried out before, if that was refused or somebody keeps
// undoing it.
func (o Observed) pace(plan Plan) Plan {
	last := o.lastOf(plan)
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
		plan.Refused = last.Refusal
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
	switch {
	case plan.Want == nil:
		var uids []types.UID
		for _, old := range plan.Delete {
			uids = append(uids, old.UID)
		}
		wanted = uids
	case o.isNamed(plan.Want):
		wanted = newDeployment(o.Icecream)
	default:
		wanted = []any{plan.Want.UID, plan.Want.Spec.Replicas}
	}
	return fingerprintOf(wanted)
}

// fingerprintOf returns what distinguishes a value from others.
func fingerprintOf(value any) string {
	raw, _ := json.Marshal(value) // cannot fail for what the API server stores
	return text.Hash(raw)
}

// differences returns where a Deployment, or a part of it, is not as it should be.
func differences(live, want any) []patch.Difference {
	found, _ := patch.Differences(live, want) // cannot fail for types of the API
	return found
}

// fieldsOf names the fields of these differences.
func fieldsOf(differences []patch.Difference) string {
	var fields []string
	for _, d := range differences {
		fields = append(fields, d.Field)
	}
	return strings.Join(fields, ", ")
}

// Result is what came of carrying out a plan.
type Result struct {
	// Stored is the Deployment that was written, as the API server stored it; nil if none was.
	Stored *appsv1.Deployment
	// IsBare reports that Stored was made from the plan's Bare.
	IsBare bool
	// Refusal is the error by which the API server refused the plan; nil if it did not.
	Refusal error
	// Other is who had undone the write before; empty if that is unknown.
	Other string
}

// With returns what is known after a plan was carried out, and what to record about that.
func (o Observed) With(plan Plan, r Result) (after Observed, event Event) {
	if !plan.IsWrite() {
		return o, Event{}
	}
	after = o
	next := Attempt{Want: o.fingerprint(plan), At: o.Now}
	if r.Refusal != nil {
		next.Refusal = refusalOf(r.Refusal)
	}
	if plan.IsFight {
		next.Contest = contest(plan, r.Other)
	}
	var altered []patch.Difference // which the API server stored otherwise than requested
	if r.Stored != nil {
		if want := o.wanted(r.Stored); !equality.Semantic.DeepEqual(r.Stored, want) {
			drift := differences(r.Stored, want)
			altered = plan.requested(drift)
			if len(altered) == len(drift) { // Otherwise somebody else has written just before, which is to be repaired.
				next.Stored = fingerprintOf(drift)
			}
		}
		after.Owned = slices.DeleteFunc(slices.Clone(o.Owned), func(d *appsv1.Deployment) bool { return d.Name == r.Stored.Name })
		after.Owned = append(after.Owned, r.Stored)
		if o.isNamed(r.Stored) {
			after.Named = r.Stored
		}
	}
	next = o.lastOf(plan).then(next)
	if o.isAboutNamed(plan) {
		after.Memory.Write = next
	} else {
		after.Memory.Old = next
	}
	return after, o.writeEvent(plan, r, altered)
}

// requested returns the differences in fields that the plan's write has set. In other fields,
// the Deployment was changed before the write arrived.
func (p Plan) requested(drift []patch.Difference) (requested []patch.Difference) {
	if p.Live == nil {
		return drift
	}
	written := differences(p.Live, p.Want)
	for _, d := range drift {
		if slices.ContainsFunc(written, func(w patch.Difference) bool {
			return strings.HasPrefix(d.Field, w.Field) || strings.HasPrefix(w.Field, d.Field)
		}) {
			requested = append(requested, d)
		}
	}
	return requested
}

// lastOf returns the last attempt of the plan's kind.
func (o Observed) lastOf(plan Plan) Attempt {
	if o.isAboutNamed(plan) {
		return o.Memory.Write
	}
	return o.Memory.Old
}

// isAboutNamed reports whether a plan writes the Deployment of the name asked for.
func (o Observed) isAboutNamed(plan Plan) bool { return plan.Want != nil && o.isNamed(plan.Want) }

// contest says who has undone what is written again and again.
func contest(plan Plan, other string) string {
	who := cmp.Or(other, "somebody")
	switch {
	case plan.Live != nil:
		who += fmt.Sprintf(" in %s of Deployment %q", fieldsOf(differences(plan.Live, plan.Want)), plan.Live.Name)
	case plan.Want != nil:
		who = fmt.Sprintf("a deletion of Deployment %q", plan.Want.Name)
	}
	return text.Clip(fmt.Sprintf("What the controller writes keeps being undone, last by %s; it waits longer each time before it repairs that", who), maxMessage)
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
		if !o.isNamed(d) {
			old = append(old, d)
		}
	}
	slices.SortFunc(old, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return old
}

// replaced are the Deployments of other names that are not being deleted yet.
func (o Observed) replaced() []*appsv1.Deployment {
	return slices.DeleteFunc(o.old(), func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
}

// isObserved reports whether the Deployment's status is about its current spec. A change of
// its annotations makes a new generation, too, and leaves true what the status says.
func (o Observed) isObserved(d *appsv1.Deployment) bool {
	if d.Status.ObservedGeneration >= d.Generation {
		return true
	}
	seen := Seen{d.UID, d.Generation - 1, fingerprintOf(d.Spec)}
	return d.Status.ObservedGeneration == seen.Generation && seen == o.Memory.Seen
}

// see returns what the status of the target is about, or was about last.
func (o Observed) see() Seen {
	d, seen := o.target(), o.Memory.Seen
	if d == nil || d.Status.ObservedGeneration < d.Generation || d.UID == seen.UID && d.Generation == seen.Generation {
		return seen
	}
	return Seen{d.UID, d.Generation, fingerprintOf(d.Spec)}
}

// isRolledOut reports whether there are as many available Pods of the target's current
// template as its spec asks for, and no others are left.
func (o Observed) isRolledOut() bool {
	d := o.target()
	if d == nil || d.DeletionTimestamp != nil || !o.isObserved(d) {
		return false
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.Replicas == wanted && d.Status.UpdatedReplicas == wanted && d.Status.AvailableReplicas == wanted
}

// inUse is the Deployment that runs the Icecream's Pods: the target, unless that has yet to
// take the place of another. It is nil if there is none.
func (o Observed) inUse() *appsv1.Deployment {
	old := o.replaced()
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
