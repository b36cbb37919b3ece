package informer

import (
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// Cache holds the objects of one type, as its informer has last seen them. They belong to
// everyone who reads them, and must not be changed.
type Cache[T cache.Object] struct {
	cache.TypedSharedIndexInformer[T]
}

// Of returns the cache of an informer of this type.
func Of[T cache.Object](informer cache.SharedIndexInformer) Cache[T] {
	return Cache[T]{cache.NewTypedSharedIndexInformer[T](informer)}
}

// Get returns the object of a name, or nil if there is none. The namespace of what has none
// is empty.
func (c Cache[T]) Get(namespace, name string) (object T) {
	found, _, err := c.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil { // never, by a key
		utilruntime.HandleError(err)
	}
	object, _ = found.(T)
	return object
}

// All yields all objects, as they are when the iteration begins, in any order.
func (c Cache[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, object := range c.GetStore().List() {
			if !yield(object.(T)) {
				return
			}
		}
	}
}

// By returns the objects that an index has under a value, in any order. It panics if there
// is no such index, which is a programming error.
func (c Cache[T]) By(index, value string) []T {
	objects, err := c.GetTypedIndexer().ByTypedIndex(index, value)
	utilruntime.Must(err)
	return objects
}

// OrNil turns a not-found error into a nil object: a client's Get can be passed to it
// directly. The object is nil if there is any error.
func OrNil[T any](object *T, err error) (*T, error) {
	if err != nil {
		object = nil
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return object, err
}

// Named returns an event handler that calls add with the name of the object, which may
// be a tombstone.
func Named(add func(cache.ObjectName)) func(obj any) {
	return func(obj any) {
		name, err := cache.DeletionHandlingObjectToName(obj)
		if err != nil {
			utilruntime.HandleError(err)
			return
		}
		add(name)
	}
}
