// Package throttle decides when a controller may make its next write, so that no object
// causes many writes for long, and all objects together cause few that are not urgent.
//
// Each object has a budget: a number of writes at once, and a few a minute after that. A
// [Pace] reports whether the next write may be made. Urgent writes only have to fit into
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

	"golang.org/x/time/rate"
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

	// linePerSecond is the rate at which a line advances, and lineAtOnce is how many
	// objects may go at once after a pause.
	linePerSecond = 2
	lineAtOnce    = 10
	// urgentPerSecond is the rate of urgent reports up to which other reports do not
	// wait for them. After many urgent reports, the others wait for up to maxDebt more...
	urgentPerSecond = 5
	maxDebt         = time.Minute
	// ... but no report waits for longer than maxWait because of urgent ones.
	maxWait = 5 * time.Minute
	// turnExpires is how long an object may take to use its turn. A write takes less.
	turnExpires = 30 * time.Second
)

// Pace decides which writes may be made now. It is safe for concurrent use.
//
// An object that has to wait is woken when it is its turn, and then has to ask again.
type Pace struct {
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
	writes   *rate.Limiter // its budget
	reported time.Time     // when its status was last written
}

// New returns a Pace. The window is the minimum time between two reports about one object
// that are not urgent. The function wake has to sync the object after a delay; it must not
// call the Pace.
func New(window time.Duration, clock clock.WithDelayedExecution, wake func(name cache.ObjectName, after time.Duration)) *Pace {
	return &Pace{
		window:  window,
		clock:   clock,
		wake:    wake,
		objects: map[cache.ObjectName]*object{},
		reports: newLine(rate.NewLimiter(urgentPerSecond, lineAtOnce)),
		retries: newLine(nil),
	}
}

// Urgent reports whether an urgent write may be made now.
func (p *Pace) Urgent(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasRoom(name, 0)
}

// Report reports whether a status that is not urgent may be written now.
func (p *Pace) Report(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.object(name).reported.Add(p.window).Sub(p.clock.Now()); left > 0 {
		p.wake(name, left)
		return false
	}
	return p.isTurnOf(p.reports, name)
}

// Retry reports whether a write that was refused may be tried again now.
func (p *Pace) Retry(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isTurnOf(p.retries, name)
}

// Wrote records a write other than of the status, and whether it was refused.
func (p *Pace) Wrote(name cache.ObjectName, isRefused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	p.object(name).writes.AllowN(now, 1)
	if isRefused {
		p.retries.spend(now, name)
	}
	p.leave(p.retries, name)
}

// Reported records a write of the object's status.
func (p *Pace) Reported(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	o := p.object(name)
	o.writes.AllowN(now, 1)
	o.reported = now
	p.reports.spend(now, name)
	p.leave(p.reports, name)
}

// NothingToRetry takes the object out of the line of retries.
func (p *Pace) NothingToRetry(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(p.retries, name)
}

// NothingToReport takes the object out of the line of reports.
func (p *Pace) NothingToReport(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(p.reports, name)
}

// Forget drops all state of an object. Call it when the object has been deleted.
func (p *Pace) Forget(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(p.reports, name)
	p.leave(p.retries, name)
	delete(p.objects, name)
}

// object returns the state of an object, with a full budget if it is a new one.
func (p *Pace) object(name cache.ObjectName) *object {
	o := p.objects[name]
	if o == nil {
		o = &object{writes: rate.NewLimiter(rate.Every(objectInterval), objectBudget)}
		p.objects[name] = o
	}
	return o
}

// hasRoom reports whether the object's budget has room for a write and the reserve. If
// not, the object is woken as soon as it has.
func (p *Pace) hasRoom(name cache.ObjectName, reserve float64) bool {
	lacking := 1 + reserve - p.object(name).writes.TokensAt(p.clock.Now())
	if lacking <= 0 {
		return true
	}
	p.wake(name, time.Duration(lacking*float64(objectInterval))+time.Millisecond)
	return false
}

// isTurnOf reports whether it is the object's turn. If not, the object waits in line, or
// is woken as soon as its budget has room.
func (p *Pace) isTurnOf(l *line, name cache.ObjectName) bool {
	if !p.hasRoom(name, objectReserve) {
		p.leave(l, name)
		return false
	}
	now := p.clock.Now()
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
	p.advance(l)
	return false
}

// leave takes the object out of the line, so that the next one can have its turn.
func (p *Pace) leave(l *line, name cache.ObjectName) {
	l.remove(name)
	p.advance(l)
}

// advance gives a turn to every object whose time has come, and sets a timer for the
// next one.
func (p *Pace) advance(l *line) {
	now := p.clock.Now()
	l.expire(now)
	for !l.isEmpty() {
		if wait := l.wait(now); wait > 0 {
			p.advanceAfter(l, wait)
			return
		}
		p.wake(l.grant(now), 0)
	}
}

// advanceAfter advances the line after a delay, unless a timer is set already.
func (p *Pace) advanceAfter(l *line, wait time.Duration) {
	if l.isTimed {
		return
	}
	l.isTimed = true
	// The wait may become shorter in the meantime.
	p.clock.AfterFunc(min(wait, time.Second), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		l.isTimed = false
		p.advance(l)
	})
}
