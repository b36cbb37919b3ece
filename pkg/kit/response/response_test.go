package response_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// What real API servers answer: test/fidelity makes one give each of these.
func TestResponses(t *testing.T) {
	pods := corev1.Resource("pods")
	forbidden := func(message string) *apierrors.StatusError {
		return apierrors.NewForbidden(pods, "cone", errors.New(message))
	}
	terminating := forbidden("the namespace is being deleted")
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	failure := func(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
	}
	withDetails := func(err *apierrors.StatusError, details metav1.StatusDetails) error {
		err.ErrStatus.Details = &details
		return err
	}
	denial := func(code int32, reason metav1.StatusReason) *apierrors.StatusError {
		return failure(code, reason, `admission webhook "w.example" denied the request: ValidatingAdmissionPolicy 'p' denied request: no`)
	}
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "cone", field.ErrorList{field.Invalid(path, "u", "field is immutable")})
	}
	cone := metav1.StatusDetails{Kind: "pods", Name: "cone"}
	noField := metav1.StatusDetails{Kind: "pods", Name: "cone", Causes: []metav1.StatusCause{{Message: "no such key: team"}}}
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"no error": {nil, ""},

		"it is there already":                  {apierrors.NewAlreadyExists(pods, "cone"), "stale"},
		"it has changed":                       {apierrors.NewConflict(pods, "cone", errors.New("changed")), "stale, conflict"},
		"it is gone":                           {apierrors.NewNotFound(pods, "cone"), "stale"},
		"it has another UID":                   {invalid(field.NewPath("metadata", "uid")), "stale"},
		"a quota that several write":           {apierrors.NewConflict(corev1.Resource("resourcequotas"), "q", errors.New("changed")), "stale, conflict"},
		"its namespace does not exist":         {apierrors.NewNotFound(corev1.Resource("namespaces"), "shop"), "refusal"},
		"its namespace is called like it":      {apierrors.NewNotFound(corev1.Resource("namespaces"), "cone"), "refusal"},
		"another object is gone":               {apierrors.NewNotFound(pods, "sundae"), "refusal"},
		"an object of another group is gone":   {apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}, "cone"), "refusal"},
		"its definition is gone":               {apierrors.NewGenericServerResponse(404, "patch", pods, "cone", "404 page not found", 0, true), "refusal"},
		"the namespace ends, which takes long": {terminating, "refusal"},

		"somebody forbids it": {forbidden("no"), "refusal"},
		"a quota is exceeded": {forbidden("exceeded quota: q"), "refusal"},
		"it makes no sense":   {apierrors.NewBadRequest("what?"), "refusal"},
		"it is too large":     {failure(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"), "refusal"},
		"it is invalid":       {invalid(field.NewPath("spec", "image")), "refusal, own validation"},
		"it is invalid, and quotes a denial": {
			apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "cone", field.ErrorList{field.Invalid(field.NewPath("spec"), "' denied request: ", "no")}),
			"refusal, own validation",
		},
		"it is invalid, without a cause": {failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "no"), "refusal"},

		"a validating policy denies it":           {forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), "refusal, policy"},
		"a validating policy denies it, with 422": {withDetails(failure(422, metav1.StatusReasonInvalid, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), noField), "refusal, policy"},
		"a mutating policy fails, with 422":       {withDetails(failure(422, metav1.StatusReasonInvalid, "policy 'p' with binding 'b' denied request: no such key: team"), noField), "refusal, policy"},
		"a mutating policy fails, with 403":       {withDetails(failure(403, metav1.StatusReasonInvalid, "policy 'p' with binding 'b' denied request: error applying patch"), noField), "refusal, policy"},
		"a webhook denies it":                     {denial(http.StatusForbidden, ""), "refusal"},
		"a webhook denies it with 400":            {denial(http.StatusBadRequest, ""), "refusal"},
		"a webhook denies it with 401":            {denial(http.StatusUnauthorized, metav1.StatusReasonUnauthorized), "refusal"},
		"a webhook denies it with 404":            {withDetails(denial(http.StatusNotFound, metav1.StatusReasonNotFound), cone), "refusal"},
		"a webhook denies it with 409":            {withDetails(denial(http.StatusConflict, metav1.StatusReasonConflict), cone), "refusal"},
		"a webhook says that it exists":           {withDetails(denial(http.StatusConflict, metav1.StatusReasonAlreadyExists), cone), "refusal"},
		"a webhook denies it like validation":     {withDetails(denial(422, metav1.StatusReasonInvalid), *statusDetails(invalid(field.NewPath("spec")))), "refusal"},
		"a webhook denies it like another UID":    {withDetails(denial(422, metav1.StatusReasonInvalid), *statusDetails(invalid(field.NewPath("metadata", "uid")))), "refusal"},
		"a webhook denies it with 429":            {denial(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), "refusal"},
		"a webhook denies it with 500":            {denial(http.StatusInternalServerError, ""), "refusal"},
		"a webhook denies it with 503":            {denial(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable), "refusal"},
		"a webhook denies it with 504":            {denial(http.StatusGatewayTimeout, metav1.StatusReasonTimeout), "refusal"},
		"a webhook cannot be called":              {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example"`)), "refusal"},

		"etcd does not answer":         {failure(http.StatusInternalServerError, "", "etcdserver: request timed out"), ""},
		"the server is busy":           {apierrors.NewTooManyRequests("later", 1), ""},
		"the server takes too long":    {apierrors.NewTimeoutError("too slow", 1), ""},
		"the server is away":           {apierrors.NewServiceUnavailable("ValidatingAdmissionPolicy"), ""},
		"the credentials have expired": {apierrors.NewUnauthorized("who?"), ""},
		"nobody answered":              {errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := meaning(tt.err, pods, "cone"); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if got := meaning(fmt.Errorf("creating: %w", tt.err), pods, "cone"); got != tt.want {
				t.Errorf("wrapped: %q, want %q", got, tt.want)
			}
		})
	}
}

