// Package events reports events about objects (events.k8s.io/v1).
//
// It differs from the recorder of client-go in three ways. The events of one
// object are written one after the other, in the order in which they were
// recorded. Two events are the same only if they also say the same; client-go
// counts an event with a new note as a repetition of the old one, whose note it
// keeps. And the end of it can be awaited, so that a leader gives its lease away
// only after its last write.
//
// Events are best effort: what the API server refuses is dropped and logged, what
// does not reach it is tried again until the recorder stops.
//
// # What events cost
//
// No caller, however confused, makes the recorder write much, or remember much.
//
// An event that repeats one of the last 6 minutes is counted with it. The API
// server learns the count when it reaches 2, 4, 8 and so on, every 15 minutes while
// it grows, after 6 minutes without a repetition, and when the recorder stops. What
// the API server knows of an event that goes on is therefore at most 15 minutes
// old, and does not expire (it keeps events for an hour by default).
//
// About one object (by UID) 25 new events may be written at once, and one more
// each minute; warnings have room for 10 more. Of those that would have to wait,
// only the last warning and the last event do, in their order; the others are
// dropped, and the log says how many. While the API server is away, at most 32
// events of one object wait.
//
// Of an event that was written, a digest is kept for as long as it may be repeated,
// and of all objects together those of the last 50,000 events, in about 30 MB.
package events

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// lastWords is how long a recorder that stops may take to write what is left.
const lastWords = 5 * time.Second

// Recorder writes events. Its methods are safe for concurrent use.
type Recorder struct {
	client eventsclient.EventsV1Interface
	scheme *runtime.Scheme
	clock  clock.WithTicker
	loop   *worker.Loop

	mostSeries int

	mu       sync.Mutex
	objects  map[cache.ObjectName]*object // that events regard
	series   *list.List                   // every *series that may go on, least recently seen first
	stamped  int64                        // the last event's part of its name
	isEnding bool                         // nothing waits any longer
}

// New wires a recorder and starts nothing. The scheme has to know the types that
// events are about. The options are those of the loop that writes them, which is
// named "events".
func New(client eventsclient.EventsV1Interface, scheme *runtime.Scheme, clock clock.WithTicker, opts ...worker.Option) *Recorder {
	r := &Recorder{
		client:     client,
		scheme:     scheme,
		clock:      clock,
		mostSeries: mostSeries,
		objects:    map[cache.ObjectName]*object{},
		series:     list.New(),
	}
	r.loop = worker.New("events", r.sync, append([]worker.Option{worker.WithClock(clock), worker.WithKeys(r.names)}, opts...)...)
	return r
}

// For records in the name of that controller.
func (r *Recorder) For(controller string) events.EventRecorder {
	host, _ := os.Hostname() // an event without it is better than none
	return named{r, controller, clip(controller+"-"+host, 128)}
}

// Run writes events with that many workers until ctx ends. It then writes what is
// left, for a few seconds at most, and returns.
func (r *Recorder) Run(ctx context.Context, workers int) error {
	err := r.loop.Run(ctx, workers)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	for _, name := range r.left() {
		for r.isLeft(name) {
			_, err := r.sync(ctx, name)
			if err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Event lost", "object", name)
			}
			if err != nil && !isRefusal(err) {
				break // those behind it are lost, too
			}
		}
	}
	return err
}

// Busy is how long the longest of the writes under way has taken by now.
func (r *Recorder) Busy() time.Duration { return r.loop.Busy() }

// named is a recorder for one controller.
type named struct {
	*Recorder
	controller, instance string
}

// Eventf implements events.EventRecorder. It does not wait for anything.
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
		Note:                clip(fmt.Sprintf(note, args...), 1024),
		Type:                eventType,
	}
	if related != nil {
		if event.Related, err = reference.GetReference(n.scheme, related); err != nil {
			utilruntime.HandleError(fmt.Errorf("recording event %s: %w", reason, err))
		}
	}
	n.add(event, stamp)
}

// stamp is the time as a number that no other event of this recorder has.
func (r *Recorder) stamp(now time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stamped = max(r.stamped+1, now.UnixNano())
	return r.stamped
}

// add counts the event with the one that it repeats, or queues it as a new one. The
// loop is told if there is something to write.
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

// names are those of the objects that something may be left to write about.
func (r *Recorder) names(yield func(cache.ObjectName) bool) {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.objects))
	r.mu.Unlock()
	slices.Values(names)(yield)
}

