package children

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// Write is the last write of its kind for an owner, and what came of it. The zero value
// is what a process remembers that has just begun.
type Write struct {
	Want  string    // what was requested, as a fingerprint; empty before the first write
	At    time.Time // when the answer came
	Count int       // how often in a row the same was requested

	// UID and Drift say what the API server stored: in which object, and as a
	// fingerprint what it stored otherwise than requested.
	UID   types.UID
	Drift string
	// Contest says who had changed what before the write repaired it.
	Contest string

	// Reason and Message say why the API server refused the write; empty if it did
	// not. IsInvalid says that it called the object invalid.
	Reason, Message string
	IsInvalid       bool

	// Match is that of the last Decision, if there was nothing to write.
	Match Match
}

// Writes are the last writes of an owner that has several children, by resource.
type Writes map[schema.GroupVersionResource]Write

// With returns the writes with the last one of a resource.
func (w Writes) With(resource schema.GroupVersionResource, last Write) Writes {
	if w[resource] == last {
		return w
	}
	with := Writes{resource: last}
	for other, write := range w {
		if other != resource {
			with[other] = write
		}
	}
	return with
}

// How long a controller waits before it repeats a write that was refused. If somebody
// undoes what it writes, pkg/kit/backoff says how long it waits.
const (
	// What the API server refuses may be allowed later by a quota, a policy or a
	// webhook, whose changes the controller does not see.
	firstRetry, slowestRetry = time.Second, time.Minute
	// What the API server calls invalid becomes valid by an edit of the
	// owner, which is seen at once, or of an admission policy.
	retryInvalid = 5 * time.Minute
)

// delay returns how long after the write the same may be requested again.
func (w Write) delay() time.Duration {
	switch {
	case w.IsInvalid:
		return retryInvalid
	case w.Reason != "":
		return backoff.Doubled(firstRetry, w.Count-1, slowestRetry)
	default:
		return backoff.Delay(w.Count)
	}
}

// Wait returns how long it is from now until the same may be requested again.
func (w Write) Wait(now time.Time) time.Duration {
	delay := w.delay()
	return min(delay, max(0, w.At.Add(delay).Sub(now)))
}

// IsContested reports whether somebody has undone this write so often that the
// next repair may well not be the last.
func (w Write) IsContested(now time.Time) bool {
	return w.Reason == "" && w.Count > backoff.Free && w.Wait(now) > 0
}

// accepts reports whether the API server has stored the child with just this drift when
// it was requested to store the same: requesting it again would change nothing.
func (w Write) accepts(child apply.Child) bool {
	return w.Drift != "" && w.UID == child.UID && w.Drift == fingerprintOf(child.Drift) && w.Want == Fingerprint(child)
}

// atOnce is the shortest delay; zero would mean none.
const atOnce = time.Millisecond

// Remember returns the write after a decision to act was carried out, given the last one of
// its kind. live is the object that it was about as it was before; nil if there was none. A
// sync should follow after requeueAfter even if nothing changes, unless that is zero.
func (r Rules) Remember(last Write, d Decision, out Outcome, live metav1.Object, now time.Time) (w Write, requeueAfter time.Duration) {
	w = Write{Want: d.want(), At: now, Count: 1, Contest: r.contest(d, live)}
	if out.Err != nil {
		refusal := r.Refusal(out.Err)
		w.Reason, w.Message, w.IsInvalid = refusal.Reason, refusal.Message, refusal.IsInvalid
	}
	isSame := last.Want == w.Want && (last.Reason == "") == (w.Reason == "")
	if isSame && now.Sub(last.At) < backoff.ForgetAfter {
		w.Count += last.Count
	}
	if written := out.written(); written != nil {
		w.UID = written.GetUID()
		if drift := r.StoredDrift(d, out); len(drift) > 0 {
			w.Drift = fingerprintOf(drift)
		}
		if live != nil && live.GetResourceVersion() == written.GetResourceVersion() {
			requeueAfter = atOnce // no event will follow
		}
	}
	if out.Err != nil {
		requeueAfter = backoff.MinRequeue(requeueAfter, w.delay())
	}
	return w, requeueAfter
}

// StoredDrift returns what the API server has stored otherwise than the decision requested.
func (r Rules) StoredDrift(d Decision, out Outcome) []apply.Difference {
	written := out.written()
	if written == nil || len(d.Children) == 0 {
		return nil
	}
	return r.Compare(apply.Child{Resource: d.Children[0].Resource, Want: d.Children[0].Want}, written).Drift
}
