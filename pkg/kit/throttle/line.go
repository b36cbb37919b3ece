package throttle

import (
	"container/list"
	"maps"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// line is a number of waiting objects that share a rate.
type line struct {
	rate   *bucket // of the writes of objects that had their turn
	urgent *bucket // of urgent writes, which go first; nil if there are none

	queues  list.List         // of *queue, none of them empty; the first is next
	queueOf map[string]*queue // by namespace
	places  map[cache.ObjectName]*place
	turns   map[cache.ObjectName]time.Time // the objects whose turn it is, since when

	timer clock.Timer // advances the line; nil if none is set
}

// queue holds the waiting objects of one namespace.
type queue struct {
	places  list.List     // of *place; the first is next
	element *list.Element // of the line's queues
}

// place is an object's place in its queue.
type place struct {
	name    cache.ObjectName
	since   time.Time     // when the object joined
	element *list.Element // of the queue's places
}

// newLine returns an empty line. Its objects let those writes go first that urgent
// counts, unless urgent is nil.
func newLine(urgent *bucket) *line {
	return &line{
		rate:    &bucket{interval: lineInterval, size: lineAtOnce},
		urgent:  urgent,
		queueOf: map[string]*queue{},
		places:  map[cache.ObjectName]*place{},
		turns:   map[cache.ObjectName]time.Time{},
	}
}

func (l *line) isEmpty() bool { return l.queues.Len() == 0 }

// next returns the first place of the line, which must not be empty.
func (l *line) next() *place {
	return l.queues.Front().Value.(*queue).places.Front().Value.(*place)
}

// hasTurn reports whether it is the object's turn.
func (l *line) hasTurn(name cache.ObjectName) bool {
	_, ok := l.turns[name]
	return ok
}

// join adds the object to the end of its queue, unless it is waiting already.
func (l *line) join(name cache.ObjectName, now time.Time) {
	if l.places[name] != nil {
		return
	}
	q := l.queueOf[name.Namespace]
	if q == nil {
		q = &queue{}
		q.element = l.queues.PushBack(q)
		l.queueOf[name.Namespace] = q
	}
	p := &place{name: name, since: now}
	p.element = q.places.PushBack(p)
	l.places[name] = p
}

// remove takes away the object's place and its turn.
func (l *line) remove(name cache.ObjectName) {
	delete(l.turns, name)
	p := l.places[name]
	if p == nil {
		return
	}
	delete(l.places, name)
	q := l.queueOf[name.Namespace]
	q.places.Remove(p.element)
	if q.places.Len() == 0 {
		l.queues.Remove(q.element)
		delete(l.queueOf, name.Namespace)
	}
}

// grant gives the first object in line its turn, and returns its name. The next turn is
// the next namespace's.
func (l *line) grant(now time.Time) cache.ObjectName {
	name := l.next().name
	l.queues.MoveToBack(l.queues.Front())
	l.remove(name)
	l.turns[name] = now
	return name
}

// expire ends turns that were not used in time.
func (l *line) expire(now time.Time) {
	maps.DeleteFunc(l.turns, func(_ cache.ObjectName, since time.Time) bool { return now.Sub(since) > turnExpires })
}

// wait returns how long it takes until the first object in line may have its turn.
func (l *line) wait(now time.Time) time.Duration {
	own := atLeast(l.rate.until(now, 1+len(l.turns)))
	if l.urgent == nil {
		return own
	}
	others := atLeast(l.urgent.until(now, 1))
	waited := now.Sub(l.next().since)
	return max(own, min(others, maxWait-waited))
}

// spend takes a token for a write that was made, even if there is none: the next write
// then waits for longer.
func (l *line) spend(now time.Time, name cache.ObjectName) {
	l.expire(now)
	b := l.urgent
	if l.hasTurn(name) {
		b = l.rate
	}
	if b != nil && b.debt(now) < maxDebt {
		b.take(now)
	}
}

// atLeast returns a delay that is certainly as long as a wait, however it is rounded; 0 if
// there is no wait.
func atLeast(wait time.Duration) time.Duration {
	if wait <= 0 {
		return 0
	}
	return wait + time.Millisecond
}
