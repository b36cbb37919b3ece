// Package pace spaces out writes, so that no object causes many of them for long,
// whatever others do, and all objects together cause few that are not urgent.
//
// Each object may have a number of writes at once and a few a minute after that,
// also urgent ones: a [Pace] says whether the next may be made. What is not urgent
// leaves room for what is, and stands in line with its like of the other objects:
// reports of progress and of new words, and retries of what was refused. Each line
// moves at a fixed rate, first come, first served. What was refused uses up the
// line's rate and what succeeds does not, so whatever stood in the way of many
// objects, when it is gone they all go on at once.
//
// People who watch are served as well by one report every few seconds. And a
// rollout costs the clients of kube-controller-manager about five requests, of
// which they make 20 a second by default: in the middle of a hundred rollouts,
// there is nothing to tell about each that its end will not tell soon. So a great
// number of urgent writes goes first, and the lines wait, but for no longer than
// five minutes.
package pace

import (
	"container/list"
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
	// They wait while more than this many urgent ones are made, and for some time
	// after a great number of them, ...
	urgentPerSecond = 5
	maxDebt         = time.Minute
	// ... but never for longer than this.
	maxWait = 5 * time.Minute
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
	reports line
	retries line
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
	p := &Pace{window: window, clock: clock, wake: wake, objects: map[cache.ObjectName]*object{}}
	for _, l := range []*line{&p.reports, &p.retries} {
		l.rate = rate.NewLimiter(maxPerSecond, maxAtOnce)
		l.urgent = rate.NewLimiter(urgentPerSecond, maxAtOnce)
		l.places = map[cache.ObjectName]*list.Element{}
		l.granted = map[cache.ObjectName]bool{}
	}
	return p
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
	return p.hasRoom(name, objectReserve) && p.isTurnOf(&p.reports, name)
}

// Retry reports whether a write may be tried again that was refused before.
func (p *Pace) Retry(name cache.ObjectName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasRoom(name, objectReserve) && p.isTurnOf(&p.retries, name)
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
	p.leave(&p.retries, name)
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
	p.leave(&p.reports, name)
}

// NothingToRetry gives up the object's place in line for a retry.
func (p *Pace) NothingToRetry(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(&p.retries, name)
}

// NothingToReport gives up the object's place in line for a report.
func (p *Pace) NothingToReport(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(&p.reports, name)
}

// Forget drops what is known of an object. Call it when the object is gone.
func (p *Pace) Forget(name cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(&p.reports, name)
	p.leave(&p.retries, name)
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

// isTurnOf reports whether it is the object's turn. If not, it stands in line.
func (p *Pace) isTurnOf(l *line, name cache.ObjectName) bool {
	if l.granted[name] {
		return true
	}
	now := p.clock.Now()
	l.join(name, now)
	if l.first() == name && l.left(now) <= 0 {
		l.grant()
		return true
	}
	p.move(l)
	return false
}

// leave takes the object out of the line, so that the next one may have its turn.
func (p *Pace) leave(l *line, name cache.ObjectName) {
	delete(l.granted, name)
	l.drop(name)
	p.move(l)
}

// move gives their turn to as many as it is the time of, and comes back when it is
// the time of the next.
func (p *Pace) move(l *line) {
	for l.waiting.Len() > 0 {
		if left := l.left(p.clock.Now()); left > 0 {
			p.moveAfter(l, left)
			return
		}
		p.wake(l.grant(), 0)
	}
}

func (p *Pace) moveAfter(l *line, wait time.Duration) {
	if l.isTimed {
		return
	}
	l.isTimed = true
	p.clock.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		l.isTimed = false
		p.move(l)
	})
}

// line is where objects wait for what all of them together may do at a rate.
type line struct {
	rate    *rate.Limiter // of what goes through the line
	urgent  *rate.Limiter // of what goes past it
	waiting list.List     // of places; the first has waited longest
	places  map[cache.ObjectName]*list.Element
	granted map[cache.ObjectName]bool // it is their turn, and they have not used it yet
	isTimed bool                      // it moves again when a timer fires
}

// place is one object's in a line.
type place struct {
	name  cache.ObjectName
	since time.Time
}

// left is how long it is until the first in line may have its turn.
func (l *line) left(now time.Time) time.Duration {
	own := duration(1+float64(len(l.granted))-l.rate.TokensAt(now), maxPerSecond)
	others := duration(1-l.urgent.TokensAt(now), urgentPerSecond)
	waited := now.Sub(l.waiting.Front().Value.(place).since)
	return max(0, own, min(others, maxWait-waited))
}

// duration is how long it takes to earn so many tokens.
func duration(tokens float64, perSecond float64) time.Duration {
	if tokens <= 0 {
		return 0
	}
	return time.Duration(tokens/perSecond*float64(time.Second)) + time.Millisecond
}

// spend takes a token for a write, which may have to be earned afterwards.
func (l *line) spend(now time.Time, name cache.ObjectName) {
	limiter, perSecond := l.urgent, float64(urgentPerSecond)
	if l.granted[name] {
		limiter, perSecond = l.rate, maxPerSecond
	}
	if limiter.TokensAt(now) > -maxDebt.Seconds()*perSecond {
		limiter.ReserveN(now, 1)
	}
}

func (l *line) join(name cache.ObjectName, now time.Time) {
	if l.places[name] == nil {
		l.places[name] = l.waiting.PushBack(place{name, now})
	}
}

func (l *line) drop(name cache.ObjectName) {
	if element := l.places[name]; element != nil {
		l.waiting.Remove(element)
		delete(l.places, name)
	}
}

func (l *line) first() cache.ObjectName { return l.waiting.Front().Value.(place).name }

// grant gives its turn to the first in line.
func (l *line) grant() cache.ObjectName {
	name := l.first()
	l.drop(name)
	l.granted[name] = true
	return name
}
