// What to write. Read Observed and Plan, then Decide and the functions that it calls: they
// are the rules. Skip, at first, fingerprints and differences, which recognize a repeated
// write and what a webhook has changed in it. status.go comes next.

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
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Observed is the input of a decision about one Icecream: what the caches show, and what
// this process remembers. Nothing in this package changes the objects that it points to.
type Observed struct {
	Now time.Time
	// StallAfter is how long a problem can last before the Icecream is Stalled, and how long
	// the Icecream must have been complete after a crash before it is Ready.
	StallAfter time.Duration

	Icecream *v1alpha1.Icecream
	// Undecodable says why the Icecream's spec could not be decoded; empty if it could. The
	// decoded spec is then empty and means nothing.
	Undecodable string
	Named       *appsv1.Deployment   // the one with the requested name, whoever owns it; can be nil
	Owned       []*appsv1.Deployment // controlled by the Icecream, in any order
	Pods        []Pod                // with the Icecream's label, in any order
	// OwnerIsGone reports that Named is controlled by an Icecream that no longer exists, so
	// the garbage collector is about to delete it.
	OwnerIsGone bool
	// IsCrossed reports that somebody else has written just before this controller did, so
	// that the stored Deployment is not as requested. The next sync repairs it.
	IsCrossed bool

	Memory Memory
}

