package informer

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// OrNil turns a not-found error into a nil object: Lister.Get and a client's Get can be
// passed to it directly. The object is nil if there is any error.
func OrNil[T any](object *T, err error) (*T, error) {
	if err != nil {
		object = nil
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return object, err
}

// Must returns what a lister or an index has found. They fail only if an index was never
// set up; that is reported, and the list is empty.
func Must[T any](objects []T, err error) []T {
	if err != nil {
		utilruntime.HandleError(err)
	}
	return objects
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
