package informer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// NewManual returns an empty set of caches for tests. They never list or watch, but contain
// what they are given by hand (see [Caches.Manual]).
func NewManual(clock clock.WithTicker) *Caches {
	return &Caches{clock: clock, heard: func(string, string, time.Time) {}, isManual: true}
}

// Manual returns the caches in the order in which they were made, if c is of NewManual.
func (c *Caches) Manual() []*Manual {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*Manual
	for _, s := range c.all {
		if m, ok := s.informer.(*manualInformer); ok {
			all = append(all, &Manual{s.resource, m})
		}
	}
	return all
}

// Manual is a cache that is filled by hand. What a method does is complete when it returns:
// it calls the event handlers itself, in the order in which they were added.
//
// The cache stores copies, so that its transform can change them. It makes one copy of each
// object for as long as it exists. Therefore objects must not be changed once they were
// passed to it.
type Manual struct {
	resource preflight.Resource
	informer *manualInformer
}

// Resource returns what the cache is to contain.
func (m *Manual) Resource() preflight.Resource { return m.resource }

// Matches reports whether the object is in the resource's namespace and matches its
// selectors. It panics if a selector is invalid, or if the field selector is for
// other fields than the name and the namespace.
func (m *Manual) Matches(obj runtime.Object) bool {
	object, err := meta.Accessor(obj)
	utilruntime.Must(err)
	byLabel, err := labels.Parse(m.resource.Selector)
	utilruntime.Must(err)
	byField, err := fields.ParseSelector(m.resource.Fields)
	utilruntime.Must(err)
	known := fields.Set{metav1.ObjectNameField: object.GetName(), "metadata.namespace": object.GetNamespace()}
	for _, r := range byField.Requirements() {
		if !known.Has(r.Field) {
			panic(fmt.Sprintf("informer: unknown field %q in the selector %q", r.Field, m.resource.Fields))
		}
	}
	return (m.resource.Namespace == metav1.NamespaceAll || m.resource.Namespace == object.GetNamespace()) &&
		byLabel.Matches(labels.Set(object.GetLabels())) && byField.Matches(known)
}

// Receive handles an event as if a watch had delivered it: it updates the store, whose last
// resource version becomes the object's, and calls the event handlers. Whether the object
// matches is not checked. An error means that nothing was done, because the event is of
// an unknown type or the object is not of the cache's.
func (m *Manual) Receive(event watch.Event) error {
	store := m.informer.store.Indexer
	if event.Type == watch.Bookmark {
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return fmt.Errorf("receiving a bookmark of %s: %w", m.resource.Resource, err)
		}
		store.Bookmark(object.GetResourceVersion())
		return nil
	}
	stored, err := m.informer.stored(event.Object)
	if err != nil {
		return fmt.Errorf("receiving %s of %s: %w", event.Type, m.resource.Resource, err)
	}
	switch event.Type {
	case watch.Added, watch.Modified: // client-go trusts its store more than the type
		old, exists, err := store.Get(stored)
		if err != nil {
			return err
		}
		if err := store.Update(stored); err != nil {
			return err
		}
		if exists {
			m.informer.notify(func(h cache.ResourceEventHandler) { h.OnUpdate(old, stored) })
		} else {
			m.informer.notify(func(h cache.ResourceEventHandler) { h.OnAdd(stored, false) })
		}
	case watch.Deleted:
		if err := store.Delete(stored); err != nil {
			return err
		}
		m.informer.notify(func(h cache.ResourceEventHandler) { h.OnDelete(stored) })
	default:
		return fmt.Errorf("receiving %s of %s: unknown type of event", event.Type, m.resource.Resource)
	}
	return nil
}

// Fill sets the contents of the store without calling event handlers, to restore what it
// contained. The cache has synced afterward.
func (m *Manual) Fill(objects []runtime.Object, resourceVersion string) error {
	contents, err := m.contents(objects)
	if err != nil {
		return err
	}
	return m.replace(contents, resourceVersion)
}

