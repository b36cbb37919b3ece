// Package record tells people about objects by events (events.k8s.io/v1).
//
// It differs from the recorder of client-go in three ways. The events of one
// object are written one after the other, in the order in which they were
// recorded. Two events are the same only if they also say the same; client-go
// counts an event with a new note as a repetition of the old one, whose note it
// keeps. And the end of it can be awaited, so that a leader gives its lease away
// only after its last write.
//
// An event is told as well as can be: what the API server refuses is dropped and
// logged, what does not reach it is tried again until the recorder stops.
package record

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/worker"
)

// series is how long after an event the same event is another one of its series
// (KEP-383 has 6 minutes) rather than a new one.
const series = 6 * time.Minute

// mostPending is how many events of one object wait to be written; of more, the
// oldest are dropped, but warnings last.
const mostPending = 32

// lastWords is how long a recorder that stops may take to write what is left.
const lastWords = 5 * time.Second

// Recorder writes events. Its methods are safe for concurrent use.
type Recorder struct {
	client eventsclient.EventsV1Interface
	scheme *runtime.Scheme
	clock  clock.WithTicker
	loop   *worker.Loop

	mu      sync.Mutex
	pending map[cache.ObjectName][]*eventsv1.Event // by what they regard, oldest first
	told    map[cache.ObjectName][]*eventsv1.Event // those whose series may go on
	stamped int64                                  // the last event's part of its name
}

// New wires a recorder and starts nothing. The scheme has to know the types that
// events are about. The options are those of the loop that writes them, which is
// named "events".
func New(client eventsclient.EventsV1Interface, scheme *runtime.Scheme, clock clock.WithTicker, opts ...worker.Option) *Recorder {
	r := &Recorder{
		client:  client,
		scheme:  scheme,
		clock:   clock,
		pending: map[cache.ObjectName][]*eventsv1.Event{},
		told:    map[cache.ObjectName][]*eventsv1.Event{},
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
	for name, pending := range r.left() {
		for range pending {
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
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),
			Name:      fmt.Sprintf("%s.%x", strings.TrimRight(clip(about.Name, 230), "-."), n.stamp(now)),
		},
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
	n.add(event)
}

// stamp is the time as a number that no other event of this recorder has.
func (r *Recorder) stamp(now time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stamped = max(r.stamped+1, now.UnixNano())
	return r.stamped
}

// add queues the event for the loop.
func (r *Recorder) add(event *eventsv1.Event) {
	name := cache.NewObjectName(event.Regarding.Namespace, event.Regarding.Name)
	r.mu.Lock()
	r.pending[name] = append(r.pending[name], event)
	if waiting := r.pending[name]; len(waiting) > mostPending {
		oldest := max(0, slices.IndexFunc(waiting, func(e *eventsv1.Event) bool { return e.Type != corev1.EventTypeWarning }))
		r.pending[name] = slices.Delete(waiting, oldest, oldest+1)
	}
	r.mu.Unlock()
	r.loop.Add(name)
}

// left is a copy of what waits to be written.
func (r *Recorder) left() map[cache.ObjectName][]*eventsv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.pending)
}

// names are those of the objects with events to be written.
func (r *Recorder) names(yield func(cache.ObjectName) bool) { maps.Keys(r.left())(yield) }

// sync writes the oldest pending event about the object of that name, or forgets
// the events whose series have ended.
func (r *Recorder) sync(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	event, before := r.next(name)
	if event == nil {
		return r.forget(name), nil
	}
	written, err := r.write(ctx, event, before)
	if err != nil && !isRefusal(err) {
		return 0, err
	}
	if err != nil {
		written = nil
	}
	r.done(name, event, before, written)
	if err != nil && !isGone(err) {
		return 0, worker.Terminal(fmt.Errorf("event %s of %s dropped: %w", event.Reason, name, err))
	}
	return series, nil
}

// next is the event to write, and the one that it repeats, if there is one.
func (r *Recorder) next(name cache.ObjectName) (event, before *eventsv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending[name]) == 0 {
		return nil, nil
	}
	event = r.pending[name][0]
	for _, told := range r.told[name] {
		if isSame(told, event) && event.EventTime.Sub(lastSeen(told)) < series {
			before = told
		}
	}
	return event, before
}

// done takes the event out of what is pending and keeps what was written in place
// of before; nothing was if that is nil.
func (r *Recorder) done(name cache.ObjectName, event, before, written *eventsv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[name] = slices.DeleteFunc(r.pending[name], func(e *eventsv1.Event) bool { return e == event })
	if len(r.pending[name]) > 0 {
		r.loop.Add(name)
	} else {
		delete(r.pending, name)
	}
	r.told[name] = slices.DeleteFunc(r.told[name], func(e *eventsv1.Event) bool { return e == before })
	if written != nil {
		r.told[name] = append(r.told[name], written)
	}
	if len(r.told[name]) == 0 {
		delete(r.told, name)
	}
}

// forget drops what can no longer be part of a series, and returns when to do that
// again; 0 if nothing is left.
func (r *Recorder) forget(name cache.ObjectName) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[name] = slices.DeleteFunc(r.told[name], func(e *eventsv1.Event) bool { return r.clock.Since(lastSeen(e)) >= series })
	if len(r.told[name]) == 0 {
		delete(r.told, name)
		return 0
	}
	return series
}

// write creates the event, or counts it with the one that it repeats, and returns
// what is told now.
func (r *Recorder) write(ctx context.Context, event, before *eventsv1.Event) (*eventsv1.Event, error) {
	if before != nil {
		repeated := before.DeepCopy()
		repeated.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: event.EventTime}
		if before.Series != nil {
			repeated.Series.Count = before.Series.Count + 1
		}
		patch, err := json.Marshal(map[string]any{"series": repeated.Series})
		if err != nil {
			return nil, err
		}
		_, err = r.client.Events(event.Namespace).Patch(ctx, before.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) { // the API server keeps events for an hour
			return repeated, err
		}
	}
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil // an answer was lost
	}
	return event, err
}

// isSame is true for events that say the same about the same.
func isSame(a, b *eventsv1.Event) bool {
	about := func(e *eventsv1.Event) *eventsv1.Event {
		about := *e
		about.ObjectMeta, about.EventTime, about.Series = metav1.ObjectMeta{}, metav1.MicroTime{}, nil
		about.Regarding.ResourceVersion = ""
		if e.Related != nil {
			related := *e.Related
			related.ResourceVersion = ""
			about.Related = &related
		}
		return &about
	}
	return equality.Semantic.DeepEqual(about(a), about(b))
}

// lastSeen is when the event came about, for the last time if it is a series.
func lastSeen(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

// isRefusal is true if the API server has understood and will not do it.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err)
}

// isGone is true if an event could not be created because its namespace ends, or
// has ended.
func isGone(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// clip is the beginning of a text, of so many bytes at most.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
