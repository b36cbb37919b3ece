package informer

import (
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// IsBehind reports whether the API server's answer to a write means no more than
// that it knows something that the caches do not show yet: what was to be created is
// there, what was to be changed has changed or is gone, or the namespace is being
// deleted. The caches will show it, so nobody has to hear of it.
//
// Such an answer names the object that it is about. One that has the same code and
// names none is an admission webhook's, which may deny a request with any code.
func IsBehind(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil || answer.Status().Details.Name == "" {
		return false
	}
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// IsRefusal reports whether the API server has understood a request and will not
// carry it out as it is, by its own rules or those of an admission plugin, policy or
// webhook; also if it cannot ask a webhook. Any other error says something about the
// server, the connection or the credentials, and leaves open whether the request was
// carried out.
func IsRefusal(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusInternalServerError:
		return answer.Status().Reason == metav1.StatusReasonInternalError
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
