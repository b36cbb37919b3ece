package kstatus

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// Forever is the patience with what ends by itself, or when somebody does something
// about someone else's object.
const Forever = time.Duration(math.MaxInt64)

// Problem is what keeps an object from becoming Ready. The zero value is none.
type Problem struct {
	Reason   string
	Message  string
	Object   string        // the one that is slow; empty where the reason says it all
	Quiet    bool          // not mentioned until Patience is over
	Patience time.Duration // how long it may last before the object is Stalled
}

// IsLoud reports whether there is a problem that is to be mentioned at once.
func (p Problem) IsLoud() bool { return p.Reason != "" && !p.Quiet }

// isSameAs reports whether other is the same problem as one that is remembered, perhaps
// from the status alone, in other words.
func (p Problem) isSameAs(other Problem) bool {
	return p.Reason == other.Reason && (p.Object == other.Object || p.Object == "" || other.Object == "")
}

// Sight is what is seen of an object at one time.
type Sight struct {
	Now        time.Time
	Generation int64
	Conditions []metav1.Condition // as they were reported last
	Problem    Problem            // what keeps it from becoming Ready
	IsComplete bool               // nothing is left to do for anybody

	// IsProblem reports whether a reason of a condition is that of a problem.
	IsProblem func(reason string) bool
	// Recurring is the reason of problems that only seem to be over between one time and
	// the next, such as a container that crashes. Such a problem is over when the object
	// has been complete for Settle.
	Recurring string
	Settle    time.Duration
}

// History is what a process remembers of an object's problems. The zero value is that of a
// process that has just begun. All times are those of this process: the clocks of nodes and
// of the API server may be ahead or behind.
type History struct {
	Generation int64     // that of the spec that has the problem
	Problem    Problem   // the last one that was seen; the zero value if there was none
	Since      time.Time // when it was first seen; zero if there is none, or this process began later
	Gone       time.Time // since when it is no longer seen; zero while it is
	Complete   time.Time // since when nothing was left to do for anybody; zero while something is
}

// Notice returns the history with what is seen now.
func (h History) Notice(s Sight) History {
	if h.Generation != s.Generation {
		h = recall(s)
	}
	switch {
	case !s.IsComplete:
		h.Complete = time.Time{}
	case h.Complete.IsZero():
		h.Complete = s.Now
	}
	switch {
	case h.Problem.isSameAs(s.Problem):
		h.Problem, h.Gone = s.Problem, time.Time{}
	case h.lingers(s):
		if h.Gone.IsZero() {
			h.Gone = s.Now
		}
	default:
		h.Problem, h.Since, h.Gone = s.Problem, s.Now, time.Time{}
	}
	if h.Problem == (Problem{}) {
		h.Since = time.Time{}
	}
	return h
}

// recall returns what a process that has just begun learns from the conditions: a problem
// by which the object was Stalled has lasted long enough.
func recall(s Sight) History {
	h := History{Generation: s.Generation, Since: s.Now}
	ready := meta.FindStatusCondition(s.Conditions, string(Ready))
	if ready == nil || ready.Status == metav1.ConditionTrue || ready.ObservedGeneration != s.Generation || !s.IsProblem(ready.Reason) {
		return h
	}
	h.Problem = Problem{Reason: ready.Reason, Message: ready.Message}
	if meta.IsStatusConditionTrue(s.Conditions, string(Stalled)) {
		h.Since = time.Time{}
	}
	return h
}

// lingers reports whether the remembered problem may only seem to be over. A
// container that crashes runs well for a moment in each round.
func (h History) lingers(s Sight) bool {
	if h.Problem.Reason == "" || h.Problem.Reason != s.Recurring || s.Problem.IsLoud() {
		return false
	}
	return s.Now.Before(h.settledAt(s.Now).Add(s.Settle))
}

// settledAt returns since when the object has been well after a problem that recurs.
func (h History) settledAt(now time.Time) time.Time {
	switch {
	case !h.Complete.IsZero():
		return h.Complete
	case !h.Gone.IsZero():
		return h.Gone
	default:
		return now
	}
}

// StallsIn returns how long it is until the object is Stalled by the remembered
// problem; zero if it is already. never is true if it will not be.
func (h History) StallsIn(now time.Time) (left time.Duration, never bool) {
	if h.Problem.Reason == "" || h.Problem.Patience == Forever {
		return 0, true
	}
	return max(0, h.Since.Add(h.Problem.Patience).Sub(now)), false
}

// RequeueAfter returns when something changes by the mere passing of time; zero if nothing
// does. settle is that of the last [Sight].
func (h History) RequeueAfter(now time.Time, settle time.Duration) (next time.Duration) {
	if left, never := h.StallsIn(now); !never {
		next = left
	}
	if !h.Gone.IsZero() {
		next = backoff.MinRequeue(next, h.settledAt(now).Add(settle).Sub(now))
	}
	return next
}

// Conclude returns what to say about the remembered problem, and whether there is anything
// to say: a problem that has lasted too long, or one that is mentioned at once.
func (h History) Conclude(now time.Time) (c Conclusion, ok bool) {
	left, never := h.StallsIn(now)
	switch {
	case h.Problem.Reason != "" && !never && left == 0:
		return Conclusion{Stalled, h.Problem.Reason, h.Problem.Message}, true
	case h.Problem.IsLoud():
		return Conclusion{Reconciling, h.Problem.Reason, h.Problem.Message}, true
	}
	return Conclusion{}, false
}
