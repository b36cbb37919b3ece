package apiserver

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Key names an object.
type Key struct {
	Resource        schema.GroupResource
	Namespace, Name string
}

// String names the object for people.
func (k Key) String() string {
	return strings.Trim(k.Resource.Resource+" "+k.Namespace+"/"+k.Name, "/ ")
}

// Store is what the API server has stored. It is a value: no function of this package
// changes the map or the objects of a Store that it was given.
type Store struct {
	Version int64 // the last resource version given out
	uids    int64 // how many UIDs were given out
	Objects map[Key]*unstructured.Unstructured

	// last holds the events of the step that led to this store, in order.
	last []Event
}

// Event is what a watch delivers.
type Event struct {
	Type   watch.EventType // Added, Modified or Deleted
	key    Key
	Object *unstructured.Unstructured
}

// Keys returns the keys of the objects that match, sorted.
func (s Store) Keys(match func(Key) bool) []Key {
	var keys []Key
	for key := range s.Objects {
		if match(key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Resource.String(), b.Resource.String()), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// put stores an object, unless it is stored just so, and returns it.
func (c *call) put(key Key, obj Object) (*unstructured.Unstructured, error) {
	is, err := c.kind.toStore(obj)
	if err != nil {
		return nil, err
	}
	if stored := c.store.Objects[key]; stored != nil {
		is.SetResourceVersion(stored.GetResourceVersion())
		if reflect.DeepEqual(withoutTimes(is.Object), withoutTimes(stored.Object)) {
			return stored, nil
		}
	}
	c.store = c.with(c.store, key, is)
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
	store.last = append(slices.Clip(store.last), Event{eventType, key, obj})
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
	store.last = append(slices.Clip(store.last), Event{watch.Deleted, key, obj})
	return store, obj
}
