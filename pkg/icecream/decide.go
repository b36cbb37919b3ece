// What to write. Read Observed and Plan, then Decide and the functions that it calls: they
// are the rules. Skip, at first, what begins at paced: it recognizes a repeated write, and what
// a webhook has changed in it. status.go comes next.

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
	// Live is the Deployment with the name that the Icecream asks for, even if somebody else
	// owns it. While the spec cannot be decoded, it is the one that the Icecream owns. It can
	// be nil.
	Live *appsv1.Deployment
	// OwnerIsGone reports that Live is controlled by an Icecream that no longer exists, so
	// the garbage collector is about to delete it.
	OwnerIsGone bool
	Pods        []Pod // with the Icecream's label, in any order

	Memory Memory
}

// Plan is the Deployment to write for one Icecream, or nothing.
type Plan struct {
	// Want is the Deployment to write; nil for none. If there is no Patch, create it.
	Want *appsv1.Deployment
	// Patch changes the live Deployment to Want, with its UID as a precondition.
	Patch []byte
	// RecheckLive means to ask the API server first whether the Icecream is being deleted.
	// The write would then be wrong, and the cache might not show it yet.
	RecheckLive bool
	// IsUndone means that somebody keeps undoing this write.
	IsUndone bool

	// Held says why nothing is written although the Deployment is not as it should be; the
	// zero value if it is, or if there is something to write.
	Held kstatus.Conclusion
	// Refused says why the API server refused the same write before; the zero value if it
	// did not.
	Refused kstatus.Conclusion

	// RequeueAfter is when to sync again even if nothing changes; 0 means never.
	RequeueAfter time.Duration
}

// IsWrite reports whether there is something to write.
func (p Plan) IsWrite() bool { return p.Want != nil }

// IsRetry reports whether the API server refused the same write before.
func (p Plan) IsRetry() bool { return p.Refused.Reason != "" }

// Postponed returns the plan to wait with a retry.
func (p Plan) Postponed(by time.Duration) Plan {
	return Plan{Held: p.Refused, RequeueAfter: by}
}

// stalled returns the conclusion that only an edit, by somebody, will help.
func stalled(reason, message string) kstatus.Conclusion {
	return kstatus.Conclusion{State: kstatus.Stalled, Reason: reason, Message: message}
}

// reconciling returns the conclusion that the Icecream is expected to become Ready by itself.
func reconciling(reason, message string) kstatus.Conclusion {
	return kstatus.Conclusion{State: kstatus.Reconciling, Reason: reason, Message: message}
}

// ownerCheck is how often to check whether the owner of a Deployment is still missing. If the
// cache shows the owner later, that is no event of the Deployment.
const ownerCheck = time.Minute

// Decide returns what to write now.
func Decide(o Observed) (Plan, error) {
	if o.Icecream.DeletionTimestamp != nil {
		return Plan{}, nil // Its Deployment is left to the garbage collector.
	}
	if why := o.invalid(); why != "" {
		return Plan{Held: stalled(v1alpha1.ReasonInvalidSpec, why)}, nil
	}
	switch ice, live := o.Icecream, o.Live; {
	case live == nil:
		// It can be missing because the Icecream is being deleted, too.
		return o.paced(Plan{Want: newDeployment(ice), RecheckLive: ice.Status.ObservedGeneration > 0}), nil

	case IsControlledBy(live, ice) && live.DeletionTimestamp != nil:
		return waitFor("Deployment %q is being deleted and will be created again%s", live.Name, heldBy(live)), nil

	case IsControlledBy(live, ice):
		return o.decideUpdate()

	case live.DeletionTimestamp != nil:
		return waitFor("Deployment %q, which is not managed by this Icecream, is being deleted%s", live.Name, heldBy(live)), nil

	case o.OwnerIsGone:
		plan := waitFor("Deployment %q, whose Icecream no longer exists, is about to be deleted", live.Name)
		plan.RequeueAfter = ownerCheck
		return plan, nil

	case isOrphan(ice, live):
		// A deletion of the Icecream can have orphaned it on purpose.
		plan, err := o.decideUpdate()
		plan.RecheckLive = true
		return plan, err

	default:
		message := fmt.Sprintf("Resource %q already exists and is not managed by Icecream", live.Name)
		if owner := metav1.GetControllerOfNoCopy(live); owner != nil {
			message = fmt.Sprintf("Resource %q already exists and is managed by %s %q", live.Name, owner.Kind, owner.Name)
		}
		return Plan{Held: stalled(v1alpha1.ReasonErrResourceExists, message)}, nil
	}
}

// invalid returns why nothing can be decided from the spec; empty if that is possible.
func (o Observed) invalid() string {
	if o.Undecodable != "" {
		return "The spec cannot be decoded: " + o.Undecodable
	}
	if field := oversized(o.Icecream.Spec.Resources); field != "" {
		return field + " has too many digits"
	}
	return ""
}

// decideUpdate compares the live Deployment, which the Icecream owns or adopts, with what the
// Icecream asks for.
func (o Observed) decideUpdate() (plan Plan, err error) {
	if !o.hasDrift() {
		return Plan{}, nil
	}
	plan.Want = wanted(o.Live, o.Icecream)
	if plan.Patch, err = patch.TwoWay(o.Live, plan.Want, !IsControlledBy(o.Live, o.Icecream)); err != nil {
		return Plan{}, err
	}
	return o.paced(plan), nil
}

