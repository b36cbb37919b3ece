package preflight_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// A controller waits until it can list Pods. Meanwhile, the log says what to do.
func Example() {
	client := metadata.NewForConfigOrDie(&rest.Config{Host: "https://kubernetes.default.svc"})
	err := preflight.Await(context.Background(), client, preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
		Permit:               "kubectl apply -f rbac.yaml",
	}, func() bool { return false })
	if err != nil {
		fmt.Println("only a restart can help:", err)
	}
}
