package leader_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/internal/leader"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	m.Run()
}

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// server is an API server with one Lease and a Secret, and the network in front of it.
type server struct {
	*script.Cluster
	unanswered atomic.Value // requests for a path with this part stay without an answer
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{Cluster: script.New(t, apiserver.Leases(), apiserver.Secrets())}
	s.Set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "thing"}})
	s.answer()
	return s
}

// stop keeps requests for a path with this part without an answer.
func (s *server) stop(part string) { s.unanswered.Store(part) }

// answer answers all requests again.
func (s *server) answer() { s.unanswered.Store("none") }

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, s.unanswered.Load().(string)) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.Cluster.RoundTrip(r)
}

func (s *server) config() *rest.Config { return &rest.Config{Transport: s, QPS: -1} }

// holder returns who holds the Lease.
func (s *server) holder() string {
	for _, lease := range script.All[coordinationv1.Lease](s.Cluster) {
		return ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	return ""
}

// give gives the Lease to another process.
func (s *server) give() {
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To("another"),
		LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)),
		RenewTime:            ptr.To(metav1.NowMicro()),
	}
	if s.holder() != "" {
		script.Edit(s.Cluster, "default", "lease", func(lease *coordinationv1.Lease) { lease.Spec = spec })
		return
	}
	s.Set(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lease"}, Spec: spec})
}

func electionConfig() config.LeaderElectionConfiguration {
	return config.LeaderElectionConfiguration{
		LeaseDuration:     metav1.Duration{Duration: leaseDuration},
		RenewDeadline:     metav1.Duration{Duration: renewDeadline},
		RetryPeriod:       metav1.Duration{Duration: retryPeriod},
		ResourceLock:      resourcelock.LeasesResourceLock,
		ResourceNamespace: "default",
		ResourceName:      "lease",
	}
}

// candidate takes part in an election in the current bubble.
type candidate struct {
	*leader.Election
	client kubernetes.Interface // is fenced
	cancel context.CancelFunc
	ended  chan error // of Run
}

// newCandidate starts a candidate. Its work is the given one, or else waits for ctx to end.
func newCandidate(ctx context.Context, t *testing.T, s *server, work func(context.Context) error) candidate {
	t.Helper()
	election, err := leader.New(electionConfig(), s.config())
	if err != nil {
		t.Fatal(err)
	}
	if work == nil {
		work = func(ctx context.Context) error { <-ctx.Done(); return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	c := candidate{election, newClient(t, s, election.Fence), cancel, make(chan error, 1)}
	go func() { c.ended <- c.Run(ctx, work) }()
	return c
}

func newClient(t *testing.T, s *server, fence func(*rest.Config)) kubernetes.Interface {
	t.Helper()
	config := s.config()
	fence(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// end ends a candidate, which must return no error.
func (c candidate) end(t *testing.T) {
	t.Helper()
	c.cancel()
	if err := <-c.ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// canWrite reports whether the fence lets a write pass.
func (c candidate) canWrite(t *testing.T) bool {
	t.Helper()
	return write(t.Context(), c.client) == nil
}

func write(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Secrets("default").Patch(ctx, "thing", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	return err
}

// writeUnanswered sends a write that gets no answer within a second.
func writeUnanswered(t *testing.T, s *server, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s.stop("/secrets")
	defer s.answer()
	if err := write(ctx, client); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the write returned %v", err)
	}
}

// pass lets time pass in the bubble, until nothing happens at its end any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.give()
		c := newCandidate(t.Context(), t, s, nil)
		pass(leaseDuration - time.Second)
		if c.canWrite(t) {
			t.Error("it writes while another process leads")
		}
		if _, err := c.client.CoreV1().Secrets("default").Get(t.Context(), "thing", metav1.GetOptions{}); err != nil {
			t.Errorf("it cannot read: %v", err)
		}
		pass(3 * retryPeriod)
		if !c.canWrite(t) {
			t.Error("it does not write when it leads")
		}
		c.end(t)
		if c.canWrite(t) {
			t.Error("it writes when it has released the Lease")
		}
	})
}

// exec changes things in a container, although kubectl's default, WebSocket, sends it as a GET.
func TestExecIsAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.give()
		c := newCandidate(t.Context(), t, s, nil)
		pass(time.Second)
		for _, header := range []string{"Upgrade", "Sec-WebSocket-Protocol"} { // as client-go's remotecommand sets them above the fence
			_, err := c.client.CoreV1().RESTClient().Get().Namespace("default").Resource("pods").Name("db-0").SubResource("exec").
				Param("command", "promote").SetHeader(header, "v5.channel.k8s.io").DoRaw(t.Context())
			if err == nil || !strings.Contains(err.Error(), "not sent") {
				t.Errorf("with %s, on standby: %v", header, err)
			}
		}
		c.end(t)
	})
}

