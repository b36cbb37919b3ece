package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// A restart does not help against an API server that does not answer, so the probes succeed.
// They cost the API server nothing.
func TestProbesWithoutAPIServer(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	link := &lab.Link{}
	c := n.StartControllerOver(t, link, "-bind-address=127.0.0.1:0", "-stuck-after=3s")
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
	eventuallyIdle(t, n, c)

	mark := time.Now()
	requireProbes(t, c, http.StatusOK, http.StatusOK)
	if made := n.Lab.Requests(t).By(c.User).Since(mark).Where(isNotWatch); len(made) > 0 {
		t.Errorf("the probes cost the API server %s", made)
	}
	link.Cut()
	n.Consistently(t, "the API server does not answer, and the probes succeed", 10*time.Second, func(context.Context) error {
		requireProbes(t, c, http.StatusOK, http.StatusOK)
		return nil
	})
}
