// Package response tells what the API server's response to a failed write means:
//
//	stale      the write was decided from caches that are behind: retry soon, report nothing
//	refusal    the API server, a quota, a policy or a webhook does not want this: report it
//	neither    the server, the connection or the credentials failed: retry
//
// Who refused follows from the form of the response, because a webhook chooses the code, the reason
// and the details of a denial. Only the beginning of its message is the API server's
// (k8s.io/apiserver/pkg/admission/plugin/webhook/errors), and only the API server's own validation
// gives causes that all name a field.
package response

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/internal/text"
)

// IsStale reports whether the write of the named object failed only because the caches that it was
// decided from are behind: the object exists already, has changed, is gone, or has another UID. The
// caches will show that soon.
//
// A 404 about anything else, such as the namespace or the resource's definition, is not stale: no
// cache of the object will ever show it.
func IsStale(err error, resource schema.GroupResource, name string) bool {
	if IsConflict(err) {
		return true
	}
	status := statusOf(err)
	if isByWebhook(status) {
		return false
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		about := status.Details
		return about != nil && about.Name == name && about.Group == resource.Group && about.Kind == resource.Resource &&
			!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) // client-go has filled in the name
	}
	// The API server calls another UID in a patch an invalid change of the UID.
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return apierrors.IsInvalid(err) && ok && cause.Field == "metadata.uid"
}

// IsAlreadyExists reports whether the named object was not created because it exists. That is stale, too.
func IsAlreadyExists(err error, resource schema.GroupResource, name string) bool {
	return apierrors.IsAlreadyExists(err) && IsStale(err, resource, name)
}

// IsTaken reports whether a server-side apply could not create an object because someone else has created it: with
// another selector, which is immutable, or another controller.
func IsTaken(err error) bool {
	about := statusOf(err).Details
	return apierrors.IsInvalid(err) && IsOwnValidation(err) && slices.ContainsFunc(about.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "spec.selector" || cause.Field == "metadata.ownerReferences"
	})
}

// IsConflict reports whether another write came first: to the object, or to a quota that it
// counts against.
func IsConflict(err error) bool {
	return apierrors.IsConflict(err) && !isByWebhook(statusOf(err))
}

// IsOwnValidation reports whether the API server's own validation refused the object. Policies deny
// with the same code, and with causes that name no field.
func IsOwnValidation(err error) bool {
	status := statusOf(err)
	if isOfApply(status) {
		return true
	}
	return apierrors.IsInvalid(err) && !isByWebhook(status) && status.Details != nil && len(status.Details.Causes) > 0 &&
		!slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "" })
}

// IsRefusal reports whether the API server understood a request and refused it as it is,
// by its own rules or those of an admission plugin, policy, or webhook, or because it
// could not call a webhook. Any other error is about the server, the connection, or the
// credentials, and leaves open whether the request was carried out.
func IsRefusal(err error) bool {
	status := statusOf(err)
	if isByWebhook(status) {
		return true
	}
	switch status.Code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusInternalServerError: // without a reason, it is etcd's
		return status.Reason == metav1.StatusReasonInternalError || isOfApply(status)
	default:
		return status.Code >= http.StatusBadRequest && status.Code < http.StatusInternalServerError
	}
}

// maxText limits the text of a brief error, in bytes.
const maxText = 1024

// Brief returns an error that says the same in a kilobyte, to be remembered: the API server quotes what
// it refuses. This package classifies it as before, except for IsStale and IsAlreadyExists.
func Brief(err error) error {
	var response apierrors.APIStatus
	if err == nil || !errors.As(err, &response) {
		return err
	}
	status := response.Status()
	short := &brief{text: text.Clip(err.Error(), maxText)}
	short.status = metav1.Status{Code: status.Code, Reason: status.Reason, Message: text.Clip(status.Message, maxText)}
	if status.Details != nil && len(status.Details.Causes) > 0 {
		isWithoutField := func(cause metav1.StatusCause) bool { return cause.Field == "" }
		cause := status.Details.Causes[max(0, slices.IndexFunc(status.Details.Causes, isWithoutField))]
		cause = metav1.StatusCause{Type: cause.Type, Field: text.Clip(cause.Field, maxText)}
		short.status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}}
	}
	return short
}

// brief is a shortened error.
type brief struct {
	text   string
	status metav1.Status
}

func (b *brief) Error() string         { return b.text }
func (b *brief) Status() metav1.Status { return b.status }

// isByWebhook reports whether a webhook denied the request, with any code, reason and details.
func isByWebhook(status metav1.Status) bool {
	return strings.HasPrefix(status.Message, `admission webhook "`)
}

// isOfApply reports whether the body of a server-side apply has a field that the API server does not know, or a list
// with a key twice (k8s.io/apimachinery/pkg/util/managedfields).
func isOfApply(status metav1.Status) bool {
	return status.Code == http.StatusInternalServerError && strings.HasPrefix(status.Message, "failed to create typed patch object")
}

// statusOf returns the API server's response; the zero value if there is none.
func statusOf(err error) metav1.Status {
	if response := apierrors.APIStatus(nil); errors.As(err, &response) {
		return response.Status()
	}
	return metav1.Status{}
}
