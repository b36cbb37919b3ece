package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"

	"nicoleh.io/k8s-controller/pkg/kit/serve"
)

// A process whose caches are not filled is alive, but not ready.
func Example() {
	live := []healthz.HealthChecker{healthz.PingHealthz}
	ready := []healthz.HealthChecker{healthz.NamedCheck("caches", func(*http.Request) error { return errors.New("not filled yet") })}
	// Without HTTPS, it needs no client for reviews.
	server, err := serve.Listen(serve.Config{InsecureBindAddress: "127.0.0.1:0"}, nil, live, ready)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := make(chan error)
	go func() { stopped <- server.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/livez", "/readyz"} {
		response, err := client.Get("http://" + server.Addresses()[0] + path) //nolint:noctx // an example
		if err != nil {
			fmt.Println(err)
			return
		}
		body, err := io.ReadAll(response.Body)
		fmt.Println(path, response.StatusCode, string(body), err, response.Body.Close())
	}
	cancel()
	fmt.Println(<-stopped)
	// Output:
	// /livez 200 ok <nil> <nil>
	// /readyz 500 [-]caches failed: reason withheld
	// readyz check failed
	//  <nil> <nil>
	// <nil>
}
