// Package cached says what an informer's cache keeps of an object, and how one sees
// by an answer of the API server that a cache is behind.
package cached

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Stripped is the transform of an informer whose cache is to keep no more of each
// object than strip leaves, which has to keep namespace, name, UID and resource
// version. Whatever else comes, such as a tombstone, is kept as it is.
func Stripped[T runtime.Object](strip func(T)) cache.TransformFunc {
	return func(obj any) (any, error) {
		if obj, ok := obj.(T); ok {
			strip(obj)
		}
		return obj, nil
	}
}

// IsBehind says whether the API server's answer to a write means no more than that
// it knows something that the caches do not show yet: what was to be created is
// there, what was to be changed has changed or is gone, or the namespace is being
// deleted. The caches will show it, so nobody has to hear of it.
func IsBehind(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
