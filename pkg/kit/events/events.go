// Package events records events about objects (events.k8s.io/v1) without ever delaying a
// sync.
//
// It differs from the recorder of client-go in three ways. The events about one object
// are written one after another, in the order in which they were recorded. Two events are
// the same only if their notes are, too; client-go counts an event with a new note as a
// repetition of the old one, and keeps the old note. And callers can wait until the
// recorder has stopped, so that a leader releases its lease only after its last write.
//
// Events are best effort: an event that the API server refuses is dropped and logged, and
// one that does not reach it is retried until the recorder stops.
//
// # What events cost
//
// No caller, however faulty, can make the recorder write much or remember much.
//
// An event that repeats one of the last 6 minutes is counted with it. The recorder writes
// the count to the API server when it reaches 2, 4, 8 and so on, every 15 minutes while it
// grows, after 6 minutes without a repetition, and when the recorder stops. So the count
// of an event that keeps being repeated is at most 15 minutes old, and the event does not
// expire (by default, the API server keeps events for an hour).
//
// For one object (by UID), 25 new events may be written at once, and one more each minute;
// warnings have room for 10 more. Of the events that would have to wait, only the last
// warning and the last event do, in their order; the others are dropped, and the log says
// how many. While the API server is unavailable, at most 32 events of one object wait.
//
// The recorder keeps a digest of each written event for as long as it may be repeated, but
// only of the last 50,000 events of all objects together, which takes about 30 MB.
package events

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/text"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// flushTimeout is how long a recorder that is stopping may take to write the rest.
const flushTimeout = 5 * time.Second

// EventRecorder records events, as that of client-go does. It never blocks.
type EventRecorder interface {
	// Eventf records an event about the object regarding, and possibly a second one, with a
	// note that is formatted as by fmt.Sprintf.
	Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any)
}

// Client is what a recorder needs of a typed client of events.
type Client interface {
	Create(ctx context.Context, event *eventsv1.Event, opts metav1.CreateOptions) (*eventsv1.Event, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (*eventsv1.Event, error)
}

// Recorder writes events. Its methods are safe for concurrent use.
type Recorder struct {
	clients func(namespace string) Client
	scheme  *runtime.Scheme
	clock   clock.WithTicker
	loop    *worker.Loop

	maxSeries int

	mu        sync.Mutex
	objects   map[cache.ObjectName]*object // the objects of events
	series    *list.List                   // every *series that may be repeated, least recently seen first
	lastStamp int64                        // of the last event
	isEnding  bool                         // whether nothing waits any longer
}

// New wires a recorder that writes events by these clients, and starts nothing. The scheme has
// to know the types of the objects that events are about. The options are for the loop that
// writes the events, which is named "events".
func New[C Client](clients func(namespace string) C, scheme *runtime.Scheme, clock clock.WithTicker, opts ...worker.Option) *Recorder {
	r := &Recorder{
		clients:   func(namespace string) Client { return clients(namespace) },
		scheme:    scheme,
		clock:     clock,
		maxSeries: maxSeries,
		objects:   map[cache.ObjectName]*object{},
		series:    list.New(),
	}
	r.loop = worker.New("events", r.sync, append([]worker.Option{worker.WithClock(clock), worker.WithKeys(r.names)}, opts...)...)
	return r
}

// For returns a recorder of events that the controller of that name reports.
func (r *Recorder) For(controller string) EventRecorder {
	host, _ := os.Hostname() // an event without a host name is better than none
	return named{r, controller, text.Clip(controller+"-"+host, 128)}
}

// Run writes events with that many workers until ctx ends. It then takes at most five
// seconds to finish the requests that are running and five to write the rest, and returns.
func (r *Recorder) Run(ctx context.Context, workers int) error {
	err := r.loop.Run(ctx, workers)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for _, name := range r.remaining() {
		for r.hasRemaining(name) {
			_, err := r.sync(ctx, name)
			if err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Event lost", "object", name)
			}
			if err != nil && !isRefusal(err) {
				break // the events behind it are lost, too
			}
		}
	}
	return err
}

// Busy returns for how long the longest of the running writes has been running.
func (r *Recorder) Busy() time.Duration { return r.loop.Busy() }

// named is a recorder for one controller.
type named struct {
	*Recorder
	controller, instance string
}

// Eventf implements EventRecorder.
func (n named) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	about, err := reference.GetReference(n.scheme, regarding)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("recording event %s: %w", reason, err))
		return
	}
	now := n.clock.Now()
	stamp := n.stamp(now)
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), Name: eventName(about.Name, stamp)},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: n.controller,
		ReportingInstance:   n.instance,
		Action:              action,
		Reason:              reason,
		Regarding:           *about,
		Note:                text.Clip(fmt.Sprintf(note, args...), 1024),
		Type:                eventType,
	}
	if related != nil {
		if event.Related, err = reference.GetReference(n.scheme, related); err != nil {
			utilruntime.HandleError(fmt.Errorf("recording event %s: %w", reason, err))
		}
	}
	n.add(event, stamp)
}

// stamp returns the time as a number that no other event of this recorder has.
func (r *Recorder) stamp(now time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastStamp = max(r.lastStamp+1, now.UnixNano())
	return r.lastStamp
}

// add counts the event with the one that it repeats, or queues it as a new one. If there
// is something to write, it adds the object to the loop.
func (r *Recorder) add(event *eventsv1.Event, stamp int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := cache.NewObjectName(event.Regarding.Namespace, event.Regarding.Name)
	o := r.objects[name]
	if o == nil {
		o = &object{name: name}
		r.objects[name] = o
	}
	s, isToWrite := o.record(event, stamp)
	if s.place != nil {
		r.series.MoveToBack(s.place)
	}
	if isToWrite {
		r.loop.Add(name)
	}
}

