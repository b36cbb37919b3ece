// Package pace spaces out reports that are not urgent. A rollout moves with every
// Pod that starts, and each move could be a write; people who watch are served as
// well by one write every few seconds. So what has not come to an end yet is
// reported once per window; what has, is reported at once, and need not ask here.
//
// When many objects are under way at the same time, their windows grow so that
// all their reports together stay below a rate. A rollout costs the clients of
// kube-controller-manager about five requests, and by default they make 20 a
// second: a hundred rollouts at once take half a minute, and in the middle of
// them there is nothing to tell about each that its end will not tell soon.
package pace

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// maxPerSecond is how many reports all objects under way may cause together.
const maxPerSecond = 2

// Reports remembers when each object was last reported on, and which of them are
// under way. It is safe for concurrent use.
type Reports struct {
	window time.Duration
	clock  clock.PassiveClock

	mu       sync.Mutex
	reports  map[cache.ObjectName]report
	underWay int
}

type report struct {
	last       time.Time
	due        time.Time // only ever moves away
	isUnderWay bool
}

// New returns a Reports without objects. window is the least time between two
// reports on one object, unless they are urgent.
func New(window time.Duration, c clock.PassiveClock) *Reports {
	return &Reports{window: window, clock: c, reports: map[cache.ObjectName]report{}}
}

// Due is how long the next report on the object has to wait if it is not urgent;
// zero when it may be written now.
func (r *Reports) Due(name cache.ObjectName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	this, ok := r.reports[name]
	if !ok {
		return 0
	}
	window := r.window
	if this.isUnderWay {
		window = max(window, time.Duration(r.underWay)*time.Second/maxPerSecond)
	}
	if due := this.last.Add(window); due.After(this.due) {
		this.due = due
		r.reports[name] = this
	}
	return max(0, this.due.Sub(r.clock.Now()))
}

// Wrote notes that a report on the object has just been written, and whether the
// object is under way, so that more is to be expected soon.
func (r *Reports) Wrote(name cache.ObjectName, isUnderWay bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(name)
	r.reports[name] = report{last: r.clock.Now(), isUnderWay: isUnderWay}
	if isUnderWay {
		r.underWay++
	}
}

// Forget drops what is remembered of an object. Call it when the object is gone.
func (r *Reports) Forget(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(name)
}

func (r *Reports) forget(name cache.ObjectName) {
	if r.reports[name].isUnderWay {
		r.underWay--
	}
	delete(r.reports, name)
}
