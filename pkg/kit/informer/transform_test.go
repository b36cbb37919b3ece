package informer_test

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
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

func TestStripped(t *testing.T) {
	transform := informer.Stripped(func(pod *corev1.Pod) { pod.Spec = corev1.PodSpec{} })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cone"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	tombstone := cache.DeletedFinalStateUnknown{Key: "parlour/cone"}
	for _, tt := range []struct {
		name      string
		obj, want any
	}{
		{"an object of that type", pod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cone"}}},
		{"a tombstone", tombstone, tombstone},
		{"another type", &corev1.Node{}, &corev1.Node{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := transform(tt.obj)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsBehind(t *testing.T) {
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
		{"the namespace ends", terminating, true},
		{"somebody forbids it", apierrors.NewForbidden(pods, "cone", errors.New("no")), false},
		{"nobody answered", errors.New("connection refused"), false},
		{"a webhook denies it with the code of what is gone", denial(http.StatusNotFound), false},
		{"a webhook denies it with the code of a conflict", denial(http.StatusConflict), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := informer.IsBehind(tt.err); got != tt.want {
				t.Errorf("got %t", got)
			}
			if got := informer.IsBehind(fmt.Errorf("creating: %w", tt.err)); tt.err != nil && got != tt.want {
				t.Errorf("wrapped, got %t", got)
			}
		})
	}
}

// denial is what the API server answers when a webhook has denied a request with
// that code and said nothing else.
func denial(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "w" denied the request without explanation`,
	}}
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
			if got := informer.IsRefusal(tt.err); got != tt.want {
				t.Errorf("got %t", got)
			}
			if got := informer.IsRefusal(fmt.Errorf("creating: %w", tt.err)); tt.err != nil && got != tt.want {
				t.Errorf("wrapped, got %t", got)
			}
		})
	}
}
