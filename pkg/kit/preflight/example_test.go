package preflight_test

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// What Await logs if the permission to list Pods is missing, and then waits for.
func Example() {
	pods := preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
		Permit:               "apply artifacts/rbac-cones.yaml",
	}
	obstacle, remedy, isHopeless := pods.Explain(apierrors.NewForbidden(pods.GroupResource(), "", errors.New("no")))
	fmt.Printf("%s: %s (hopeless: %t)\n", obstacle, remedy, isHopeless)
	// Output: permission is missing: apply artifacts/rbac-cones.yaml (hopeless: false)
}