// left returns the names of objects about which something is left to write; those
// with new events come first. From now on nothing waits for more to happen.
func (r *Recorder) left() []cache.ObjectName {
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

// isLeft reports whether something about the object of that name is left to write.
func (r *Recorder) isLeft(name cache.ObjectName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.objects[name]
	return o != nil && (len(o.pending) > 0 || slices.ContainsFunc(o.series, (*series).isBehind))
}

// sync writes what has waited longest of what there is to write about the object of
// that name, and forgets what is over.
func (r *Recorder) sync(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	next, dropped, again := r.next(name)
	if dropped > 0 {
		klog.FromContext(ctx).Info("Dropped events, as there were too many about the object", "dropped", dropped)
	}
	if next == nil {
		return again, nil
	}
	err = r.write(ctx, next)
	if err != nil && !isRefusal(err) {
		return 0, err
	}
	again = r.done(name, next, err)
	if err != nil && !isGone(err) {
		return again, worker.Terminal(fmt.Errorf("%s of %s dropped: %w", next.what(), name, err))
	}
	return again, nil
}

// next returns what to write about the object of that name, and how many events were
// dropped before it. If there is nothing to write now, it is nil, and again says
// when there may be; 0 is never.
func (r *Recorder) next(name cache.ObjectName) (next *write, dropped int, again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.objects[name]
	if o == nil {
		return nil, 0, 0
	}
	now := r.clock.Now()
	next, wait := o.next(now, r.isEnding)
	if next == nil {
		return nil, 0, worker.MinRequeue(wait, r.forget(o, now))
	}
	dropped, o.dropped = o.dropped, 0
	return next, dropped, 0
}

// done notes that something was written, or refused with err, and returns when there
// may be more to do.
func (r *Recorder) done(name cache.ObjectName, w *write, err error) (again time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, o := r.clock.Now(), r.objects[name]
	if o == nil { // nothing was known any more but what was being written
		o = &object{name: name}
		r.objects[name] = o
	}
	o.done(w, now)
	if err != nil {
		r.drop(o, w.series)
	} else {
		w.note(now)
		r.keep(o, w.series)
	}
	if len(o.pending) > 0 {
		r.loop.Add(name)
	}
	return r.forget(o, now)
}

// keep remembers a series that was written, in place of the one that has not gone on
// for longest if there are too many.
func (r *Recorder) keep(o *object, s *series) {
	if s.place == nil {
		s.of, s.place = o, r.series.PushBack(s)
		o.series = append(o.series, s)
	}
	if s.isDue() {
		o.pending = append(o.pending, &pending{series: s})
	}
	if r.series.Len() > r.mostSeries {
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

// forget drops what can no longer be repeated, and returns when there is more to
// forget about the object, or to write; 0 if nothing is left.
func (r *Recorder) forget(o *object, now time.Time) (again time.Duration) {
	for _, s := range slices.Clone(o.series) {
		if s.isOver(now) && !s.isBehind() {
			r.drop(o, s)
		}
	}
	o.budgets = slices.DeleteFunc(o.budgets, func(b budget) bool { return !b.whole.After(now) })
	r.clean(o)
	return o.again(now)
}

// clean forgets an object of which nothing is known.
func (r *Recorder) clean(o *object) {
	if o.isEmpty() {
		delete(r.objects, o.name)
	}
}

// write creates the event or has the API server know how often it was repeated.
func (r *Recorder) write(ctx context.Context, w *write) error {
	client := r.client.Events(w.namespace)
	if !w.creates {
		patch, err := json.Marshal(map[string]any{"series": seriesOf(w.count, w.seen)})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, w.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) || w.event == nil {
			return err
		}
		w.anew() // the API server has forgotten it
	}
	event := w.event.DeepCopy()
	if w.count > 1 {
		event.Series = seriesOf(w.count, w.seen)
	}
	_, err := client.Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		w.count, err = 1, nil // an answer was lost; it may have been less then
	}
	return err
}

// isRefusal reports whether the API server has understood and will not do it.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err)
}

// isGone reports whether an event could not be created because its namespace ends,
// or has ended.
func isGone(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// eventName returns the name of an event about an object of that name.
func eventName(object string, stamp int64) string {
	return fmt.Sprintf("%s.%x", strings.TrimRight(clip(object, 230), "-."), stamp)
}

// clip is the beginning of a text, of so many bytes at most.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
