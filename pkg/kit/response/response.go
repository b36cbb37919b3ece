// Package response tells what the API server's response to a failed write means: whether it was
// refused, and by whom, or whether the caches were stale, or neither, so that it must be retried.
package response

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsStale reports whether the write failed only because the caches that it was decided
// from are stale: the object to be created exists already, the object to be changed has
// changed or is gone. The caches will show that soon, so it need not be reported.
//
// The API server names the object in such a response. A response with the same code that
// names none comes from an admission webhook, which may deny a request with any code.
func IsStale(err error) bool {
	var response apierrors.APIStatus
	if !errors.As(err, &response) || response.Status().Details == nil || response.Status().Details.Name == "" {
		return false
	}
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// IsByPolicy reports whether a ValidatingAdmissionPolicy refused the request
// (k8s.io/apiserver/pkg/admission/plugin/policy/validating).
func IsByPolicy(err error) bool {
	return IsRefusal(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// IsOwnValidation reports whether the API server's own validation refused the object. A policy or a webhook
// may deny a request with the same code (k8s.io/apiserver/pkg/admission/plugin/webhook/errors).
func IsOwnValidation(err error) bool {
	return apierrors.IsInvalid(err) && !IsByPolicy(err) && !strings.Contains(err.Error(), "admission webhook \"")
}

// IsRefusal reports whether the API server understood a request and refused it as it is,
// by its own rules or those of an admission plugin, policy, or webhook, or because it
// could not call a webhook. Any other error is about the server, the connection, or the
// credentials, and leaves open whether the request was carried out.
func IsRefusal(err error) bool {
	var response apierrors.APIStatus
	if !errors.As(err, &response) {
		return false
	}
	switch code := response.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusInternalServerError:
		return response.Status().Reason == metav1.StatusReasonInternalError
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
