package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Stripped returns a transform for an informer whose cache keeps no more of each object
// than strip leaves. strip must keep the namespace, name, UID and resource version.
// Anything else than a T, such as a tombstone, is kept as it is.
func Stripped[T runtime.Object](strip func(T)) cache.TransformFunc {
	return func(obj any) (any, error) {
		if obj, ok := obj.(T); ok {
			strip(obj)
		}
		return obj, nil
	}
}

// Converted returns a transform for an informer whose cache keeps what convert makes of each
// object of type T. That must be a pointer to something with GetObjectMeta, which returns
// the namespace, the name and the resource version.
func Converted[T runtime.Object, K metav1.ObjectMetaAccessor](convert func(T) K) cache.TransformFunc {
	return func(obj any) (any, error) {
		if obj, ok := obj.(T); ok {
			return convert(obj), nil
		}
		return obj, nil
	}
}
