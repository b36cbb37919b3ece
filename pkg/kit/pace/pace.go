// Package pace decides when a write can be repeated and when a status can be reported again. It remembers the last
// write and the last report of each object.
//
// A new wish is written at once. It is written again if the API server refused it, or if someone reverted it: no earlier
// than 1 s after the first write, 2 s after the second, and so on up to 5 minutes. The pauses start over after ten
// minutes without a write, and when a refusal follows an accepted write or the reverse.
//
// Writes that failed because of the server or the connection are not paced here: the loop backs off (see package
// worker). They are remembered only to know how long writes have failed.
//
// All of this is in memory. A new process writes a refused or reverted wish at once, and calls a wish contested only
// after four accepted writes of its own.
package pace

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	quiet        = 2 * longestPause // without a write; then the pauses start over
	contested    = 4                // accepted writes in a row
	patience     = 10 * time.Second // before failures other than refusals are reported
	reportPeriod = 2 * time.Second
)

// Wish identifies what a write asks for.
type Wish struct {
	Digest string // of everything but the scale
	Scale  int32  // a number that changes alone, often by an autoscaler; 0 for kinds without one
}

// Attempt is the last write for an object, and its outcome. The zero value stands for no write.
type Attempt struct {
	Wish    Wish
	Failure error     // why nothing was stored, at most 1 kB; nil if something was
	Count   int       // how many writes in a row had this wish and outcome
	Since   time.Time // when the first of them was
	At      time.Time // when the last of them was
}

// Then returns the attempt after a: a write of wish that failed with failure, or was stored if failure is nil. A new
// scale does not restart the count of refusals and failures: otherwise an autoscaler would undo the back-off.
func (a Attempt) Then(wish Wish, failure error, now time.Time) Attempt {
	next := Attempt{Wish: wish, Failure: response.Brief(failure), Count: 1, Since: now, At: now}
	isAgain := a.Wish == wish || failure != nil && a.Wish.Digest == wish.Digest
	if isAgain && a.outcome() == refused && next.outcome() == failed {
		return a // Whether it would be refused again is not known.
	}
	if isAgain && a.outcome() == next.outcome() && now.Sub(a.At) < quiet {
		next.Count, next.Since = a.Count+1, a.Since
	}
	return next
}

// Wait returns how long to wait before wish is written.
func (a Attempt) Wait(wish Wish, now time.Time) time.Duration {
	if a.Count == 0 || a.Wish != wish || a.outcome() == failed {
		return 0
	}
	pause := pauseAfter(a.Count)
	return min(pause, max(0, a.At.Add(pause).Sub(now))) // also if the clock was set back
}

// pauseAfter returns the pause after count writes in a row.
func pauseAfter(count int) time.Duration {
	if doublings := count - 1; doublings < 9 {
		return min(longestPause, firstPause<<doublings)
	}
	return longestPause
}

// IsContested reports whether someone keeps reverting the wish. It is true after four accepted writes in a row, while the
// wish is reverted (even if the next write has to wait) or the last write is less than a minute old. So it ends only when
// a write has stayed for a minute. quietAfter is the rest of that minute.
func (a Attempt) IsContested(isReverted bool, now time.Time) (isContested bool, quietAfter time.Duration) {
	if a.Count < contested || a.outcome() != accepted {
		return false, 0
	}
	quietAfter = min(time.Minute, max(0, a.At.Add(time.Minute).Sub(now)))
	return isReverted || quietAfter > 0, quietAfter
}

// IsWorthTelling reports whether users should hear of the failure: the API server has refused the
// wish, or writes have failed for ten seconds.
func (a Attempt) IsWorthTelling() bool {
	return a.outcome() == refused || a.outcome() == failed && a.At.Sub(a.Since) >= patience
}

type outcome int

const (
	accepted outcome = iota
	refused
	failed
)

func (a Attempt) outcome() outcome {
	switch {
	case a.Failure == nil:
		return accepted
	case response.IsRefusal(a.Failure):
		return refused
	default:
		return failed
	}
}

// Attempts remembers the last write and the last report of each object. It is safe for concurrent use.
type Attempts struct{ records sync.Map } // record by name

type record struct {
	uid      types.UID
	attempt  Attempt
	reported time.Time // when its status was last written, or refused
	refusals int       // how often in a row its status was refused
	oldNews  string    // the news of the refused status
}

// Last returns the last attempt for an object. An object with another UID has none.
func (a *Attempts) Last(of metav1.Object) Attempt { return a.record(of).attempt }

// Settle notes that nothing is left to write for an object, and forgets a failure.
func (a *Attempts) Settle(of metav1.Object) {
	if r := a.record(of); r.attempt.Failure != nil {
		a.Note(of, Attempt{})
	}
}

// Note remembers the last attempt for an object.
func (a *Attempts) Note(of metav1.Object, last Attempt) {
	r := a.record(of)
	r.attempt = last
	a.records.Store(cache.MetaObjectToName(of), r)
}

// ReportAfter returns how long a report about an object must wait: 0 if it is urgent and the last report was accepted,
// otherwise until two seconds after that one.
func (a *Attempts) ReportAfter(of metav1.Object, isUrgent bool, now time.Time) time.Duration {
	r := a.record(of)
	if isUrgent && r.refusals == 0 {
		return 0
	}
	return min(reportPeriod, max(0, r.reported.Add(reportPeriod).Sub(now)))
}

// NoteReport notes that a report was written, or refused. isNew is false if the last report was refused, too, and had
// the same news, such as the reason of an event. again is when to retry a refused report: after 1 s, then twice as long
// each time, up to 5 minutes.
func (a *Attempts) NoteReport(of metav1.Object, refusal error, news string, now time.Time) (isNew bool, again time.Duration) {
	r := a.record(of)
	isNew = refusal == nil || r.oldNews != news
	if refusal == nil {
		r.refusals, r.oldNews = 0, ""
	} else {
		r.refusals, r.oldNews = r.refusals+1, news
		again = pauseAfter(r.refusals)
	}
	r.reported = now
	a.records.Store(cache.MetaObjectToName(of), r)
	return isNew, again
}

// Forget drops everything about an object that is gone.
func (a *Attempts) Forget(name cache.ObjectName) { a.records.Delete(name) }

func (a *Attempts) record(of metav1.Object) record {
	if found, ok := a.records.Load(cache.MetaObjectToName(of)); ok && found.(record).uid == of.GetUID() {
		return found.(record)
	}
	return record{uid: of.GetUID()}
}

// Sooner returns the shorter of two delays until the next look at an object. 0 means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
