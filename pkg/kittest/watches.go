package kittest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// Change is what a write did to an object. Before is nil if it was created, and After is
// nil if it was deleted.
type Change struct {
	Resource      schema.GroupVersionResource
	Version       int // the resource version of the write
	Before, After Object
}

// Watches sends changes to watches, and can hold them up. The zero value is ready for use.
// Its methods are safe for concurrent use.
type Watches struct {
	mu      sync.Mutex
	history []Change
	streams []*stream
	allHeld bool
	held    map[schema.GroupVersionResource]bool
}

// React begins the watch that a fake clientset is asked for: of the objects in the namespace, or
// in all namespaces if it is empty, that the label selector matches. It repeats all changes
// since the resource version. It is a WatchReactionFunc.
func (w *Watches) React(action clienttesting.Action) (handled bool, _ watch.Interface, err error) {
	asked := action.(clienttesting.WatchActionImpl)
	version, err := strconv.Atoi(asked.ListOptions.ResourceVersion)
	if err != nil {
		return true, nil, apierrors.NewBadRequest(fmt.Sprintf("resource version %q: %v", asked.ListOptions.ResourceVersion, err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	events := make(chan watch.Event, 4096) // as nobody may read for a while
	s := &stream{
		ProxyWatcher: watch.NewProxyWatcher(events), events: events,
		resource: asked.GetResource(), namespace: asked.GetNamespace(), selector: asked.GetWatchRestrictions().Labels,
	}
	w.streams = append(w.live(), s)
	for _, past := range w.history {
		if past.Version > version {
			s.add(past)
		}
	}
	w.flushUnlessHeld(s)
	return true, s, nil
}

// Send sends a change to all watches that show the object.
func (w *Watches) Send(change Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if change.Before != nil {
		change.Before = clone(change.Before)
	}
	if change.After != nil {
		change.After = clone(change.After)
	}
	w.history = append(w.history, change)
	for _, s := range w.streams {
		s.add(change)
		w.flushUnlessHeld(s)
	}
}

// Hold holds up the watches of these resources, or all watches if there are none.
func (w *Watches) Hold(resources ...schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allHeld = w.allHeld || len(resources) == 0
	for _, resource := range resources {
		if w.held == nil {
			w.held = map[schema.GroupVersionResource]bool{}
		}
		w.held[resource] = true
	}
}

// Release lets the watches of these resources catch up, and holds them up no longer. It
// releases all watches if there are no resources.
func (w *Watches) Release(resources ...schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(resources) == 0 {
		w.allHeld, w.held = false, nil
	}
	for _, resource := range resources {
		delete(w.held, resource)
	}
	for _, s := range w.streams {
		w.flushUnlessHeld(s)
	}
}

// Flush lets the watches of a resource catch up, although they are held up.
func (w *Watches) Flush(resource schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.streams {
		if s.resource == resource {
			s.flush(len(s.pending))
		}
	}
}

// Next sends the next change to the first watch of a resource that has any pending, and
// reports whether there was one.
func (w *Watches) Next(resource schema.GroupVersionResource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = w.live()
	i := slices.IndexFunc(w.streams, func(s *stream) bool { return s.resource == resource && len(s.pending) > 0 })
	if i >= 0 {
		w.streams[i].flush(1)
	}
	return i >= 0
}

// Expire ends the watches of these resources, without the changes that are pending, as an
// API server does that no longer keeps the history. Informers then have to list again.
func (w *Watches) Expire(resources ...schema.GroupVersionResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = slices.DeleteFunc(w.live(), func(s *stream) bool {
		isOver := slices.Contains(resources, s.resource)
		if isOver {
			gone := apierrors.NewResourceExpired("too old").Status()
			s.events <- watch.Event{Type: watch.Error, Object: &gone}
		}
		return isOver
	})
}

// live returns the streams that have not been stopped.
func (w *Watches) live() []*stream {
	return slices.DeleteFunc(w.streams, func(s *stream) bool { return s.Stopping() })
}

func (w *Watches) flushUnlessHeld(s *stream) {
	if !w.allHeld && !w.held[s.resource] {
		s.flush(len(s.pending))
	}
}

// stream is a watch, and the events that it has not sent yet.
type stream struct {
	*watch.ProxyWatcher
	events    chan<- watch.Event
	resource  schema.GroupVersionResource
	namespace string
	selector  labels.Selector
	pending   []watch.Event
}

// add adds the event for a change, if the watch shows the object. If an object no longer
// matches, its deletion is sent, with the version of the change.
func (s *stream) add(change Change) {
	if change.Resource != s.resource || s.Stopping() {
		return
	}
	was, is := isMatch(change.Before, s.namespace, s.selector), isMatch(change.After, s.namespace, s.selector)
	switch {
	case is && was:
		s.pending = append(s.pending, watch.Event{Type: watch.Modified, Object: clone(change.After)})
	case is:
		s.pending = append(s.pending, watch.Event{Type: watch.Added, Object: clone(change.After)})
	case was:
		gone := clone(change.Before)
		gone.SetResourceVersion(strconv.Itoa(change.Version))
		s.pending = append(s.pending, watch.Event{Type: watch.Deleted, Object: gone})
	}
}

// isMatch reports whether obj, which may be nil, is in the namespace and matches the
// selector.
func isMatch(obj Object, namespace string, selector labels.Selector) bool {
	return obj != nil && (namespace == "" || namespace == obj.GetNamespace()) && (selector == nil || selector.Matches(labels.Set(obj.GetLabels())))
}

// flush sends the next n events.
func (s *stream) flush(n int) {
	for _, event := range s.pending[:n] {
		s.events <- event
	}
	s.pending = s.pending[n:]
}
