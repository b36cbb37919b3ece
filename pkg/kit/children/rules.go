package children

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Rules are what all children of one kind of owner have in common.
type Rules struct {
	// Owner says which fields of the children belong to the controller.
	apply.Owner
	// Kind is the kind of the owner, such as "Widget".
	Kind string
	// Reasons are the words that the owner's API has for what can happen.
	Reasons Reasons
}

// Reasons are reasons of conditions, and those of events about writes.
type Reasons struct {
	Terminating string // a child is being deleted, and is waited for
	Exists      string // an object of the name belongs to someone else
	Invalid     string // the API server calls a child invalid
	Refused     string // the API server does not allow a write
	Contested   string // someone keeps undoing what is written

	Created, Adopted, Updated, Altered string
}

// Need is one object that an owner needs, and what is seen of it.
type Need struct {
	// Kind is the kind of the object in words, such as "Deployment".
	Kind string
	// Child makes the object with what is wanted of it. It is called only if Live has to be
	// compared with that, or to be written.
	Child func() apply.Child
	// From is all that Child depends on, apart from the owner's name and UID: most often a
	// pointer to the owner's spec. As long as it has the same JSON, an object in which there
	// was nothing to repair is not compared again before it changes. If From is nil, the
	// object is compared every time.
	From any
	// Live is the object of that name, whoever it belongs to; nil if there is none.
	Live metav1.Object
	// IsOwned reports that the owner controls it.
	IsOwned bool
	// IsOrphan reports that it was made for this owner, or for one of the same name
	// before it, and has lost its controller.
	IsOrphan bool
	// OwnerIsGone reports that it is controlled by an owner that no longer exists, so that
	// the garbage collector is about to delete it.
	OwnerIsGone bool
	// WasReported reports that the owner has a status. The object may then be missing
	// because the owner is gone, too.
	WasReported bool
	// Last is the last write for it that this process remembers.
	Last Write
}

// ownerCheck is how often to look whether an object whose owner is gone still
// has none: if the cache shows the owner later, that is no event of the object.
const ownerCheck = time.Minute

// maxMessage is how many bytes a message has at most.
const maxMessage = 1024

// Decide says what should be written for the object now, whatever was refused before; see
// [Rules.BackOff].
func (r Rules) Decide(n Need) Decision {
	live := n.Live
	switch {
	case live == nil:
		return Decision{Verdict: Act, Kind: n.Kind, Children: []apply.Child{n.Child()}, RecheckLive: n.WasReported}

	case n.IsOwned && live.GetDeletionTimestamp() != nil:
		return r.waitFor("%s %q is being deleted and will be created again%s", n.Kind, live.GetName(), HeldBy(live))

	case n.IsOwned:
		match := n.match()
		if match != (Match{}) && match == n.Last.Match {
			return Decision{Verdict: Converged, Match: match}
		}
		child := r.Compare(n.Child(), live)
		if len(child.Drift) == 0 || n.Last.accepts(child) {
			return Decision{Verdict: Converged, Match: match}
		}
		return Decision{Verdict: Act, Kind: n.Kind, Children: []apply.Child{child}}

	case live.GetDeletionTimestamp() != nil:
		return r.waitFor("%s %q, which is not managed by this %s, is being deleted%s", n.Kind, live.GetName(), r.Kind, HeldBy(live))

	case n.OwnerIsGone:
		d := r.waitFor("%s %q, whose %s no longer exists, is about to be deleted", n.Kind, live.GetName(), r.Kind)
		d.RequeueAfter = ownerCheck
		return d

	case n.IsOrphan:
		// It may have been orphaned on purpose, by a deletion of the owner.
		return Decision{Verdict: Act, Kind: n.Kind, Children: []apply.Child{r.Compare(n.Child(), live)}, RecheckLive: true}

	default:
		d := Decision{Verdict: Blocked, Reason: r.Reasons.Exists}
		if owner := metav1.GetControllerOfNoCopy(live); owner != nil {
			d.Message = fmt.Sprintf("Resource %q already exists and is managed by %s %q", live.GetName(), owner.Kind, owner.Name)
		} else {
			d.Message = fmt.Sprintf("Resource %q already exists and is not managed by %s", live.GetName(), r.Kind)
		}
		return d
	}
}

// waitFor waits for an object to be gone.
func (r Rules) waitFor(format string, args ...any) Decision {
	return Decision{Verdict: Wait, Reason: r.Reasons.Terminating, Message: fmt.Sprintf(format, args...)}
}

// HeldBy says in words that follow a sentence which finalizers keep an object that is being
// deleted from being gone; it is empty if there are none.
func HeldBy(o metav1.Object) string {
	if len(o.GetFinalizers()) == 0 {
		return ""
	}
	return "; it is held by " + strings.Join(o.GetFinalizers(), ", ")
}

// BackOff has a decision wait that was carried out before, if that was refused or
// somebody keeps undoing it. live is the object that it is about; nil if there is none.
func (r Rules) BackOff(d Decision, last Write, live metav1.Object, now time.Time) Decision {
	if d.Verdict != Act || last.Want == "" || last.Want != d.want() {
		return d
	}
	wait := last.Wait(now)
	switch {
	case last.Reason != "" && wait > 0:
		return Decision{Verdict: refused(last.IsInvalid), Reason: last.Reason, Message: last.Message, RequeueAfter: wait}
	case last.Reason != "":
		d.Reason, d.Message, d.IsRetry, d.IsInvalid = last.Reason, last.Message, true, last.IsInvalid
		return d
	case wait > 0:
		return Decision{Verdict: Wait, Reason: r.Reasons.Contested, Message: cmp.Or(last.Contest, r.contest(d, live)), RequeueAfter: wait}
	default:
		return d
	}
}

// Refusal returns what a write that the API server refused has to wait for.
func (r Rules) Refusal(err error) Decision {
	d := Decision{Verdict: Wait, Reason: r.Reasons.Refused, Message: err.Error()}
	if apierrors.IsInvalid(err) {
		d.Verdict, d.Reason, d.IsInvalid = Blocked, r.Reasons.Invalid, true
	}
	return d
}

// contest says who has changed in live what the decision is to repair. What was undone
// before may have been something else.
func (r Rules) contest(d Decision, live metav1.Object) string {
	const says = "What the controller writes keeps being undone, last by %s; it waits longer each time before it repairs that"
	if live == nil {
		return fmt.Sprintf(says, fmt.Sprintf("a deletion of %s %q", d.Kind, d.Children[0].Want.GetName()))
	}
	drift := d.Drift()
	var fields []string
	for _, f := range drift {
		fields = append(fields, f.Field)
	}
	what := d.Kind + " " + live.GetName()
	if len(fields) > 0 {
		what = fmt.Sprintf("%s of %s %q", strings.Join(fields, ", "), d.Kind, live.GetName())
	}
	who := cmp.Or(strings.Join(r.OthersIn(live, drift), ", "), "somebody")
	return text.Clip(fmt.Sprintf(says, fmt.Sprintf("%s in %s", who, what)), maxMessage)
}