// The work continues: Run does not wait for it.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working, endWork := context.WithCancel(t.Context())
		defer endWork()
		s := newServer(t)
		c := newCandidate(t.Context(), t, s, func(context.Context) error { <-working.Done(); return nil })
		pass(time.Minute)
		s.stop("/leases")
		renewed := script.Get[coordinationv1.Lease](s.Cluster, "default", "lease").Spec.RenewTime.Time // in microseconds
		pass(time.Until(renewed.Add(renewDeadline - 1)))
		if !c.canWrite(t) {
			t.Error("it does not write before the renew deadline")
		}
		pass(time.Microsecond)
		if c.canWrite(t) {
			t.Error("it writes after the renew deadline")
		}
		if err := <-c.ended; !errors.Is(err, leader.ErrLost) {
			t.Errorf("Run returned %v", err)
		}
		if lost := time.Since(renewed); lost >= leaseDuration {
			t.Errorf("Run returned %s after the last renewal, when another process can lead", lost)
		}
	})
}

func TestLeaseThatAnotherProcessTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working, endWork := context.WithCancel(t.Context())
		defer endWork()
		s := newServer(t)
		c := newCandidate(t.Context(), t, s, func(context.Context) error { <-working.Done(); return nil })
		pass(time.Minute)
		s.give()
		taken := time.Now()
		if err := <-c.ended; !errors.Is(err, leader.ErrLost) {
			t.Errorf("Run returned %v", err)
		}
		if noticed := time.Since(taken); noticed > retryPeriod {
			t.Errorf("it noticed after %s", noticed)
		}
		if c.canWrite(t) {
			t.Error("it still writes")
		}
		if holder := s.holder(); holder != "another" {
			t.Errorf("%q holds the Lease", holder)
		}
	})
}

func TestReleaseAfterTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		errWork := errors.New("melted")
		c := newCandidate(t.Context(), t, s, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			if s.holder() == "" {
				t.Error("it was released while the work was ending")
			}
			return errWork
		})
		pass(time.Second)
		c.cancel()
		pass(time.Minute - 1)
		if !c.canWrite(t) {
			t.Error("the work cannot write while it ends")
		}
		if err := <-c.ended; !errors.Is(err, errWork) {
			t.Errorf("Run returned %v, want the error of the work", err)
		}
		if holder := s.holder(); holder != "" {
			t.Errorf("%q still holds the Lease", holder)
		}
	})
}

// What a webhook refuses is not carried out, and an event may arrive late.
func TestNoReleaseWhileAWriteIsInDoubt(t *testing.T) {
	fails := func(err error) func(*testing.T, *server, candidate) {
		return func(t *testing.T, s *server, c candidate) {
			t.Helper()
			s.Fail("patch secrets", err)
			if c.canWrite(t) {
				t.Error("it was not refused")
			}
		}
	}
	for name, tt := range map[string]struct {
		write     func(*testing.T, *server, candidate)
		isInDoubt bool
	}{
		"without an answer": {func(t *testing.T, s *server, c candidate) {
			t.Helper()
			writeUnanswered(t, s, c.client)
		}, true},
		"by the API server's own word": {fails(apierrors.NewTimeoutError("it may still be carried out", 0)), true},
		"because etcd does not answer": {fails(&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}), true},
		"a webhook that fails":         {fails(apierrors.NewInternalError(errors.New("failed calling webhook"))), false},
		"an event without an answer": {func(t *testing.T, s *server, c candidate) {
			t.Helper()
			writeUnanswered(t, s, newClient(t, s, c.FenceEvents))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, after := range []time.Duration{leaseDuration - time.Second, leaseDuration} {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t)
					c := newCandidate(t.Context(), t, s, nil)
					pass(time.Minute)
					tt.write(t, s, c)
					pass(after)
					c.end(t)
					if isReleased, want := s.holder() == "", !tt.isInDoubt || after == leaseDuration; isReleased != want {
						t.Errorf("released %s after the write: %t", after, isReleased)
					}
				})
			}
		})
	}
}

