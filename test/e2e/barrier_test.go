package e2e

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// longLease holds the flags for a lease that outlasts everything that a test does to its
// holder.
var longLease = []string{"-leader-elect", "-leader-elect-lease-duration=60s", "-leader-elect-renew-deadline=50s"}

// The new leader's watch of Icecreams lags, as it can when it is served by another API
// server than the former leader's. So its cache still has the old spec, which the new
// leader must not apply.
func TestNewLeaderDoesNotRollBack(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	former, next, icecreams := startLeaderAndLaggingStandby(t, n)
	const vanilla, chocolate, strawberry = "registry.example/vanilla:1", "registry.example/chocolate:1", "registry.example/strawberry:1"

	n.Create(t, "sundae", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1), Image: vanilla})
	ready := n.EventuallyReady(t, "sundae")
	n.Eventually(t, "the standby has received the Icecream", icecreams.havePassed(fmt.Sprintf("%q:%q", "resourceVersion", ready.ResourceVersion)))
	icecreams.hold()
	edit := func(image string) {
		t.Helper()
		patchIcecream(t, n, "sundae", fmt.Sprintf(`{"spec":{"image":%q}}`, image))
		n.EventuallyReady(t, "sundae")
	}
	edit(chocolate)

	former.Stop(t)
	n.Controller = next
	eventuallyLeads(t, n, next)
	eventuallyWaitsForIcecreams(t, n, next)
	n.Steadily(t, "the new leader leaves the Deployment alone", 3*time.Second, func(context.Context) error {
		if made := n.Requests(t).Where(isFrom(next)).Resource("deployments").Writes(); len(made) > 0 {
			return fmt.Errorf("it made %s", made)
		}
		return nil
	})
	if image := n.Deployment(t, "sundae").Spec.Template.Spec.Containers[0].Image; image != chocolate {
		t.Errorf("the Deployment runs %s, want %s", image, chocolate)
	}

	icecreams.release()
	edit(strawberry)
	if image := n.Deployment(t, "sundae").Spec.Template.Spec.Containers[0].Image; image != strawberry {
		t.Errorf("once its watch is up to date, the Deployment runs %s, want %s", image, strawberry)
	}
}

// The cache of such a leader may also show an Icecream as it was before its Deployment
// was created, with a deploymentName that is no longer wanted. The new leader must not
// create that Deployment.
func TestNewLeaderCreatesNothingOfThePast(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	former, next, icecreams := startLeaderAndLaggingStandby(t, n)

	former.Freeze(t)
	n.Create(t, "sundae", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1), DeploymentName: "cone"})
	n.Eventually(t, "the standby has received the Icecream", icecreams.havePassed(`"name":"sundae"`))
	icecreams.hold()
	former.Thaw(t)
	n.EventuallyReady(t, "sundae")
	patchIcecream(t, n, "sundae", `{"spec":{"deploymentName":"cup"}}`)
	n.EventuallyReady(t, "sundae")
	onlyCup := func(context.Context) error {
		if got := names(n.AllDeployments(t)); len(got) != 1 || got[0] != "cup" {
			return fmt.Errorf("the Deployments are %q", got)
		}
		return nil
	}
	n.Eventually(t, "the Deployment has been renamed", onlyCup)

	former.Stop(t)
	n.Controller = next
	eventuallyLeads(t, n, next)
	eventuallyWaitsForIcecreams(t, n, next)
	n.Steadily(t, "the new leader creates nothing", 3*time.Second, onlyCup)

	icecreams.release()
	patchIcecream(t, n, "sundae", `{"spec":{"replicas":2}}`)
	n.EventuallyReady(t, "sundae")
	made := n.Requests(t).Where(isFrom(next)).Resource("deployments").Writes()
	for _, e := range made {
		if e.Verb == "create" || e.Name != "cup" {
			t.Errorf("the new leader made %s %s %s", e.Verb, e.Resource, e.Name)
		}
	}
	if len(made) == 0 {
		t.Error("the new leader did nothing once its watch was up to date")
	}
}

