package serve_test

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes/fake"

	"nicoleh.io/k8s-controller/internal/serve"
)

func Example() {
	always := []healthz.HealthChecker{healthz.PingHealthz}
	server, err := serve.Listen(serve.Config{InsecureBindAddress: "127.0.0.1:0"}, fake.NewClientset(), always, always)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- server.Run(ctx) }()

	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.Addresses()[0]+"/readyz", http.NoBody)
	if response, err := http.DefaultClient.Do(request); err == nil {
		fmt.Println(response.Status)
		_ = response.Body.Close()
	}
	stop()
	fmt.Println(<-done)
	// Output:
	// 200 OK
	// <nil>
}