// names yields the names of the objects that may have something to write.
func (r *Recorder) names(yield func(cache.ObjectName) bool) {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.objects))
	r.mu.Unlock()
	slices.Values(names)(yield)
}

// remaining returns the names of the objects that may have something to write, those with
// new events first. From now on, no event waits.
func (r *Recorder) remaining() []cache.ObjectName {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isEnding = true
	var events, counts []cache.ObjectName
	for name, o := range r.objects {
		if len(o.pending) > 0 {
			events = append(events, name)
		} else {
			counts = append(counts, name)
		}
	}
	return append(events, counts...)
}

// hasRemaining reports whether the object of that name has something to write.
func (r *Recorder) hasRemaining(name cache.ObjectName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.objects[name]
	return o != nil && (len(o.pending) > 0 || slices.ContainsFunc(o.series, (*series).hasUnwritten))
}

// sync makes the first of the object's pending writes, and forgets series that are over.
func (r *Recorder) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	next, dropped, requeueAfter := r.next(name)
	if dropped > 0 {
		klog.FromContext(ctx).Info("Dropped events, because there were too many about the object", "dropped", dropped)
	}
	if next == nil {
		return requeueAfter, nil
	}
	err = r.write(ctx, next)
	if err != nil && !isRefusal(err) {
		return 0, err
	}
	requeueAfter = r.done(name, next, err)
	if err != nil && !isGone(err) {
		return requeueAfter, worker.Terminal(fmt.Errorf("%s of %s dropped: %w", next.what(), name, err))
	}
	return requeueAfter, nil
}

// next returns the next write about the object of that name, and how many events were
// dropped before it. If there is nothing to write now, it returns nil, and the time after
// which there may be; 0 if never.
func (r *Recorder) next(name cache.ObjectName) (next *write, dropped int, requeueAfter time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.objects[name]
	if o == nil {
		return nil, 0, 0
	}
	now := r.clock.Now()
	next, wait := o.next(now, r.isEnding)
	if next == nil {
		return nil, 0, backoff.MinRequeue(wait, r.forget(o, now))
	}
	dropped, o.dropped = o.dropped, 0
	return next, dropped, 0
}

// done records that a write was accepted, or refused with err. It returns the time after
// which there may be more to write.
func (r *Recorder) done(name cache.ObjectName, w *write, err error) (requeueAfter time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, o := r.clock.Now(), r.objects[name]
	if o == nil { // all but this write was forgotten
		o = &object{name: name}
		r.objects[name] = o
	}
	o.done(w, now)
	if err != nil {
		r.drop(o, w.series)
	} else {
		w.accepted(now)
		r.keep(o, w.series)
	}
	if len(o.pending) > 0 {
		r.loop.Add(name)
	}
	return r.forget(o, now)
}

// keep remembers a series that was written. If there are too many, it forgets the one that
// was repeated least recently.
func (r *Recorder) keep(o *object, s *series) {
	if s.place == nil {
		s.of, s.place = o, r.series.PushBack(s)
		o.series = append(o.series, s)
	}
	if s.isDue() {
		o.pending = append(o.pending, &pending{series: s})
	}
	if r.series.Len() > r.maxSeries {
		oldest := r.series.Front().Value.(*series)
		r.drop(oldest.of, oldest)
		r.clean(oldest.of)
	}
}

// drop forgets a series.
func (r *Recorder) drop(o *object, s *series) {
	if s.place == nil {
		return
	}
	r.series.Remove(s.place)
	s.place = nil
	o.pending = slices.DeleteFunc(o.pending, func(p *pending) bool { return p.series == s && p.event == nil })
	o.series = slices.DeleteFunc(o.series, func(other *series) bool { return other == s })
}

// forget drops series that can no longer be repeated. It returns the time after which
// there is more to forget about the object, or to write; 0 if nothing is left.
func (r *Recorder) forget(o *object, now time.Time) (requeueAfter time.Duration) {
	for _, s := range slices.Clone(o.series) {
		if s.isOver(now) && !s.hasUnwritten() {
			r.drop(o, s)
		}
	}
	o.budgets = slices.DeleteFunc(o.budgets, func(b budget) bool { return !b.whole.After(now) })
	r.clean(o)
	return o.requeueAfter(now)
}

// clean drops an object without any state.
func (r *Recorder) clean(o *object) {
	if o.isEmpty() {
		delete(r.objects, o.name)
	}
}

// write creates the event, or updates its count.
func (r *Recorder) write(ctx context.Context, w *write) error {
	client := r.clients(w.namespace)
	if !w.creates {
		patch, err := json.Marshal(map[string]any{"series": seriesOf(w.count, w.seen)})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) || w.event == nil {
			return err
		}
		w.recreate() // it has expired
	}
	event := w.event.DeepCopy()
	if w.count > 1 {
		event.Series = seriesOf(w.count, w.seen)
	}
	_, err := client.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		w.count, err = 1, nil // a response was lost; the count may have been lower then
	}
	return err
}

// isRefusal reports whether the API server has refused a write for good. An internal error
// may be one of a webhook, and go away.
func isRefusal(err error) bool {
	return response.IsRefusal(err) && !apierrors.IsInternalError(err)
}

// isGone reports whether an event could not be created because its namespace is being
// deleted, or is gone.
func isGone(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// eventName returns the name of an event with that stamp about an object of that name.
func eventName(object string, stamp int64) string {
	return fmt.Sprintf("%s.%x", strings.TrimRight(text.Clip(object, 230), "-."), stamp)
}
