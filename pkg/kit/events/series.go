package events

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

const (
	// seriesEnds is how long after an event the same event still continues its series
	// rather than being a new one. KEP-383 has 6 minutes.
	seriesEnds = 6 * time.Minute

	// refresh is how old the count in the API server may be while a series continues.
	// API servers keep events for an hour by default, some for only 30 minutes.
	refresh = 15 * time.Minute

	// maxSeries is how many series are remembered, of all objects together.
	maxSeries = 50_000

	// maxPending is how many events of one object may wait to be written. If there are
	// more, the oldest is dropped; warnings are dropped last.
	maxPending = 32
)

// The budget of new events about one object; see the package comment.
const (
	room        = 25
	warningRoom = room + 10
	roomAfter   = time.Minute // for one more
)

// object is the state of the events about objects of one name.
type object struct {
	name    cache.ObjectName
	pending []*pending // events to be written, oldest first
	series  []*series  // written events that may be repeated
	budgets []budget   // of the objects (by UID) with recent events
	dropped int        // number of events dropped since the last write
}

// pending is an event that waits to be created, or whose count waits to be written.
type pending struct {
	event  *eventsv1.Event // as it was last recorded; nil if only its series is left
	stamp  int64           // part of the event's name
	series *series
}

// isNew reports whether the event has to be created.
func (p *pending) isNew() bool { return p.series.place == nil }

// isWarning reports whether the event is a new warning.
func (p *pending) isWarning() bool { return p.isNew() && p.event.Type == corev1.EventTypeWarning }

// isAbout reports whether this is a new event about that object.
func (p *pending) isAbout(uid types.UID) bool { return p.isNew() && p.event.Regarding.UID == uid }

// series is an event with its repetitions.
type series struct {
	digest  digest
	stamp   int64     // part of the event's name
	count   int32     // how often it was recorded
	written int32     // the count that was last written
	seen    time.Time // when it was last recorded
	wrote   time.Time // when it was last written

	// While the recorder remembers the series:
	of    *object
	place *list.Element // in Recorder.series
}

// isOver reports whether the same event would begin a new series.
func (s *series) isOver(now time.Time) bool { return now.Sub(s.seen) >= seriesEnds }

// hasUnwritten reports whether repetitions have not been written yet.
func (s *series) hasUnwritten() bool { return s.count > s.written }

// isDue reports whether the count has reached a power of two since it was written.
func (s *series) isDue() bool {
	due := int64(1)
	for due <= int64(s.written) {
		due *= 2
	}
	return int64(s.count) >= due
}

// due returns when there is something to do about the series if it is not repeated.
func (s *series) due() time.Time {
	over := s.seen.Add(seriesEnds)
	if written := s.wrote.Add(refresh); s.hasUnwritten() && written.Before(over) {
		return written
	}
	return over
}

// record counts the event with the one that it repeats, or queues it. It reports whether
// that requires a write.
func (o *object) record(event *eventsv1.Event, stamp int64) (s *series, isToWrite bool) {
	now, digest := event.EventTime.Time, digestOf(event)
	if s = o.find(digest, now); s == nil {
		s = &series{digest: digest, stamp: stamp, count: 1, seen: now}
		o.push(&pending{event: event, stamp: stamp, series: s})
		return s, true
	}
	s.count = max(s.count, s.count+1) // without overflow
	s.seen = now
	isPending := slices.ContainsFunc(o.pending, func(p *pending) bool { return p.series == s })
	if isPending || !s.isDue() {
		return s, false
	}
	o.push(&pending{event: event, stamp: stamp, series: s})
	return s, true
}

// find returns the series that an event with that digest continues; nil if there is none.
func (o *object) find(digest digest, now time.Time) *series {
	for _, p := range o.pending {
		if p.series.digest == digest && !p.series.isOver(now) {
			return p.series
		}
	}
	for _, s := range o.series {
		if s.digest == digest && !s.isOver(now) {
			return s
		}
	}
	return nil
}

// push queues an event, and drops the oldest if there are too many.
func (o *object) push(p *pending) {
	o.pending = append(o.pending, p)
	if len(o.pending) <= maxPending {
		return
	}
	oldest := max(0, slices.IndexFunc(o.pending, func(p *pending) bool { return !p.isWarning() }))
	if o.pending[oldest].isNew() {
		o.dropped++
	}
	o.pending = slices.Delete(o.pending, oldest, oldest+1)
}

// next returns the next write. If there is nothing to write now, it returns nil, and the
// time after which a new event may be created; 0 if no event waits.
func (o *object) next(now time.Time, isEnding bool) (next *write, wait time.Duration) {
	for i := 0; i < len(o.pending); {
		p := o.pending[i]
		if !p.isNew() || isEnding {
			return o.write(p), 0
		}
		left := o.budget(p.event.Regarding.UID, now).wait(now, p.isWarning())
		if left == 0 {
			return o.write(p), 0
		}
		o.shed(p)
		if i < len(o.pending) && o.pending[i] == p {
			wait = backoff.MinRequeue(wait, left)
			i++
		}
	}
	for _, s := range o.series {
		if s.hasUnwritten() && (isEnding || !now.Before(s.due())) {
			return o.write(&pending{series: s}), 0
		}
	}
	return nil, wait
}

