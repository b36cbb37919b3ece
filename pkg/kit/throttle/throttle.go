// Package throttle decides when a controller may make its next write, so that no object
// causes many writes for long, and all objects together cause few that are not urgent.
//
// Each object has a budget: a number of writes at once, and a few a minute after that. A
// [Limiter] reports whether the next write may be made. Urgent writes only have to fit into
// the object's budget. Writes that are not urgent leave a part of that budget to urgent
// ones, and also wait in a line with those of other objects. There are two lines: one for
// reports (status writes about progress or with a new message), and one for retries of
// writes that were refused. Each line advances at a fixed rate. Namespaces take turns, and
// within a namespace the first to come is the first served, so a namespace where every
// write is refused delays no other. A retry counts toward the rate only if it is refused
// again. So when an obstacle that many objects had in common is gone, all of them proceed
// at once.
//
// One report every few seconds serves the people who watch an object just as well. And a
// rollout costs the clients of kube-controller-manager about five requests, of which they
// make 20 a second by default, so in the middle of a hundred rollouts a report about the
// progress of one says little that its completion will not say soon. So when there are
// many urgent reports, they go first, and the others wait, though never for longer than
// five minutes.
package throttle

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// objectBudget is how many writes an object may have at once. After that, it may
	// have one per objectInterval.
	objectBudget   = 30
	objectInterval = 10 * time.Second
	// objectReserve is the part of objectBudget that only urgent writes may use.
	objectReserve = 20

	// A line advances by one object per lineInterval, and lineAtOnce is how many objects
	// may go at once after a pause.
	lineInterval = time.Second / 2
	lineAtOnce   = 10
	// Up to one urgent report per urgentInterval, other reports do not wait for them. After
	// many urgent reports, the others wait for up to maxDebt more...
	urgentInterval = time.Second / 5
	maxDebt        = time.Minute
	// ... but no report waits for longer than maxWait because of urgent ones.
	maxWait = 5 * time.Minute
	// turnExpires is how long an object may take to use its turn. A write takes less.
	turnExpires = 30 * time.Second
)

// Limiter decides which writes may be made now. It is safe for concurrent use.
//
// An object that has to wait is woken when it is its turn, and then has to ask again.
type Limiter struct {
	window time.Duration
	clock  clock.WithDelayedExecution
	wake   func(name cache.ObjectName, after time.Duration)

	mu      sync.Mutex
	objects map[cache.ObjectName]*object
	reports *line
	retries *line
}

// object is the state of one object.
type object struct {
	writes   *bucket   // its budget
	reported time.Time // when its status was last written
	asked    time.Time // when a report that is not urgent was first asked for since then
}

// New returns a Limiter. The window is the minimum time between two reports about one object
// that are not urgent. Such a report also waits for half a window after AllowReport has been
// called for it, because a later one often makes it unnecessary. The function wake has to
// sync the object after a delay; it must not call the Limiter.
func New(window time.Duration, clock clock.WithDelayedExecution, wake func(name cache.ObjectName, after time.Duration)) *Limiter {
	return &Limiter{
		window:  window,
		clock:   clock,
		wake:    wake,
		objects: map[cache.ObjectName]*object{},
		reports: newLine(&bucket{interval: urgentInterval, size: lineAtOnce}),
		retries: newLine(nil),
	}
}

// AllowUrgent reports whether an urgent write may be made now.
func (t *Limiter) AllowUrgent(name cache.ObjectName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasRoom(name, 0)
}

// AllowReport reports whether a status that is not urgent may be written now.
func (t *Limiter) AllowReport(name cache.ObjectName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	o, now := t.object(name), t.clock.Now()
	if o.asked.IsZero() {
		o.asked = now
	}
	if left := max(o.reported.Add(t.window).Sub(now), o.asked.Add(t.window/2).Sub(now)); left > 0 {
		t.wake(name, left)
		return false
	}
	return t.isTurnOf(t.reports, name)
}

// AllowRetry reports whether a write that was refused may be tried again now.
func (t *Limiter) AllowRetry(name cache.ObjectName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isTurnOf(t.retries, name)
}

// Wrote records a write other than of the status, and whether it was refused.
func (t *Limiter) Wrote(name cache.ObjectName, isRefused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	t.object(name).writes.takeAny(now)
	if isRefused {
		t.retries.spend(now, name)
	}
	t.leave(t.retries, name)
}

// Reported records a write of the object's status.
func (t *Limiter) Reported(name cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	o := t.object(name)
	o.writes.takeAny(now)
	o.reported, o.asked = now, time.Time{}
	t.reports.spend(now, name)
	t.leave(t.reports, name)
}

// CancelRetry takes the object out of the line of retries.
func (t *Limiter) CancelRetry(name cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(t.retries, name)
}

// CancelReport takes the object out of the line of reports.
func (t *Limiter) CancelReport(name cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[name]; o != nil {
		o.asked = time.Time{}
	}
	t.leave(t.reports, name)
}

// Forget drops all state of an object. Call it when the object has been deleted.
func (t *Limiter) Forget(name cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(t.reports, name)
	t.leave(t.retries, name)
	delete(t.objects, name)
}

// object returns the state of an object, with a full budget if it is a new one.
func (t *Limiter) object(name cache.ObjectName) *object {
	o := t.objects[name]
	if o == nil {
		o = &object{writes: &bucket{interval: objectInterval, size: objectBudget}}
		t.objects[name] = o
	}
	return o
}

// hasRoom reports whether the object's budget has room for a write and the reserve. If
// not, the object is woken as soon as it has.
func (t *Limiter) hasRoom(name cache.ObjectName, reserve int) bool {
	wait := atLeast(t.object(name).writes.until(t.clock.Now(), 1+reserve))
	if wait == 0 {
		return true
	}
	t.wake(name, wait)
	return false
}

// isTurnOf reports whether it is the object's turn. If not, the object waits in line, or
// is woken as soon as its budget has room.
func (t *Limiter) isTurnOf(l *line, name cache.ObjectName) bool {
	if !t.hasRoom(name, objectReserve) {
		t.leave(l, name)
		return false
	}
	now := t.clock.Now()
	l.expire(now)
	if !l.hasTurn(name) {
		l.join(name, now)
		if l.next().name == name && l.wait(now) <= 0 {
			l.grant(now)
		}
	}
	if l.hasTurn(name) {
		l.turns[name] = now // as it is about to be used
		return true
	}
	t.advance(l)
	return false
}

// leave takes the object out of the line, so that the next one can have its turn.
func (t *Limiter) leave(l *line, name cache.ObjectName) {
	l.remove(name)
	t.advance(l)
}

// advance gives a turn to every object whose time has come, and sets a timer for the
// next one.
func (t *Limiter) advance(l *line) {
	now := t.clock.Now()
	l.expire(now)
	for !l.isEmpty() {
		if wait := l.wait(now); wait > 0 {
			t.advanceAfter(l, wait)
			return
		}
		t.wake(l.grant(now), 0)
	}
}

// advanceAfter advances the line after a delay, unless a timer is set already.
func (t *Limiter) advanceAfter(l *line, wait time.Duration) {
	if l.timer != nil {
		return
	}
	// The wait may become shorter in the meantime.
	l.timer = t.clock.AfterFunc(min(wait, time.Second), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		l.timer = nil
		t.advance(l)
	})
}
