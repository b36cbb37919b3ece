package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A restart does not help against an API server that does not answer, so the probes succeed.
// They cost the API server nothing.
func TestProbesWithoutAPIServer(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	var isAway atomic.Bool
	c := n.StartControllerBehind(t, func(*http.Request) http.HandlerFunc {
		if !isAway.Load() {
			return nil
		}
		return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	}, "-bind-address=127.0.0.1:0", "-stuck-after=3s")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	eventuallyIdle(t, n, c)

	mark := time.Now()
	requireProbes(t, c, http.StatusOK, http.StatusOK)
	if made := n.Lab.Requests(t).By(c.User).Since(mark).Where(isNotWatch); len(made) > 0 {
		t.Errorf("the probes cost the API server %s", made)
	}
	isAway.Store(true)
	n.Steadily(t, "the API server does not answer, and the probes succeed", 10*time.Second, func(context.Context) error {
		requireProbes(t, c, http.StatusOK, http.StatusOK)
		return nil
	})
	isAway.Store(false)
}

// A worker that does not come back from one object makes /livez fail.
func TestProbesWithStuckWorker(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	release := make(chan struct{})
	c := n.StartControllerBehind(t, func(r *http.Request) http.HandlerFunc {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/deployments") {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, "-bind-address=127.0.0.1:0", "-stuck-after=3s")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.Eventually(t, "/livez fails", func(context.Context) error {
		if code, body := c.Get(t, "/livez", ""); code != http.StatusInternalServerError || !strings.Contains(body, "[-]icecream failed") {
			return fmt.Errorf("it answers %d: %s", code, body)
		}
		return nil
	})
	requireProbes(t, c, http.StatusInternalServerError, http.StatusOK)
	close(release)
	n.Eventually(t, "/livez succeeds", func(context.Context) error {
		if code, body := c.Get(t, "/livez", ""); code != http.StatusOK {
			return fmt.Errorf("it answers %d: %s", code, body)
		}
		return nil
	})
}
