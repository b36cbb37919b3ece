package pace_test

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// A quota refuses a write. The same write has to wait, and another one does not.
func Example() {
	var attempts pace.Attempts
	web := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	large, small := pace.Wish{Digest: "memory: 8Gi"}, pace.Wish{Digest: "memory: 1Gi"}
	exceeded := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("exceeded quota"))

	now := time.Now()
	attempts.Note(web, attempts.Last(web).Then(large, exceeded, now))
	fmt.Println("the same:", attempts.Last(web).Wait(large, now))
	fmt.Println("another:", attempts.Last(web).Wait(small, now))
	// Output:
	// the same: 1s
	// another: 0s
}
