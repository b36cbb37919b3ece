package apiserver

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Key names an object.
type Key struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// Store is what the API server has stored. It is a value: no function of this package
// changes the map or the objects of a Store that it was given.
type Store struct {
	Version int64 // the last resource version given out
	UIDs    int64 // how many UIDs were given out
	Objects map[Key]*unstructured.Unstructured

	// last holds the events of the request that led to this store, in order.
	last []keyedEvent
	// raw holds custom objects that are stored differently than clients see them: without a
	// default such as that of a new object's status, or with an empty map that an apply has left
	// in the metadata. The next update stores such an object anew, even if it changes nothing.
	raw map[Key]*unstructured.Unstructured
}

// rawOf returns the form in which an object is stored.
func (s Store) rawOf(key Key) *unstructured.Unstructured {
	obj, raw := s.Objects[key], s.raw[key]
	if raw != nil && raw.GetResourceVersion() == obj.GetResourceVersion() {
		return raw
	}
	return obj
}

// Event is what a watch delivers.
type Event struct {
	Type   watch.EventType // Added, Modified or Deleted
	Object *unstructured.Unstructured
}

type keyedEvent struct {
	Event
	version int64
	key     Key
}

// Events returns what a watch of a resource delivers for the step from one store to the
// next, in the order of versions. If one function of this package returned after for before,
// these are all events. Otherwise there is one event for each object that has changed, and
// objects that were deleted are as they were before.
func Events(before, after Store, resource schema.GroupResource) []Event {
	all := after.last
	if len(all) == 0 || all[0].version != before.Version+1 || all[len(all)-1].version != after.Version {
		all = difference(before, after)
	}
	var events []Event
	for _, event := range all {
		if event.key.Resource == resource {
			events = append(events, event.Event)
		}
	}
	return events
}

// difference returns an event for each object that has changed.
func difference(before, after Store) []keyedEvent {
	var events []keyedEvent
	for key, is := range after.Objects {
		was := before.Objects[key]
		switch {
		case was == nil:
			events = append(events, keyedEvent{Event{watch.Added, is}, 0, key})
		case was == is || was.GetResourceVersion() == is.GetResourceVersion() && equality.Semantic.DeepEqual(was, is):
		case was.GetUID() != is.GetUID():
			events = append(events, keyedEvent{Event{watch.Deleted, was}, 0, key}, keyedEvent{Event{watch.Added, is}, 1, key})
		default:
			events = append(events, keyedEvent{Event{watch.Modified, is}, 0, key})
		}
	}
	for key, was := range before.Objects {
		if after.Objects[key] == nil {
			events = append(events, keyedEvent{Event{watch.Deleted, was}, 0, key})
		}
	}
	slices.SortFunc(events, func(a, b keyedEvent) int {
		return cmp.Or(compareVersions(a.Object, b.Object), compareKeys(a.key, b.key), cmp.Compare(a.version, b.version))
	})
	return events
}

// compareVersions compares the resource versions of two objects as numbers: a shorter text
// is a smaller number.
func compareVersions(a, b *unstructured.Unstructured) int {
	left, right := a.GetResourceVersion(), b.GetResourceVersion()
	return cmp.Or(cmp.Compare(len(left), len(right)), cmp.Compare(left, right))
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Resource.Group, b.Resource.Group), cmp.Compare(a.Resource.Resource, b.Resource.Resource),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// keys returns the keys of the objects that match, sorted.
func (s Store) keys(match func(Key) bool) []Key {
	var keys []Key
	for key := range s.Objects {
		if match(key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// put stores an object, unless it is stored just so, and returns it as clients see it.
func (c *call) put(key Key, obj object) (*unstructured.Unstructured, error) {
	raw, err := c.kind.toStore(obj)
	if err != nil {
		return nil, err
	}
	is := raw
	if c.kind.isCustom {
		is = raw.DeepCopy()
		if err := c.kind.normalize(is); err != nil {
			return nil, err
		}
	}
	if stored := c.store.Objects[key]; stored != nil {
		raw.SetResourceVersion(stored.GetResourceVersion())
		if reflect.DeepEqual(raw.Object, c.store.rawOf(key).Object) {
			return stored, nil
		}
	}
	c.store = c.with(c.store, key, is)
	raw.SetResourceVersion(is.GetResourceVersion())
	if !reflect.DeepEqual(raw.Object, is.Object) {
		raws := maps.Clone(c.store.raw)
		if raws == nil {
			raws = map[Key]*unstructured.Unstructured{}
		}
		raws[key] = raw
		c.store.raw = raws
	}
	return is, nil
}

// with returns the store in which obj is stored as the next version. It sets the version of
// obj, and keeps obj.
func (s *Server) with(store Store, key Key, obj *unstructured.Unstructured) Store {
	eventType := watch.Modified
	if store.Objects[key] == nil {
		eventType = watch.Added
	}
	store.Version++
	obj.SetResourceVersion(s.options.Version(store.Version))
	store.Objects = maps.Clone(store.Objects)
	if store.Objects == nil {
		store.Objects = map[Key]*unstructured.Unstructured{}
	}
	store.Objects[key] = obj
	store.last = append(slices.Clip(store.last), keyedEvent{Event{eventType, obj}, store.Version, key})
	return store
}

// without returns the store in which the object is deleted, and the object's last state,
// which has the version of the deletion.
func (s *Server) without(store Store, key Key) (Store, *unstructured.Unstructured) {
	store.Version++
	obj := store.Objects[key].DeepCopy()
	obj.SetResourceVersion(s.options.Version(store.Version))
	store.Objects = maps.Clone(store.Objects)
	delete(store.Objects, key)
	store.last = append(slices.Clip(store.last), keyedEvent{Event{watch.Deleted, obj}, store.Version, key})
	return store, obj
}
