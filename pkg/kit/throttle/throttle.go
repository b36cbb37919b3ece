// Package throttle spaces out writes, so that no object causes many of them for long,
// whatever others do, and all objects together cause few that are not urgent.
//
// Each object may have a number of writes at once and a few a minute after that,
// also urgent ones: a [Pace] says whether the next may be made. What is not urgent
// leaves room for what is, and stands in line with its like of the other objects:
// reports of progress and of new words, and retries of what was refused. Each line
// moves at a fixed rate. One namespace after the other has its turn, and in each
// whoever came first: a namespace where everything is refused holds up no other.
// What was refused uses up the line's rate and what succeeds does not, so whatever
// stood in the way of many objects, when it is gone they all go on at once.
//
// People who watch are served as well by one report every few seconds. And a
// rollout costs the clients of kube-controller-manager about five requests, of
// which they make 20 a second by default: in the middle of a hundred rollouts,
// there is nothing to tell about each that its end will not tell soon. So a great
// number of urgent reports goes first, and the others wait, but for no longer than
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
	// An object may have this many writes at once, and then one per interval.
	objectBurst    = 30
	objectInterval = 10 * time.Second
	// What is not urgent leaves as many of them to what is.
	objectReserve = 20

	// All objects together may have this many writes that are not urgent, for
	// each kind, and after a while without any so many at once.
	maxPerSecond = 2
	maxAtOnce    = 10
	// Reports wait while more than this many urgent ones are made, and for some time
	// after a great number of them, ...
	urgentPerSecond = 5
	maxDebt         = time.Minute
	// ... but never for longer than this.
	maxWait = 5 * time.Minute
	// Who has not used its turn for this long has lost it. Writes take less.
	turn = 30 * time.Second
)

// Pace says when what may be written. It is safe for concurrent use.
//
// Whoever was told to wait is woken when it is time, and then asks again.
type Pace struct {
	window time.Duration
	clock  clock.WithDelayedExecution
	wake   func(name cache.ObjectName, after time.Duration)

	mu      sync.Mutex
	objects map[cache.ObjectName]*object
	reports *line
	retries *line
}

// object is what is known about the writes of one object.
type object struct {
	writes   *rate.Limiter
	reported time.Time // when its status was last written
}

// New returns a Pace without objects. window is the least time between two reports
// on one object that are not urgent. wake has the object looked at after a delay;
// it must not call the Pace.
func New(window time.Duration, clock clock.WithDelayedExecution, wake func(name cache.ObjectName, after time.Duration)) *Pace {
	return &Pace{
		window:  window,
		clock:   clock,
		wake:    wake,
		objects: map[cache.ObjectName]*object{},
		reports: newLine(rate.NewLimiter(urgentPerSecond, maxAtOnce)),
		retries: newLine(nil),
	}
}

// Urgent reports whether something urgent may be written about the object.
func (p *Pace) Urgent(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasRoom(name, 0)
}

// Report reports whether a status that is not urgent may be written.
func (p *Pace) Report(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.object(name).reported.Add(p.window).Sub(p.clock.Now()); left > 0 {
		p.wake(name, left)
		return false
	}
	return p.isTurnOf(p.reports, name)
}

// Retry reports whether a write may be tried again that was refused before.
func (p *Pace) Retry(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isTurnOf(p.retries, name)
}

// Wrote notes that something other than the status has been written for the
// object, or was refused.
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

// Reported notes that the object's status has been written.
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

// NothingToRetry gives up the object's place in line for a retry.
func (p *Pace) NothingToRetry(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(p.retries, name)
}

// NothingToReport gives up the object's place in line for a report.
func (p *Pace) NothingToReport(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(p.reports, name)
}

// Forget drops what is known of an object. Call it when the object is gone.
func (p *Pace) Forget(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(p.reports, name)
	p.leave(p.retries, name)
	delete(p.objects, name)
}

func (p *Pace) object(name cache.ObjectName) *object {
	o := p.objects[name]
	if o == nil {
		o = &object{writes: rate.NewLimiter(rate.Every(objectInterval), objectBurst)}
		p.objects[name] = o
	}
	return o
}

// hasRoom reports whether the object may have another write that leaves so many
// more to others. If not, it is woken when it may.
func (p *Pace) hasRoom(name cache.ObjectName, reserve float64) bool {
	lacking := 1 + reserve - p.object(name).writes.TokensAt(p.clock.Now())
	if lacking <= 0 {
		return true
	}
	p.wake(name, time.Duration(lacking*float64(objectInterval))+time.Millisecond)
	return false
}

// isTurnOf reports whether it is the object's turn. If not, it stands in line, or is
// woken when it may.
func (p *Pace) isTurnOf(l *line, name cache.ObjectName) bool {
	if !p.hasRoom(name, objectReserve) {
		p.leave(l, name)
		return false
	}
	now := p.clock.Now()
	l.expire(now)
	if !l.hasTurn(name) {
		l.join(name, now)
		if l.next().name == name && l.left(now) <= 0 {
			l.grant(now)
		}
	}
	if l.hasTurn(name) {
		l.turns[name] = now // it is about to use it
		return true
	}
	p.move(l)
	return false
}

// leave takes the object out of the line, so that the next one may have its turn.
func (p *Pace) leave(l *line, name cache.ObjectName) {
	l.drop(name)
	p.move(l)
}

// move gives their turn to as many as it is the time of, and comes back when it is
// the time of the next.
func (p *Pace) move(l *line) {
	now := p.clock.Now()
	l.expire(now)
	for !l.isEmpty() {
		if left := l.left(now); left > 0 {
			p.moveAfter(l, left)
			return
		}
		p.wake(l.grant(now), 0)
	}
}

func (p *Pace) moveAfter(l *line, wait time.Duration) {
	if l.isTimed {
		return
	}
	l.isTimed = true
	// What it waits for may be over sooner.
	p.clock.AfterFunc(min(wait, time.Second), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		l.isTimed = false
		p.move(l)
	})
}