// Replace handles a list that replaces the contents of the store, and calls the event
// handlers: for what is no longer there (in the order of the names, with
// [cache.DeletedFinalStateUnknown]), and then for everything in the list, in its order, even
// for what has not changed. The cache has synced afterward.
func (m *Manual) Replace(objects []runtime.Object, resourceVersion string) error {
	contents, err := m.contents(objects)
	if err != nil {
		return err
	}
	store, isInitial := m.informer.store.Indexer, !m.informer.HasSynced()
	before := map[string]any{}
	for _, key := range store.ListKeys() {
		if before[key], _, err = store.GetByKey(key); err != nil {
			return err
		}
	}
	if err := m.replace(contents, resourceVersion); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, exists, err := store.GetByKey(key); err != nil || exists {
			continue
		}
		gone := cache.DeletedFinalStateUnknown{Key: key, Obj: before[key]}
		m.informer.notify(func(h cache.ResourceEventHandler) { h.OnDelete(gone) })
	}
	for _, object := range contents {
		key, err := cache.MetaNamespaceKeyFunc(object)
		if err != nil {
			return err
		}
		if old, ok := before[key]; ok {
			m.informer.notify(func(h cache.ResourceEventHandler) { h.OnUpdate(old, object) })
		} else {
			m.informer.notify(func(h cache.ResourceEventHandler) { h.OnAdd(object, isInitial) })
		}
	}
	return nil
}

// contents returns what the store keeps of the objects.
func (m *Manual) contents(objects []runtime.Object) ([]any, error) {
	contents := make([]any, len(objects))
	for i, object := range objects {
		var err error
		if contents[i], err = m.informer.stored(object); err != nil {
			return nil, fmt.Errorf("filling the cache of %s: %w", m.resource.Resource, err)
		}
	}
	return contents, nil
}

// replace sets the contents of the store.
func (m *Manual) replace(contents []any, resourceVersion string) error {
	if err := m.informer.store.Replace(contents, resourceVersion); err != nil {
		return err
	}
	m.informer.sync()
	return nil
}

// manualInformer is an informer that has no reflector. The one that it embeds never runs,
// and only has the store and its indexes.
type manualInformer struct {
	cache.SharedIndexInformer
	store   *countingStore
	example runtime.Object
	synced  chan struct{}
	sync    func() // closes synced, once

	mu        sync.Mutex
	transform cache.TransformFunc
	handlers  []*manualHandler
	keeps     map[runtime.Object]any // what the store keeps of each object
}

func newManualInformer(informer cache.SharedIndexInformer, example runtime.Object) *manualInformer {
	synced := make(chan struct{})
	return &manualInformer{
		SharedIndexInformer: informer,
		store:               &countingStore{Indexer: informer.GetIndexer()},
		example:             example,
		synced:              synced,
		sync:                sync.OnceFunc(func() { close(synced) }),
		transform:           func(obj any) (any, error) { return obj, nil },
		keeps:               map[runtime.Object]any{},
	}
}

// GetStore implements cache.SharedInformer.
func (i *manualInformer) GetStore() cache.Store { return i.store }

// GetIndexer implements cache.SharedIndexInformer.
func (i *manualInformer) GetIndexer() cache.Indexer { return i.store }

