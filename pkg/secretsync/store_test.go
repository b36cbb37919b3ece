package secretsync

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// object is a Secret or a namespace.
type object interface {
	runtime.Object
	metav1.Object
}

// store is what an API server does without checking anything: it gives objects UIDs and
// resource versions, and sends changes to watches, which can be held up, so that caches are
// stale for as long as a test wants.
type store struct {
	mu      sync.Mutex
	objects map[schema.GroupVersionResource]map[cache.ObjectName]object
	history []change
	streams []*stream
	isHeld  bool
}

// change is one write. before is nil if it created the object, after if it deleted it.
type change struct {
	resource      schema.GroupVersionResource
	before, after object
}

// firstVersion is the resource version of an empty store.
const firstVersion = 100

// stream is a watch that has shown the history up to there.
type stream struct {
	*watch.FakeWatcher
	action clienttesting.WatchActionImpl
	shown  int
}

// flush shows the watch what has happened. An object that no longer matches is deleted for
// it, with the version of the change.
func (s *stream) flush(history []change) {
	for ; s.shown < len(history) && !s.IsStopped(); s.shown++ {
		switch c := history[s.shown]; {
		case c.resource != s.action.GetResource():
		case s.shows(c.before) && s.shows(c.after):
			s.Modify(clone(c.after))
		case s.shows(c.after):
			s.Add(clone(c.after))
		case s.shows(c.before):
			gone := clone(c.before)
			gone.SetResourceVersion(strconv.Itoa(firstVersion + s.shown + 1))
			s.Delete(gone)
		}
	}
}

func (s *stream) shows(obj object) bool {
	return obj != nil && isMatch(obj, s.action.GetNamespace(), s.action.GetWatchRestrictions().Labels)
}

func isMatch(obj object, namespace string, selector labels.Selector) bool {
	return (namespace == "" || namespace == obj.GetNamespace()) && (selector == nil || selector.Matches(labels.Set(obj.GetLabels())))
}

func clone(obj object) object { return obj.DeepCopyObject().(object) }

// Watch begins a watch. It is a WatchReactionFunc.
func (s *store) Watch(action clienttesting.Action) (bool, watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &stream{FakeWatcher: watch.NewFakeWithChanSize(5000, false), action: action.(clienttesting.WatchActionImpl)}
	since, err := strconv.Atoi(w.action.ListOptions.ResourceVersion)
	w.shown = since - firstVersion
	s.streams = append(slices.DeleteFunc(s.streams, func(w *stream) bool { return w.IsStopped() }), w)
	s.flush()
	return true, w, err
}

// flush shows the watches what has happened, unless they are held up. It expects s.mu held.
func (s *store) flush() {
	if s.isHeld {
		return
	}
	for _, w := range s.streams {
		w.flush(s.history)
	}
}

// hold holds up all watches, or lets them go on.
func (s *store) hold(isHeld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isHeld = isHeld
	s.flush()
}

// expireSelective ends the watches with a selector without what they have not shown, as an
// API server does that no longer keeps the history, and holds up the others no longer. Informers
// then list again.
func (s *store) expireSelective() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.streams {
		if selector := w.action.GetWatchRestrictions().Labels; selector != nil && !selector.Empty() && !w.IsStopped() {
			gone := apierrors.NewResourceExpired("too old").Status()
			w.Error(&gone)
			w.Stop()
		}
	}
	s.isHeld = false
	s.flush()
}

// show lets one of the watches catch up although they are held.
func (s *store) show(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) > 0 {
		s.streams[n%len(s.streams)].flush(s.history)
	}
}

// showSecrets lets the watches of Secrets catch up although they are held.
func (s *store) showSecrets() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.streams {
		if w.action.GetResource() == secretResource {
			w.flush(s.history)
		}
	}
}

// Get returns a copy of an object; nil if it does not exist.
func (s *store) Get(resource schema.GroupVersionResource, name cache.ObjectName) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj := s.objects[resource][name]; obj != nil {
		return clone(obj)
	}
	return nil
}

// List returns copies of objects, by name, and the resource version of the list.
func (s *store) List(resource schema.GroupVersionResource, namespace string, selector labels.Selector) (objects []object, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(s.objects[resource]), func(a, b cache.ObjectName) int { return cmp.Compare(a.String(), b.String()) })
	for _, name := range names {
		if obj := s.objects[resource][name]; isMatch(obj, namespace, selector) {
			objects = append(objects, clone(obj))
		}
	}
	return objects, strconv.Itoa(firstVersion + len(s.history))
}

// Set creates or updates an object, and returns a copy.
func (s *store) Set(resource schema.GroupVersionResource, obj object) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = clone(obj)
	name := cache.MetaObjectToName(obj)
	before := s.objects[resource][name]
	obj.SetResourceVersion(strconv.Itoa(firstVersion + len(s.history) + 1))
	if before != nil {
		obj.SetUID(before.GetUID())
	} else {
		obj.SetUID(types.UID("uid-" + obj.GetResourceVersion()))
	}
	if s.objects[resource] == nil {
		s.objects[resource] = map[cache.ObjectName]object{}
	}
	s.objects[resource][name] = obj
	s.history = append(s.history, change{resource, before, obj})
	s.flush()
	return clone(obj)
}

// Remove deletes an object, if it exists.
func (s *store) Remove(resource schema.GroupVersionResource, name cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.objects[resource][name]; before != nil {
		delete(s.objects[resource], name)
		s.history = append(s.history, change{resource, before, nil})
		s.flush()
	}
}

// pass lets the time of a bubble pass, and waits until everything has settled.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
