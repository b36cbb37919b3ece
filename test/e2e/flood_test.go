package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// Anyone who can reach the metrics endpoint can send any number of invalid tokens. The
// API server must receive few of them for review, and the leader must keep its lease even
// with a low limit on its own requests.
func TestAFloodOfTokens(t *testing.T) {
	t.Parallel()
	const (
		senders  = 100
		lasts    = 20 * time.Second // twice the renew deadline
		requests = 20_000           // at most
	)
	l := NewLab(t, lab.Options{})
	n := l.NewNamespace(t)
	c := l.StartController(t, "-leader-elect", "-leader-elect-resource-namespace="+lab.SystemNamespace, "-kube-api-qps=20", "-bind-address=127.0.0.1:0")
	n.Controller = c
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")

	dialer := &net.Dialer{}
	if runtime.GOOS == "linux" { // where all of 127.0.0.0/8 is the loopback interface
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}
	}
	client := &http.Client{Timeout: lab.Patience, Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the certificate is self-signed
		DialContext:         dialer.DialContext,
		MaxIdleConnsPerHost: senders,
	}}
	t.Cleanup(client.CloseIdleConnections)
	url := "https://" + c.Address(t, true) + "/metrics"
	begin := time.Now()
	flood, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var sending sync.WaitGroup
	var sent, answered atomic.Int64
	for range senders {
		sending.Go(func() {
			for number := sent.Add(1); flood.Err() == nil && number <= requests; number = sent.Add(1) {
				code, _, err := lab.GetWith(flood, client, url, fmt.Sprint("invented-", number))
				switch {
				case err != nil:
				case code == http.StatusUnauthorized:
					answered.Add(1)
				default:
					t.Errorf("a request with an invented token got status code %d", code)
				}
			}
		})
	}
	for flood.Err() == nil {
		requireProbes(t, c, http.StatusOK, http.StatusOK)
	}
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "chocolate")
	sending.Wait()

	isReview := func(e *cluster.AuditEvent) bool { return e.Resource == "tokenreviews" }
	made := l.Requests(t).By(c.User).Since(begin).Where(isReview)
	most := 10 + int(10*time.Since(begin).Seconds()) + 1 // as reviewConfig in pkg/kit/manager has it
	t.Logf("%d requests, of which %d were answered, and %d token reviews", sent.Load(), answered.Load(), len(made))
	if len(made) > most || len(made) == 0 {
		t.Errorf("the API server got %d token reviews, want at least one and at most %d", len(made), most)
	}
	if terms := termsOf(t, l.Requests(t), lease); len(terms) != 1 || c.Starts() != 1 {
		t.Errorf("there were %d terms and %d starts of the controller, want one each", len(terms), c.Starts())
	}
}