// stored returns what the store keeps of an object.
func (i *manualInformer) stored(object runtime.Object) (any, error) {
	if want, got := reflect.TypeOf(i.example), reflect.TypeOf(object); want != got {
		return nil, fmt.Errorf("the object is of type %v, but the cache of type %v", got, want)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if kept, ok := i.keeps[object]; ok {
		return kept, nil
	}
	kept, err := i.transform(object.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	i.keeps[object] = kept
	return kept, nil
}

// notify calls each handler.
func (i *manualInformer) notify(call func(cache.ResourceEventHandler)) {
	i.mu.Lock()
	handlers := slices.Clone(i.handlers)
	i.mu.Unlock()
	for _, h := range handlers {
		call(h.ResourceEventHandler)
	}
}

// manualHandler is the registration of an event handler. It has synced when its informer
// has, as the informer calls it at once.
type manualHandler struct {
	cache.ResourceEventHandler
	informer *manualInformer
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (h *manualHandler) HasSynced() bool { return h.informer.HasSynced() }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (h *manualHandler) HasSyncedChecker() cache.DoneChecker { return h.informer.HasSyncedChecker() }

// AddEventHandler implements cache.SharedInformer.
func (i *manualInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer. There is no resync.
func (i *manualInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithOptions implements cache.SharedInformer. The options, which are for
// resyncs and the log, have no effect.
func (i *manualInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	h := &manualHandler{handler, i}
	i.handlers = append(i.handlers, h)
	return h, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *manualInformer) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = slices.DeleteFunc(i.handlers, func(h *manualHandler) bool { return h == registration })
	return nil
}

// SetTransform implements cache.SharedInformer.
func (i *manualInformer) SetTransform(transform cache.TransformFunc) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.transform = transform
	return nil
}

// Run implements cache.SharedInformer.
func (i *manualInformer) Run(stop <-chan struct{}) { <-stop }

// RunWithContext implements cache.SharedInformer.
func (i *manualInformer) RunWithContext(ctx context.Context) { <-ctx.Done() }

// HasSynced implements cache.SharedInformer.
func (i *manualInformer) HasSynced() bool { return cache.IsDone(i) }

// HasSyncedChecker implements cache.SharedInformer.
func (i *manualInformer) HasSyncedChecker() cache.DoneChecker { return i }

// Name implements cache.DoneChecker.
func (i *manualInformer) Name() string { return fmt.Sprintf("manual informer of %T", i.example) }

// Done implements cache.DoneChecker.
func (i *manualInformer) Done() <-chan struct{} { return i.synced }

// LastSyncResourceVersion implements cache.SharedInformer.
func (i *manualInformer) LastSyncResourceVersion() string {
	return i.GetStore().LastStoreSyncResourceVersion()
}

// Example returns an object of the type that the cache takes.
func (m *Manual) Example() runtime.Object { return m.informer.example }

// Reads returns how often objects were read from the store, by whatever way. What the
// methods of m read themselves does not count, nor does the store's last resource version.
func (m *Manual) Reads() int { return int(m.informer.store.reads.Load()) }

// countingStore counts what is read from it.
type countingStore struct {
	cache.Indexer
	reads atomic.Int64
}

// Get implements cache.Store.
func (s *countingStore) Get(obj any) (item any, exists bool, err error) {
	s.reads.Add(1)
	return s.Indexer.Get(obj)
}

// GetByKey implements cache.Store.
func (s *countingStore) GetByKey(key string) (item any, exists bool, err error) {
	s.reads.Add(1)
	return s.Indexer.GetByKey(key)
}

// List implements cache.Store.
func (s *countingStore) List() []any {
	s.reads.Add(1)
	return s.Indexer.List()
}

// ListKeys implements cache.Store.
func (s *countingStore) ListKeys() []string {
	s.reads.Add(1)
	return s.Indexer.ListKeys()
}

// Index implements cache.Indexer.
func (s *countingStore) Index(name string, obj any) ([]any, error) {
	s.reads.Add(1)
	return s.Indexer.Index(name, obj)
}

// IndexKeys implements cache.Indexer.
func (s *countingStore) IndexKeys(name, value string) ([]string, error) {
	s.reads.Add(1)
	return s.Indexer.IndexKeys(name, value)
}

// ListIndexFuncValues implements cache.Indexer.
func (s *countingStore) ListIndexFuncValues(name string) []string {
	s.reads.Add(1)
	return s.Indexer.ListIndexFuncValues(name)
}

// ByIndex implements cache.Indexer.
func (s *countingStore) ByIndex(name, value string) ([]any, error) {
	s.reads.Add(1)
	return s.Indexer.ByIndex(name, value)
}