func statusDetails(err error) *metav1.StatusDetails {
	return err.(apierrors.APIStatus).Status().Details //nolint:errorlint // it was made here
}

// meaning returns what an error is said to be. What is stale is no refusal to be told.
func meaning(err error, resource schema.GroupResource, name string) string {
	var is []string
	for _, question := range []struct {
		name   string
		answer bool
	}{
		{"stale", response.IsStale(err, resource, name)},
		{"conflict", response.IsConflict(err)},
		{"refusal", response.IsRefusal(err) && !response.IsStale(err, resource, name)},
		{"policy", response.IsByPolicy(err)},
		{"own validation", response.IsOwnValidation(err) && !response.IsStale(err, resource, name)},
	} {
		if question.answer {
			is = append(is, question.name)
		}
	}
	return strings.Join(is, ", ")
}

// What is remembered of an error says the same, and is short.
func TestBrief(t *testing.T) {
	long := strings.Repeat("melted ", 100_000)
	pods := schema.GroupResource{Resource: "pods"}
	valid := field.NewPath("spec", long)
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "cone", field.ErrorList{field.Invalid(valid, long, long), field.Invalid(valid, long, long)})
	denied := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "cone", field.ErrorList{field.Invalid(valid, long, long)})
	denied.ErrStatus.Details.Causes = append(denied.ErrStatus.Details.Causes, metav1.StatusCause{Message: long})
	webhook := apierrors.NewUnauthorized(`admission webhook "w" denied the request: ` + long)
	terminating := apierrors.NewForbidden(pods, "cone", errors.New(long))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Message: long}}
	policy := apierrors.NewForbidden(pods, "cone", errors.New("ValidatingAdmissionPolicy 'p' denied request: "+long))
	for _, err := range []error{invalid, denied, webhook, terminating, policy} {
		err = fmt.Errorf("creating Pod %q: %w", "cone", err)
		brief := response.Brief(err)
		if want := err.Error()[:500]; len(brief.Error()) > 1024 || brief.Error()[:500] != want {
			t.Errorf("%s of %d bytes, want %s", brief.Error()[:500], len(brief.Error()), want)
		}
		if got, want := meaning(brief, pods, "cone"), meaning(err, pods, "cone"); got != want {
			t.Errorf("%s is %s, want %s", want, got, want)
		}
		if got, want := apierrors.HasStatusCause(brief, corev1.NamespaceTerminatingCause), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause); got != want {
			t.Errorf("a terminating namespace: %t, want %t", got, want)
		}
		if raw, err := json.Marshal(brief.(apierrors.APIStatus).Status()); err != nil || len(raw) > 4096 { //nolint:errorlint // it is not wrapped
			t.Errorf("%d bytes are kept: %v", len(raw), err)
		}
	}
	if lost := errors.New("connection refused"); !errors.Is(response.Brief(lost), lost) || response.Brief(nil) != nil {
		t.Error("what is no response has become another error")
	}
}