// A sync that ignores its context does not keep the work from ending. While one of its writes
// is under way, the Lease is not released, and afterwards it writes no more.
func TestNoReleaseWhileAWriteIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := newCandidate(t.Context(), t, s, nil)
		pass(time.Minute)
		var writing sync.WaitGroup
		writing.Go(func() { writeUnanswered(t, s, c.client) })
		pass(1)
		c.end(t)
		if s.holder() == "" {
			t.Error("it was released")
		}
		writing.Wait()
		if c.canWrite(t) {
			t.Error("it still writes")
		}
	})
}

// A process that cannot reach its Lease is not ready, because it can never lead.
func TestReadyOnceTheLeaseCanBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.Refuse(func(string) error {
			return apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "lease", errors.New("no"))
		})
		c := newCandidate(t.Context(), t, s, nil)
		pass(5*time.Minute - time.Second)
		if c.Ready() == nil {
			t.Error("it is ready")
		}
		s.Refuse(nil)
		pass(3 * retryPeriod)
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		c.end(t)
	})
}

// A connection that sends nothing any more does not cost the Lease. This takes real time.
// The server offers HTTP/2, which would use the connection again after a request on it has
// timed out.
func TestHangingConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	listening := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: s})
	listening.EnableHTTP2 = true
	listening.StartTLS()
	defer listening.Close()
	var (
		mu       sync.Mutex
		current  *freezing
		replaced bool
	)
	c := electionConfig()
	c.LeaseDuration.Duration, c.RenewDeadline.Duration, c.RetryPeriod.Duration = 4*time.Second, 3*time.Second, 200*time.Millisecond
	cluster := &rest.Config{Host: listening.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		replaced = current != nil
		current = &freezing{Conn: connection}
		return current, err
	}}
	cluster.Insecure = true
	election, err := leader.New(c, cluster)
	if err != nil {
		t.Fatal(err)
	}
	err = election.Run(t.Context(), func(ctx context.Context) error {
		mu.Lock()
		current.freeze()
		mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second): // longer than the lease
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil || !replaced {
		t.Errorf("Run returned %v; connected again: %t", err, replaced)
	}
}

// freezing is a connection that can be made to lose all that it sends.
type freezing struct {
	net.Conn
	mu       sync.Mutex
	isFrozen bool
}

func (f *freezing) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isFrozen = true
}

// Write implements net.Conn.
func (f *freezing) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isFrozen {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

func TestValidation(t *testing.T) {
	for want, change := range map[string]func(*config.LeaderElectionConfiguration){
		"-leader-elect-lease-duration must be whole seconds, and is 15.001s": func(c *config.LeaderElectionConfiguration) {
			c.LeaseDuration.Duration += time.Millisecond
		},
		"-leader-elect-renew-deadline (14.999999999s) must be at least 1s shorter than -leader-elect-lease-duration (15s)": func(c *config.LeaderElectionConfiguration) {
			c.RenewDeadline.Duration = leaseDuration - 1
		},
		"renewDeadline must be greater than retryPeriod*JitterFactor": func(c *config.LeaderElectionConfiguration) {
			c.RetryPeriod.Duration = renewDeadline
		},
		"endpoints lock is removed, migrate to leases": func(c *config.LeaderElectionConfiguration) {
			c.ResourceLock = "endpoints"
		},
	} {
		c := electionConfig()
		change(&c)
		if _, err := leader.New(c, &rest.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