// startLeaderAndLaggingStandby starts a leader, and a standby whose watches of Icecreams
// can be held back.
func startLeaderAndLaggingStandby(t *testing.T, n *lab.Namespace) (leader, standby *lab.Controller, icecreams *watches) {
	t.Helper()
	leader = n.StartController(t, longLease...)
	eventuallyLeads(t, n, leader)
	kubeconfig, err := n.Lab.ServiceAccountKubeconfig(t.Context(), n.Name, lab.ServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	icecreams = &watches{resource: "icecreams", gate: make(chan struct{})}
	icecreams.release()
	address, certificate := icecreams.proxy(t, n.Lab)
	kubeconfig = editKubeconfig(t, kubeconfig, func(c *clientcmdapi.Config) {
		for _, cluster := range c.Clusters {
			cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData = address, "", certificate
		}
	})
	standby = n.StartController(t, append([]string{"-kubeconfig=" + kubeconfig}, longLease...)...)
	eventuallyReadyToLead(t, n, standby)
	n.Controller = leader
	return leader, standby, icecreams
}

// eventuallyWaitsForIcecreams waits until the log of a controller says that it is waiting
// for its cache of Icecreams.
func eventuallyWaitsForIcecreams(t *testing.T, n *lab.Namespace, c *lab.Controller) {
	t.Helper()
	n.Eventually(t, "the new leader waits for its cache", func(context.Context) error {
		if log := c.Log(); !strings.Contains(log, `"Waiting for the cache to catch up with the API server" resource="icecreams.controller.nicoleh.io"`) {
			return fmt.Errorf("its log is:\n%s", log)
		}
		return nil
	})
}

// patchIcecream applies a merge patch to an Icecream.
func patchIcecream(t *testing.T, n *lab.Namespace, name, patch string) {
	t.Helper()
	if _, err := n.Icecreams().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// isForBarrier reports whether a controller made the request at the beginning of its term,
// to find out whether its caches are up to date.
func isForBarrier(e *cluster.AuditEvent) bool { return strings.HasSuffix(e.UserAgent, "/barrier") }

// watches are the watches of one resource by the clients of a proxy, which can hold back
// their events.
type watches struct {
	resource string

	mu     sync.Mutex
	gate   chan struct{} // closed while events may pass
	passed strings.Builder
}

// proxy starts a proxy for the cluster's API, which runs until the test ends. It returns
// the proxy's address and certificate.
func (w *watches) proxy(t *testing.T, l *lab.Lab) (address string, certificate []byte) {
	t.Helper()
	server := l.Proxy(t, func(apiServer *httputil.ReverseProxy) http.Handler {
		apiServer.ModifyResponse = func(r *http.Response) error {
			isWatch := r.Request.URL.Query().Has("watch") && strings.HasSuffix(r.Request.URL.Path, "/"+w.resource)
			if isWatch && !strings.HasSuffix(r.Request.UserAgent(), "/barrier") {
				done := r.Request.Context().Done()
				r.Body = heldBody{r.Body, func(content []byte) error { return w.pass(done, content) }}
			}
			return nil
		}
		return apiServer
	})
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// hold makes the proxy hold back events until release is called.
func (w *watches) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = make(chan struct{})
}

// release lets events pass again.
func (w *watches) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.gate)
}

// havePassed returns a check that this text has passed the proxy.
func (w *watches) havePassed(what string) func(context.Context) error {
	return func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !strings.Contains(w.passed.String(), what) {
			return fmt.Errorf("%s has not passed the proxy yet", what)
		}
		return nil
	}
}

// pass waits until content may pass. It returns an error if the client is gone before
// that.
func (w *watches) pass(done <-chan struct{}, content []byte) error {
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	select {
	case <-done:
		return io.ErrClosedPipe
	case <-gate:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed.Write(content)
	return nil
}

// A heldBody is the body of a response. Read returns what it has read only after pass has
// returned.
type heldBody struct {
	io.ReadCloser
	pass func(content []byte) error
}

// Read implements io.Reader.
func (b heldBody) Read(content []byte) (int, error) {
	n, err := b.ReadCloser.Read(content)
	if stopped := b.pass(content[:n]); stopped != nil {
		return 0, stopped
	}
	return n, err
}
