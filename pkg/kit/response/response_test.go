package response_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// The table is what a real API server answers to a write of a Deployment (TestResponses in test/fidelity).
func TestResponses(t *testing.T) {
	content, err := os.ReadFile("testdata/responses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table []struct {
		Name, Means string
		Status      metav1.Status
	}
	if err := yaml.UnmarshalStrict(content, &table); err != nil || len(table) == 0 {
		t.Fatalf("%d rows: %v", len(table), err)
	}
	for _, row := range table {
		t.Run(row.Name, func(t *testing.T) { means(t, &apierrors.StatusError{ErrStatus: row.Status}, row.Means) })
	}
}

// Of these, none is easily had.
func TestOtherErrors(t *testing.T) {
	namespaces, deployments := corev1.Resource("namespaces"), appsv1.Resource("deployments")
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"no error":                           {nil, ""},
		"its namespace is called like it":    {apierrors.NewNotFound(namespaces, "cone"), "refusal"},
		"another object is gone":             {apierrors.NewNotFound(deployments, "sundae"), "refusal"},
		"another object is there":            {apierrors.NewAlreadyExists(deployments, "sundae"), "refusal"},
		"an object of another group is gone": {apierrors.NewNotFound(schema.GroupResource{Group: "example.com", Resource: "deployments"}, "cone"), "refusal"},
		"it is invalid, without a cause":     {apierrors.NewInvalid(schema.GroupKind{}, "cone", nil), "refusal"},
		"the server takes too long":          {apierrors.NewTimeoutError("too slow", 1), ""},
		"the server is away":                 {apierrors.NewServiceUnavailable("ValidatingAdmissionPolicy"), ""},
		"nobody answered":                    {errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) { means(t, tt.err, tt.want) })
	}
}

func means(t *testing.T, err error, want string) {
	t.Helper()
	if got := meaning(err, appsv1.Resource("deployments"), "cone"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := meaning(fmt.Errorf("creating: %w", err), appsv1.Resource("deployments"), "cone"); got != want {
		t.Errorf("wrapped: %q, want %q", got, want)
	}
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
		{"exists", response.IsAlreadyExists(err, resource, name)},
		{"taken", response.IsTaken(err)},
		{"refusal", response.IsRefusal(err) && !response.IsStale(err, resource, name)},
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
	for _, err := range []error{invalid, denied, webhook, terminating} {
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
		if raw, err := json.Marshal(brief.(apierrors.APIStatus).Status()); err != nil || len(raw) > 4096 {
			t.Errorf("%d bytes are kept: %v", len(raw), err)
		}
	}
	if lost := errors.New("connection refused"); !errors.Is(response.Brief(lost), lost) || response.Brief(nil) != nil {
		t.Error("what is no response has become another error")
	}
}
