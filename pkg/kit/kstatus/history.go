package kstatus

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// Forever is a deadline that never passes.
const Forever = time.Duration(math.MaxInt64)

// Problem is what keeps an object from becoming Ready. The zero value is none.
type Problem struct{ Reason, Message string }

// Sight is what is seen of an object at one time.
type Sight struct {
	Now        time.Time
	Generation int64
	Conditions []metav1.Condition // as they were reported last
	Progress   int64              // how far the object has come; a new maximum is progress
	Problem    Problem            // what keeps it from becoming Ready
	IsComplete bool               // nothing is left to do for anybody
	// Recurs reports whether problems with this reason come and go, as when a container crashes
	// and is restarted. Such a problem is over only when the object has been without it for
	// Settle, whatever else goes wrong in the meantime.
	Recurs func(reason string) bool
	Settle time.Duration
}

// History is what a process remembers of the progress of an object. The zero value is that of a
// process that has just begun. All times are those of this process: the clocks of nodes and of the
// API server may be ahead or behind.
type History struct {
	Generation int64     // of the spec that it is about
	Since      time.Time // the last progress, edit, or end of being complete; zero: longer ago than any deadline
	Most       int64     // the maximum progress since then
	IsDone     bool      // nothing was left to do for anybody, and no problem recurs

	Recurring   Problem   // the last problem that recurs; the zero value if there was none, or it is over
	Well        time.Time // since when it is no longer seen; zero while it is
	WasComplete bool      // nothing was left to do for anybody
}

// Notice returns the history with what is seen now.
func (h History) Notice(s Sight) History {
	if h.Generation != s.Generation {
		h = recall(s)
	}
	h = h.noticeProblem(s)
	switch {
	case s.IsComplete && h.Recurring == Problem{}:
		h.IsDone = true
	case h.IsDone || s.Progress > h.Most:
		h.IsDone, h.Since, h.Most = false, s.Now, s.Progress
	}
	h.WasComplete = s.IsComplete
	return h
}

// recall returns the history of an object with another spec, or that of a process that has just
// begun. Such a process knows from the conditions whether the deadline has passed.
func recall(s Sight) History {
	h := History{Generation: s.Generation, Since: s.Now, Most: s.Progress}
	ready := meta.FindStatusCondition(s.Conditions, string(Ready))
	if ready == nil || ready.Status == metav1.ConditionTrue || ready.ObservedGeneration != s.Generation {
		return h
	}
	if meta.IsStatusConditionTrue(s.Conditions, string(Stalled)) {
		h.Since = time.Time{}
	}
	if s.Recurs(ready.Reason) {
		h.Recurring = Problem{ready.Reason, ready.Message}
	}
	return h
}

// noticeProblem remembers a problem that recurs until the object has been without it for a while.
func (h History) noticeProblem(s Sight) History {
	switch {
	case s.Recurs(s.Problem.Reason) && (h.Recurring == Problem{} || h.Recurring.Reason == s.Problem.Reason):
		h.Recurring, h.Well = s.Problem, time.Time{}
	case h.Recurring == Problem{}:
	case h.Well.IsZero() || h.WasComplete != s.IsComplete:
		h.Well = s.Now
	case !s.Now.Before(h.Well.Add(s.Settle)):
		h.Recurring, h.Well = Problem{}, time.Time{}
		return h.noticeProblem(s)
	}
	return h
}

// Left returns how long it is until a deadline has passed since the last progress; 0 if it has, and
// [Forever] if it never will.
func (h History) Left(now time.Time, deadline time.Duration) time.Duration {
	if deadline == Forever {
		return Forever
	}
	return max(0, h.Since.Add(deadline).Sub(now))
}

// RequeueAfter returns when something changes by the mere passing of time; 0 if nothing does.
// Nothing depends on the deadlines of an object that is done.
func (h History) RequeueAfter(now time.Time, settle time.Duration, deadlines ...time.Duration) (next time.Duration) {
	if !h.Well.IsZero() {
		next = h.Well.Add(settle).Sub(now)
	}
	if h.IsDone {
		return next
	}
	for _, deadline := range deadlines {
		if left := h.Left(now, deadline); left != Forever {
			next = backoff.MinRequeue(next, left)
		}
	}
	return next
}
