package throttle

import (
	"container/list"
	"maps"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
)

// line is where objects wait for what all of them together may do at a rate.
type line struct {
	rate   *rate.Limiter // of what goes through the line
	urgent *rate.Limiter // of what goes past it and is waited for; nil if that is not

	queues  list.List         // of *queue, none of them empty; the first is next
	queueOf map[string]*queue // by namespace
	places  map[cache.ObjectName]*place
	turns   map[cache.ObjectName]time.Time // of those whose turn it is: since when
	isTimed bool                           // it moves again when a timer fires
}

// queue is where the objects of one namespace wait.
type queue struct {
	places  list.List     // of *place; the first is next
	element *list.Element // of the line's queues
}

// place is one object's in its queue.
type place struct {
	name    cache.ObjectName
	since   time.Time
	element *list.Element // of the queue's places
}

// newLine returns a line that lets go first what urgent counts, unless that is nil.
func newLine(urgent *rate.Limiter) *line {
	return &line{
		rate:    rate.NewLimiter(maxPerSecond, maxAtOnce),
		urgent:  urgent,
		queueOf: map[string]*queue{},
		places:  map[cache.ObjectName]*place{},
		turns:   map[cache.ObjectName]time.Time{},
	}
}

func (l *line) isEmpty() bool { return l.queues.Len() == 0 }

// next is the place that is served next in a line that is not empty.
func (l *line) next() *place {
	return l.queues.Front().Value.(*queue).places.Front().Value.(*place)
}

func (l *line) hasTurn(name cache.ObjectName) bool {
	_, ok := l.turns[name]
	return ok
}

// join has the object stand in line, unless it does.
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

// drop takes the object's place and its turn.
func (l *line) drop(name cache.ObjectName) {
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

// grant gives the next in line its turn, and goes on to the next namespace.
func (l *line) grant(now time.Time) cache.ObjectName {
	name := l.next().name
	l.queues.MoveToBack(l.queues.Front())
	l.drop(name)
	l.turns[name] = now
	return name
}

// expire ends the turns that were not used.
func (l *line) expire(now time.Time) {
	maps.DeleteFunc(l.turns, func(_ cache.ObjectName, since time.Time) bool { return now.Sub(since) > turn })
}

// left is how long it is until the next in line may have its turn.
func (l *line) left(now time.Time) time.Duration {
	own := duration(1+float64(len(l.turns))-l.rate.TokensAt(now), maxPerSecond)
	if l.urgent == nil {
		return own
	}
	others := duration(1-l.urgent.TokensAt(now), urgentPerSecond)
	waited := now.Sub(l.next().since)
	return max(own, min(others, maxWait-waited))
}

// spend takes a token for a write, which may have to be earned afterwards.
func (l *line) spend(now time.Time, name cache.ObjectName) {
	limiter, perSecond := l.urgent, float64(urgentPerSecond)
	if l.hasTurn(name) {
		limiter, perSecond = l.rate, maxPerSecond
	}
	if limiter != nil && limiter.TokensAt(now) > -maxDebt.Seconds()*perSecond {
		limiter.ReserveN(now, 1)
	}
}

// duration is how long it takes to earn so many tokens.
func duration(tokens float64, perSecond float64) time.Duration {
	if tokens <= 0 {
		return 0
	}
	return time.Duration(tokens/perSecond*float64(time.Second)) + time.Millisecond
}
