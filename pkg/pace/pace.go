// Package pace spaces out reports of progress. A rollout moves with every Pod
// that starts, and each move could be a write; people who watch are served as
// well by one write every few seconds. So what has not come to an end yet is
// reported once per window, and what has come to an end is reported at once:
// that needs no question to this package.
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

// maxPerSecond is how many reports of progress all objects may cause together.
const maxPerSecond = 2

// Reports remembers which objects are under way and when each was last reported
// on. It is safe for concurrent use.
type Reports struct {
	window time.Duration
	clock  clock.PassiveClock

	mu       sync.Mutex
	underWay map[cache.ObjectName]report
}

type report struct {
	last time.Time
	due  time.Time // only ever moves away
}

// New returns a Reports without objects. window is the least time between two
// reports of progress on one object.
func New(window time.Duration, c clock.PassiveClock) *Reports {
	return &Reports{window: window, clock: c, underWay: map[cache.ObjectName]report{}}
}

// Began notes that a report has just been written on an object that has not come
// to an end: more is to be expected.
func (r *Reports) Began(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay[name] = report{last: r.clock.Now()}
}

// Ended notes that an object has come to an end, or is gone.
func (r *Reports) Ended(name cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.underWay, name)
}

// Due is how long the next report of progress on the object has to wait; zero
// when it may be written now.
func (r *Reports) Due(name cache.ObjectName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	this, ok := r.underWay[name]
	if !ok {
		return 0
	}
	shared := time.Duration(len(r.underWay)) * time.Second / maxPerSecond
	if due := this.last.Add(max(r.window, shared)); due.After(this.due) {
		this.due = due
		r.underWay[name] = this
	}
	return max(0, this.due.Sub(r.clock.Now()))
}
