package response_test

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// What a controller does about the error of a write depends on what it means.
func Example() {
	outcome := func(err error) error {
		switch {
		case response.IsStale(err):
			return worker.Requeue(err) // the caches will soon show what has changed
		case response.IsRefusal(err):
			return worker.Terminal(err) // the same request would be refused again
		default:
			return err // retry, with back-off
		}
	}
	pods := corev1.Resource("pods")
	for _, err := range []error{
		apierrors.NewAlreadyExists(pods, "cone"),
		apierrors.NewForbidden(pods, "cone", errors.New("exceeded quota")),
		apierrors.NewServiceUnavailable("starting up"),
	} {
		fmt.Printf("%T: %v\n", outcome(err), err)
	}
	// Output:
	// *worker.marked: pods "cone" already exists
	// *worker.marked: pods "cone" is forbidden: exceeded quota
	// *errors.StatusError: starting up
}
