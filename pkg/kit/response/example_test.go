package response_test

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// A status should report that a quota refuses a Pod, and not that the API server is busy.
func ExampleIsRefusal() {
	pods := schema.GroupResource{Resource: "pods"}
	fmt.Println(response.IsRefusal(apierrors.NewForbidden(pods, "web", errors.New("exceeded quota"))))
	fmt.Println(response.IsRefusal(apierrors.NewTooManyRequests("try again later", 1)))
	// Output:
	// true
	// false
}

// A cache did not show yet that someone else had changed the Pod.
func ExampleIsStale() {
	pods := schema.GroupResource{Resource: "pods"}
	fmt.Println(response.IsStale(apierrors.NewConflict(pods, "web", errors.New("the object has been modified")), pods, "web"))
	// Output: true
}
