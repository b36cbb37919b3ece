// Package pacing decides when a controller may make its next write for an object, so that
// no object causes many writes for long, whatever others do to it, and all objects together
// cause few status writes that are not urgent.
//
// People who watch an object are served just as well by one report every few seconds. And
// most progress is old news soon: in the middle of a hundred rollouts, a report that one of
// them has started says little that its completion does not say a second later.
package pacing

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

const (
	// Each object may cause so many writes at once, and then one per objectInterval.
	objectBurst    = 30
	objectInterval = 10 * time.Second
	// All objects together may write so many reports a second that are not urgent, minus
	// those that are, and sharedBurst at once after a pause ...
	sharedPerSecond = 2
	sharedBurst     = 10
	// ... but after this, a report no longer waits for others. As each wait is at most half as
	// long again as what has passed, no report waits for longer than five minutes.
	patience = 2 * time.Minute
	// minWait is the least time after which to ask again.
	minWait = 100 * time.Millisecond
)

// Limiter decides when writes may be made. It is safe for concurrent use.
type Limiter struct {
	window time.Duration
	shared *rate.Limiter

	mu      sync.Mutex
	objects map[cache.ObjectName]*object
}

// object is what is known of one object's writes.
type object struct {
	budget *rate.Limiter
	last   time.Time // when its status was last written
	asked  time.Time // since when a report that is not urgent waits; zero if none does
}

// New returns a Limiter. The window is the minimum time between two reports about one object
// that are not urgent. Such a report also waits for half a window after it was first asked
// for, because a later one often makes it unnecessary.
func New(window time.Duration) *Limiter {
	return &Limiter{window: window, shared: rate.NewLimiter(sharedPerSecond, sharedBurst), objects: map[cache.ObjectName]*object{}}
}

// Write returns 0 if a write other than of the status may be made now, which then counts.
// Otherwise it returns after what time to ask again.
func (l *Limiter) Write(name cache.ObjectName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.object(name).spend(time.Now())
}

// Report returns 0 if the status of the object may be written now, which then counts.
// Otherwise it returns after what time to ask again.
func (l *Limiter) Report(name cache.ObjectName, isUrgent bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, now := l.object(name), time.Now()
	if !isUrgent {
		if left := l.waitOf(o, now); left > 0 {
			return left
		}
	}
	left := o.spend(now)
	if left == 0 {
		l.shared.AllowN(now, 1) // Urgent reports do not wait for others, but others wait for them.
		o.last, o.asked = now, time.Time{}
	}
	return left
}

// waitOf returns how long a report that is not urgent has to wait: 0 if it need not.
func (l *Limiter) waitOf(o *object, now time.Time) time.Duration {
	if o.asked.IsZero() {
		o.asked = now
	}
	if left := max(o.last.Add(l.window).Sub(now), o.asked.Add(l.window/2).Sub(now)); left > 0 {
		return left
	}
	waited := now.Sub(o.asked)
	if l.shared.TokensAt(now) >= 1 || waited >= patience {
		return 0
	}
	return wait.Jitter(max(waited, minWait), 0.5) // Each time about twice as long.
}

// object returns what is known of an object.
func (l *Limiter) object(name cache.ObjectName) *object {
	o := l.objects[name]
	if o == nil {
		o = &object{budget: rate.NewLimiter(rate.Every(objectInterval), objectBurst)}
		l.objects[name] = o
	}
	return o
}

// spend takes a write from the object's budget. It returns how long that takes: 0 if there
// was one.
func (o *object) spend(now time.Time) time.Duration {
	reservation := o.budget.ReserveN(now, 1)
	left := reservation.DelayFrom(now)
	if left > 0 {
		reservation.CancelAt(now)
	}
	return left
}

// Cancel says that there is nothing to report about the object.
func (l *Limiter) Cancel(name cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.objects[name]; o != nil {
		o.asked = time.Time{}
	}
}

// Forget drops what is known of an object that is gone.
func (l *Limiter) Forget(name cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.objects, name)
}