// Plan is what to write for one Icecream: a Deployment, deletions, or nothing.
type Plan struct {
	// Want is the Deployment to write; nil for none. If Live is nil, create it. Otherwise
	// Patch changes Live to Want, with the UID of Live as a precondition.
	Want, Live *appsv1.Deployment
	Patch      []byte
	// Bare is what to create if an admission policy refuses Want: it lacks what others have
	// added to the spec of the old Deployment. It is nil unless this is a rename.
	Bare *appsv1.Deployment
	// Delete are the Deployments to delete.
	Delete []*appsv1.Deployment
	// RecheckLive means to ask the API server first whether the Icecream is being deleted.
	// The writes would then be wrong, and the cache might not show it yet.
	RecheckLive bool
	// IsFight means that somebody keeps undoing this write.
	IsFight bool

	// Held says why the Deployment of the name asked for is not written although it should
	// be; the zero value if it is as it should be. One of a former name can be written
	// nevertheless.
	Held kstatus.Conclusion
	// Refused says why the API server refused the same write before; the zero value if it
	// did not.
	Refused kstatus.Conclusion

	// RequeueAfter is when to sync again even if nothing changes; 0 means never.
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

// Decide returns what to write now.
func Decide(o Observed) (Plan, error) {
	if o.Icecream.DeletionTimestamp != nil {
		return Plan{}, nil // What is ours now belongs to the garbage collector.
	}
	if o.Undecodable != "" {
		return invalidSpec("The spec cannot be decoded: " + o.Undecodable), nil
	}
	if field := oversized(o.Icecream.Spec.Resources); field != "" {
		return invalidSpec(field + " has too many digits"), nil
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

// invalidSpec returns the plan to do nothing until the spec is edited.
func invalidSpec(message string) Plan {
	return Plan{Held: kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: message}}
}

// ownerCheck is how often to check whether the owner of a Deployment is still missing. If the
// cache shows the owner later, that is no event of the Deployment.
const ownerCheck = time.Minute

// decideDeployment decides about the Deployment with the requested name.
func (o Observed) decideDeployment() (Plan, error) {
	ice, live := o.Icecream, o.Named
	switch {
	case live == nil:
		// It can be missing because the Icecream is being deleted, too.
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
		// A deletion of the Icecream can have orphaned it on purpose.
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

// decideDrift compares a Deployment that the Icecream owns or adopts with what the Icecream
// asks for.
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

// wanted returns the Deployment as it should be. A Deployment with a previous name keeps its
// template and gets the current number of replicas.
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

// waitFor returns the plan to wait until a Deployment is gone.
func waitFor(format string, args ...any) Plan {
	return Plan{Held: kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentTerminating, Message: fmt.Sprintf(format, args...)}}
}

// heldBy describes the finalizers that hold a Deployment that is being deleted; empty if
// there are none.
func heldBy(d *appsv1.Deployment) string {
	if len(d.Finalizers) == 0 {
		return ""
	}
	return "; it is held by " + strings.Join(d.Finalizers, ", ")
}

// deletionShows is how long the cache can take to show a deletion.
const deletionShows = time.Minute

// decideOld decides about Deployments with previous names. They are deleted once the current
// one is rolled out. Until then, the one in use has the requested number of replicas.
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

// pace delays a plan that was carried out before and was refused, or that somebody keeps
// undoing.
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

// fingerprint identifies what a plan requests, whatever state it starts from.
func (o Observed) fingerprint(plan Plan) string {
	var wanted any
	switch {
	case plan.Want == nil:
		wanted = plan.Delete[len(plan.Delete)-1].UID // The cache shows the first deletions earlier.
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

// Result is the outcome of a plan.
type Result struct {
	// Stored is the written Deployment as the API server stored it; nil if none was written.
	Stored *appsv1.Deployment
	// IsBare reports that Stored was created from the plan's Bare.
	IsBare bool
	// Refusal is the error with which the API server refused the plan; nil if it did not.
	Refusal error
	// Other is who undid the previous write; empty if unknown.
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
			if after.IsCrossed = len(altered) < len(drift); !after.IsCrossed {
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

// isAboutNamed reports whether a plan writes the Deployment with the requested name.
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

// LastWriter returns the quoted name of the last field manager of an object, other than this
// controller and writers of the status; empty if there is none.
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

// target is the Icecream's Deployment with the requested name; nil if there is none.
func (o Observed) target() *appsv1.Deployment {
	if o.Named != nil && IsControlledBy(o.Named, o.Icecream) {
		return o.Named
	}
	return nil
}

// old are the Icecream's Deployments with other names, sorted by name.
func (o Observed) old() (old []*appsv1.Deployment) {
	for _, d := range o.Owned {
		if !o.isNamed(d) {
			old = append(old, d)
		}
	}
	slices.SortFunc(old, func(a, b *appsv1.Deployment) int { return strings.Compare(a.Name, b.Name) })
	return old
}

// replaced are the Deployments with other names that are not being deleted yet.
func (o Observed) replaced() []*appsv1.Deployment {
	return slices.DeleteFunc(o.old(), func(d *appsv1.Deployment) bool { return d.DeletionTimestamp != nil })
}

// isObserved reports whether the Deployment's status describes its current spec. A change of
// its annotations also raises the generation, and leaves the status true.
func (o Observed) isObserved(d *appsv1.Deployment) bool {
	if d.Status.ObservedGeneration >= d.Generation {
		return true
	}
	seen := Seen{d.UID, d.Generation - 1, fingerprintOf(d.Spec)}
	return d.Status.ObservedGeneration == seen.Generation && seen == o.Memory.Seen
}

// see returns the generation that the target's status describes, or has described last.
func (o Observed) see() Seen {
	d, seen := o.target(), o.Memory.Seen
	if d == nil || d.Status.ObservedGeneration < d.Generation || d.UID == seen.UID && d.Generation == seen.Generation {
		return seen
	}
	return Seen{d.UID, d.Generation, fingerprintOf(d.Spec)}
}

// isRolledOut reports whether all requested Pods of the target are available and made from
// its current template, and no others are left.
func (o Observed) isRolledOut() bool {
	d := o.target()
	if d == nil || d.DeletionTimestamp != nil || !o.isObserved(d) {
		return false
	}
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.Replicas == wanted && d.Status.UpdatedReplicas == wanted && d.Status.AvailableReplicas == wanted
}

// inUse is the Deployment that serves: the target, or the old one until the target is rolled
// out. It is nil if there is none.
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

// WithUndecodable returns what is observed if the spec cannot be decoded, and why. What the
// Icecream asks for is then unknown, but not what it has.
func (o Observed) WithUndecodable(why string) Observed {
	o.Undecodable = why
	o.Icecream = o.Icecream.DeepCopy()
	o.Icecream.Spec.DeploymentName = o.Icecream.Status.DeploymentName
	return o
}
