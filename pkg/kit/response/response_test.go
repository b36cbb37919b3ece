package response_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

func TestResponses(t *testing.T) {
	pods := corev1.Resource("pods")
	forbidden := func(message string) *apierrors.StatusError {
		return apierrors.NewForbidden(pods, "cone", errors.New(message))
	}
	terminating := forbidden("the namespace is being deleted")
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	failure := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message}}
	}
	const denial = `admission webhook "w" denied the request without explanation`
	invalid := func(message string) error {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "cone", nil)
		err.ErrStatus.Message = message
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		want []string
	}{
		"no error":            {nil, nil},
		"it is there already": {apierrors.NewAlreadyExists(pods, "cone"), []string{"stale", "refusal"}},
		"it has changed":      {apierrors.NewConflict(pods, "cone", errors.New("changed")), []string{"stale", "refusal"}},
		"it is gone":          {apierrors.NewNotFound(pods, "cone"), []string{"stale", "refusal"}},
		"the namespace ends, which may take long": {terminating, []string{"refusal"}},
		"somebody forbids it":                     {forbidden("no"), []string{"refusal"}},
		"a quota":                                 {forbidden("exceeded quota"), []string{"refusal"}},
		"a policy":                                {forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), []string{"refusal", "policy"}},
		"a policy, with the code of validation":   {invalid("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), []string{"refusal", "policy"}},
		"it is invalid":                           {invalid("spec: Required value"), []string{"refusal", "own validation"}},
		"it makes no sense":                       {apierrors.NewBadRequest("what?"), []string{"refusal"}},
		"a webhook denies it":                     {failure(http.StatusForbidden, denial), []string{"refusal"}},
		"a webhook denies it with code 422":       {invalid(denial), []string{"refusal"}},
		"a webhook denies it with code 409":       {failure(http.StatusConflict, denial), []string{"refusal"}},
		"a webhook denies it with code 404":       {failure(http.StatusNotFound, denial), []string{"refusal"}},
		"a webhook cannot be asked":               {apierrors.NewInternalError(errors.New("failed calling webhook")), []string{"refusal"}},
		"etcd does not answer":                    {failure(http.StatusInternalServerError, "etcdserver: request timed out"), nil},
		"the server is busy":                      {apierrors.NewTooManyRequests("later", 1), nil},
		"the server takes too long":               {apierrors.NewTimeoutError("too slow", 1), nil},
		"the server is away":                      {apierrors.NewServiceUnavailable("ValidatingAdmissionPolicy"), nil},
		"the credentials have expired":            {apierrors.NewUnauthorized("who?"), nil},
		"nobody answered":                         {errors.New("connection refused"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, meanings(tt.err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, meanings(fmt.Errorf("creating: %w", tt.err))); diff != "" {
				t.Errorf("wrapped (-want +got):\n%s", diff)
			}
		})
	}
}

// meanings returns what an error is said to be.
func meanings(err error) (is []string) {
	for _, meaning := range []struct {
		name string
		is   func(error) bool
	}{{"stale", response.IsStale}, {"refusal", response.IsRefusal}, {"policy", response.IsByPolicy}, {"own validation", response.IsOwnValidation}} {
		if meaning.is(err) {
			is = append(is, meaning.name)
		}
	}
	return is
}
