package response_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

func TestIsStale(t *testing.T) {
	pods := corev1.Resource("pods")
	terminating := apierrors.NewForbidden(pods, "cone", errors.New("the namespace is being deleted"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"it is there already", apierrors.NewAlreadyExists(pods, "cone"), true},
		{"it has changed", apierrors.NewConflict(pods, "cone", errors.New("changed")), true},
		{"it is gone", apierrors.NewNotFound(pods, "cone"), true},
		{"the namespace ends, which may take long", terminating, false},
		{"somebody forbids it", apierrors.NewForbidden(pods, "cone", errors.New("no")), false},
		{"nobody answered", errors.New("connection refused"), false},
		{"a webhook denies it with the code of what is gone", denial(http.StatusNotFound), false},
		{"a webhook denies it with the code of a conflict", denial(http.StatusConflict), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := response.IsStale(tt.err); got != tt.want {
				t.Errorf("got %t", got)
			}
			if got := response.IsStale(fmt.Errorf("creating: %w", tt.err)); tt.err != nil && got != tt.want {
				t.Errorf("wrapped, got %t", got)
			}
		})
	}
}

// denial returns the response to a request that a webhook denied with nothing but that
// code.
func denial(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "w" denied the request without explanation`,
	}}
}

func TestIsByPolicy(t *testing.T) {
	pods := corev1.Resource("pods")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a policy":              {apierrors.NewForbidden(pods, "cone", errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")), true},
		"a quota":               {apierrors.NewForbidden(pods, "cone", errors.New("exceeded quota")), false},
		"a server that is away": {apierrors.NewServiceUnavailable("ValidatingAdmissionPolicy"), false},
		"no error":              {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := response.IsByPolicy(test.err); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestIsRefusal(t *testing.T) {
	pods := corev1.Resource("pods")
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"somebody forbids it", apierrors.NewForbidden(pods, "cone", errors.New("no")), true},
		{"it is invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "cone", nil), true},
		{"it makes no sense", apierrors.NewBadRequest("what?"), true},
		{"a webhook denies it", denial(http.StatusForbidden), true},
		{"a webhook denies it with the code of a conflict", denial(http.StatusConflict), true},
		{"a webhook cannot be asked", apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		{"etcd does not answer", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}, false},
		{"the server is busy", apierrors.NewTooManyRequests("later", 1), false},
		{"the server takes too long", apierrors.NewTimeoutError("too slow", 1), false},
		{"the server is away", apierrors.NewServiceUnavailable("starting"), false},
		{"the credentials have expired", apierrors.NewUnauthorized("who?"), false},
		{"nobody answered", errors.New("connection refused"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := response.IsRefusal(tt.err); got != tt.want {
				t.Errorf("got %t", got)
			}
			if got := response.IsRefusal(fmt.Errorf("creating: %w", tt.err)); tt.err != nil && got != tt.want {
				t.Errorf("wrapped, got %t", got)
			}
		})
	}
}