// hasDrift reports whether the live Deployment is not as the Icecream asks for, and the last
// write of the same has not already led to just that.
func (o Observed) hasDrift() bool {
	want := wanted(o.Live, o.Icecream)
	if equality.Semantic.DeepEqual(o.Live, want) {
		return false
	}
	last := o.Memory.Write
	return last.Goal != o.goal() || last.Altered != fingerprintOf(differences(o.Live, want))
}

// wanted returns an existing Deployment as it should be.
func wanted(live *appsv1.Deployment, ice *v1alpha1.Icecream) *appsv1.Deployment {
	want := live.DeepCopy()
	setDeployment(want, ice)
	return want
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
	return "; it is held by " + strings.Join(d.Finalizers, ", ")
}

// paced delays a plan whose write was refused before, or that somebody keeps undoing.
func (o Observed) paced(plan Plan) Plan {
	last := o.Memory.Write
	if last.Goal != o.goal() {
		return plan
	}
	wait := last.wait(o.Now)
	switch {
	case last.isRefused() && wait > 0:
		return Plan{Held: last.Refused, RequeueAfter: wait}
	case last.isRefused():
		plan.Refused = last.Refused
	case wait > 0:
		return Plan{Held: reconciling(v1alpha1.ReasonDeploymentContested, last.Undone), RequeueAfter: wait}
	default:
		plan.IsUndone = last.Count+1 >= backoff.Free
	}
	return plan
}

// goal identifies what the Icecream asks for, whatever there is.
func (o Observed) goal() string { return fingerprintOf(newDeployment(o.Icecream)) }

// fingerprintOf returns what distinguishes a value from others.
func fingerprintOf(value any) string {
	raw, _ := json.Marshal(value) // cannot fail for what the API server stores
	return text.Hash(raw)
}

// differences returns where a Deployment is not as it should be.
func differences(live, want *appsv1.Deployment) []patch.Difference {
	found, _ := patch.Differences(live, want) // cannot fail for types of the API
	return found
}

// Result is the outcome of a plan.
type Result struct {
	// Stored is the written Deployment as the API server stored it; nil if none was written.
	Stored *appsv1.Deployment
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
	next := Attempt{Goal: o.goal(), At: o.Now}
	if r.Refusal != nil {
		next.Refused = refusalOf(r.Refusal)
	}
	if plan.IsUndone {
		next.Undone = o.undone(plan, r.Other)
	}
	var altered []patch.Difference // which the API server stored otherwise than requested
	if r.Stored != nil {
		after.Live = r.Stored
		if want := wanted(r.Stored, o.Icecream); !equality.Semantic.DeepEqual(r.Stored, want) {
			drift := differences(r.Stored, want)
			altered = o.requested(plan, drift)
			if len(altered) == len(drift) { // Otherwise somebody has written just before, and the next sync repairs that.
				next.Altered = fingerprintOf(drift)
			}
		}
	}
	after.Memory.Write = o.Memory.Write.then(next)
	return after, o.writeEvent(plan, r, altered)
}

// requested returns the differences in fields that the plan's write has set. In other fields,
// the Deployment was changed before the write arrived.
func (o Observed) requested(plan Plan, drift []patch.Difference) (requested []patch.Difference) {
	if o.Live == nil {
		return drift
	}
	written := differences(o.Live, plan.Want)
	for _, d := range drift {
		if slices.ContainsFunc(written, func(w patch.Difference) bool {
			return strings.HasPrefix(d.Field, w.Field) || strings.HasPrefix(w.Field, d.Field)
		}) {
			requested = append(requested, d)
		}
	}
	return requested
}

// undone says who has undone what is written again and again.
func (o Observed) undone(plan Plan, other string) string {
	by := fmt.Sprintf("a deletion of Deployment %q", plan.Want.Name)
	if o.Live != nil {
		var fields []string
		for _, d := range differences(o.Live, plan.Want) {
			fields = append(fields, d.Field)
		}
		by = fmt.Sprintf("%s in %s of Deployment %q", cmp.Or(other, "somebody"), strings.Join(fields, ", "), o.Live.Name)
	}
	message := fmt.Sprintf("What the controller writes keeps being undone, last by %s; it waits longer each time before it repairs that", by)
	return text.Clip(message, maxMessage)
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

// own is the live Deployment if the Icecream owns it; otherwise nil.
func (o Observed) own() *appsv1.Deployment {
	if o.Live != nil && IsControlledBy(o.Live, o.Icecream) {
		return o.Live
	}
	return nil
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

// lastSeen returns the generation that the status of the Icecream's Deployment describes, or has
// described last.
func (o Observed) lastSeen() Seen {
	d, seen := o.own(), o.Memory.Seen
	if d == nil || d.Status.ObservedGeneration < d.Generation || d.UID == seen.UID && d.Generation == seen.Generation {
		return seen
	}
	return Seen{d.UID, d.Generation, fingerprintOf(d.Spec)}
}

// isRolledOut reports whether all requested Pods of the Icecream's Deployment are available and
// made from its current template, and no others are left.
func (o Observed) isRolledOut() bool {
	d := o.own()
	if d == nil || d.DeletionTimestamp != nil || !o.isObserved(d) {
		return false
	}
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	return d.Status.Replicas == replicas && d.Status.UpdatedReplicas == replicas && d.Status.AvailableReplicas == replicas
}