// shed drops new events about an object because the first of them has to wait. Of those
// that would have to wait, it keeps the last warning and the last event.
func (o *object) shed(first *pending) {
	uid := first.event.Regarding.UID
	var last, lastWarning *pending
	for _, p := range o.pending {
		if p.isAbout(uid) {
			last = p
		}
		if p.isAbout(uid) && p.isWarning() {
			lastWarning = p
		}
	}
	before := len(o.pending)
	o.pending = slices.DeleteFunc(o.pending, func(p *pending) bool {
		hasRoom := p.isWarning() && !first.isWarning() // it may not have to wait
		return p.isAbout(uid) && !hasRoom && p != last && p != lastWarning
	})
	o.dropped += before - len(o.pending)
}

// done removes an event that was written or refused from the pending ones, and charges the
// budget for it.
func (o *object) done(w *write, now time.Time) {
	if w.creates {
		o.budget(w.event.Regarding.UID, now).spend(now)
	}
	o.pending = slices.DeleteFunc(o.pending, func(p *pending) bool { return p == w.pending })
}

// budget returns the budget for new events about the object of that UID.
func (o *object) budget(of types.UID, now time.Time) *budget {
	i := slices.IndexFunc(o.budgets, func(b budget) bool { return b.of == of })
	if i < 0 {
		i = len(o.budgets)
		o.budgets = append(o.budgets, budget{of: of, whole: now})
	}
	return &o.budgets[i]
}

// isEmpty reports whether the object has no state.
func (o *object) isEmpty() bool {
	return len(o.pending) == 0 && len(o.series) == 0 && len(o.budgets) == 0
}

// requeueAfter returns the time after which there is something to do about the object; 0 if
// never.
func (o *object) requeueAfter(now time.Time) (requeueAfter time.Duration) {
	for _, b := range o.budgets {
		requeueAfter = backoff.MinRequeue(requeueAfter, max(1, b.whole.Sub(now)))
	}
	for _, s := range o.series {
		requeueAfter = backoff.MinRequeue(requeueAfter, max(1, s.due().Sub(now)))
	}
	return requeueAfter
}

// write is a request about an event.
type write struct {
	*pending
	namespace, name string
	creates         bool
	isRecreated     bool  // because the event had expired
	known           int32 // repetitions, before this request
	count           int32 // repetitions, with it
	seen            time.Time
}

// write returns the request for a pending event as things are now.
func (o *object) write(p *pending) *write {
	s := p.series
	return &write{
		pending:   p,
		namespace: cmp.Or(o.name.Namespace, metav1.NamespaceDefault),
		name:      eventName(o.name.Name, s.stamp),
		creates:   p.isNew(),
		known:     s.written,
		count:     s.count,
		seen:      s.seen,
	}
}

// recreate makes this a write that creates the event, with the repetitions that were not
// written yet.
func (w *write) recreate() { w.isRecreated, w.creates, w.count = true, true, w.count-w.known }

// accepted updates the series after the write was accepted.
func (w *write) accepted(now time.Time) {
	s := w.series
	if w.isRecreated {
		s.stamp, s.count = w.stamp, s.count-w.known
	}
	s.written, s.wrote = w.count, now
}

// what returns how an error names the event.
func (w *write) what() string {
	if w.event == nil {
		return "the count of an event"
	}
	return "event " + w.event.Reason
}

// seriesOf returns the series field of an event.
func seriesOf(count int32, seen time.Time) *eventsv1.EventSeries {
	return &eventsv1.EventSeries{Count: count, LastObservedTime: metav1.NewMicroTime(seen)}
}

// budget limits the new events about one object. It is a token bucket that gets back one
// event per roomAfter.
type budget struct {
	of    types.UID
	whole time.Time // when the bucket is full again
}

// wait returns how long a new event has to wait.
func (b *budget) wait(now time.Time, isWarning bool) time.Duration {
	most := room
	if isWarning {
		most = warningRoom
	}
	return max(0, b.whole.Sub(now)-time.Duration(most-1)*roomAfter)
}

// spend takes an event out of the budget.
func (b *budget) spend(now time.Time) {
	if b.whole.Before(now) {
		b.whole = now
	}
	b.whole = b.whole.Add(roomAfter)
}

// digest is equal for events that say the same about the same objects.
type digest [16]byte

func digestOf(e *eventsv1.Event) (d digest) {
	hash, related := sha256.New(), corev1.ObjectReference{}
	if e.Related != nil {
		related = *e.Related
	}
	fmt.Fprintf(hash, "%q", []string{e.ReportingController, e.ReportingInstance, e.Type, e.Reason, e.Action, e.Note})
	for _, about := range []corev1.ObjectReference{e.Regarding, related} {
		fmt.Fprintf(hash, "%q", []string{about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID), about.FieldPath})
	}
	copy(d[:], hash.Sum(nil))
	return d
}
