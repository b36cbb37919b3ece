package leader_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/leader"
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

// server is an API server that holds one Lease and accepts every other write.
type server struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	written time.Time // when the Lease was last written
	isDown  bool      // whether requests stay without an answer
	forbids error     // the answer to every request for the Lease, unless it is nil
}

// RoundTrip implements http.RoundTripper, for tests without connections.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	isDown := s.isDown || strings.Contains(r.URL.Path, "/hanging")
	s.mu.Unlock()
	if isDown {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	var sent coordinationv1.Lease
	if r.Body != nil {
		json.NewDecoder(r.Body).Decode(&sent) //nolint:errcheck // not every request has a body
	}
	var err *apierrors.StatusError
	switch isLease := strings.Contains(r.URL.Path, "/leases"); {
	case isLease && s.forbids != nil:
		errors.As(s.forbids, &err)
	case strings.Contains(r.URL.Path, "/webhook"):
		err = apierrors.NewInternalError(errors.New("failed calling webhook"))
	case strings.Contains(r.URL.Path, "/etcd"):
		err = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "etcdserver: request timed out"}}
	case strings.Contains(r.URL.Path, "/slow"):
		err = apierrors.NewTimeoutError("it may still be carried out", 0)
	case !isLease:
		fmt.Fprint(w, "{}")
		return
	case r.Method == http.MethodPost && s.lease != nil:
		err = apierrors.NewAlreadyExists(leases, "lease")
	case r.Method != http.MethodPost && s.lease == nil:
		err = apierrors.NewNotFound(leases, "lease")
	case r.Method == http.MethodPut && sent.ResourceVersion != s.lease.ResourceVersion:
		err = apierrors.NewConflict(leases, "lease", nil)
	case r.Method != http.MethodGet:
		s.store(&sent)
	}
	if err != nil {
		err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(err.Status().Code))
		json.NewEncoder(w).Encode(err.Status()) //nolint:errcheck // to memory
		return
	}
	json.NewEncoder(w).Encode(s.lease) //nolint:errcheck // to memory
}

func (s *server) store(lease *coordinationv1.Lease) {
	s.version++
	s.lease, s.written = lease, time.Now()
	s.lease.ResourceVersion = fmt.Sprint(s.version)
}

// holder returns who holds the Lease.
func (s *server) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return ""
	}
	return ptr.Deref(s.lease.Spec.HolderIdentity, "")
}

// give gives the Lease to somebody.
func (s *server) give(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lease"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)),
			RenewTime:            ptr.To(metav1.NowMicro()),
		},
	})
}

// stop keeps requests without an answer, and returns when the Lease was last written.
func (s *server) stop() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isDown = true
	return s.written
}

// clientConfig is for clients that reach the server without connections, in JSON.
func clientConfig(s *server) *rest.Config {
	return &rest.Config{Transport: s, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
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
	client *http.Client // is fenced
	ended  chan error   // of Run
}

// newCandidate starts a candidate. Its work is the given one, or else waits for ctx to end.
func newCandidate(ctx context.Context, t *testing.T, s *server, work func(context.Context) error) candidate {
	t.Helper()
	election, err := leader.New(electionConfig(), clientConfig(s))
	if err != nil {
		t.Fatal(err)
	}
	fenced := clientConfig(s)
	election.Fence(fenced)
	client, err := rest.HTTPClientFor(fenced)
	if err != nil {
		t.Fatal(err)
	}
	if work == nil {
		work = func(ctx context.Context) error { <-ctx.Done(); return nil }
	}
	c := candidate{election, client, make(chan error, 1)}
	go func() { c.ended <- c.Run(ctx, work) }()
	return c
}

// canWrite reports whether the fence lets a write pass.
func (c candidate) canWrite(t *testing.T) bool {
	t.Helper()
	return c.send(t, http.MethodPatch, "/things") == nil
}

func (c candidate) send(t *testing.T, method, path string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://server"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.client.Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	return err
}

// pass lets time pass in the bubble, until nothing happens at its end any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestOnlyTheLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{}
		s.give("another")
		c := newCandidate(ctx, t, s, nil)
		pass(leaseDuration - time.Second)
		if c.canWrite(t) {
			t.Error("it writes while another process leads")
		}
		if err := c.send(t, http.MethodGet, "/things"); err != nil {
			t.Errorf("it cannot read: %v", err)
		}
		pass(3 * retryPeriod)
		if !c.canWrite(t) {
			t.Error("it does not write when it leads")
		}
		cancel()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
		if c.canWrite(t) {
			t.Error("it writes when it has released the Lease")
		}
	})
}

// The work continues: Run does not wait for it.
func TestLeaseThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		working, endWork := context.WithCancel(t.Context())
		defer endWork()
		s := &server{}
		c := newCandidate(t.Context(), t, s, func(context.Context) error { <-working.Done(); return nil })
		pass(time.Minute)
		renewed := s.stop()
		pass(time.Until(renewed.Add(renewDeadline - 1)))
		s.mu.Lock()
		s.isDown = false
		s.mu.Unlock()
		if !c.canWrite(t) {
			t.Error("it does not write before the renew deadline")
		}
		s.stop()
		pass(1)
		s.mu.Lock()
		s.isDown = false
		s.mu.Unlock()
		if c.canWrite(t) {
			t.Error("it writes after the renew deadline")
		}
		s.stop()
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
		s := &server{}
		c := newCandidate(t.Context(), t, s, func(context.Context) error { <-working.Done(); return nil })
		pass(time.Minute)
		s.give("another")
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
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{}
		errWork := errors.New("melted")
		c := newCandidate(ctx, t, s, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			if s.holder() == "" {
				t.Error("it was released while the work was ending")
			}
			return errWork
		})
		pass(time.Second)
		cancel()
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

func TestNoReleaseWhileAWriteIsInDoubt(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *server, candidate){
		"without an answer": func(t *testing.T, s *server, c candidate) {
			t.Helper()
			s.stop()
			c.client.Timeout = time.Second
			if err := c.send(t, http.MethodPost, "/things"); err == nil {
				t.Error("it was answered")
			}
			s.mu.Lock()
			s.isDown = false
			s.mu.Unlock()
		},
		"by the API server's own word": func(t *testing.T, _ *server, c candidate) {
			t.Helper()
			if err := c.send(t, http.MethodPost, "/slow"); err != nil {
				t.Error(err)
			}
		},
		"because etcd does not answer": func(t *testing.T, _ *server, c candidate) {
			t.Helper()
			if err := c.send(t, http.MethodPost, "/etcd"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				after      time.Duration
				isReleased bool
			}{
				{after: leaseDuration - time.Second, isReleased: false},
				{after: leaseDuration, isReleased: true},
			} {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					s := &server{}
					c := newCandidate(ctx, t, s, nil)
					pass(time.Minute)
					write(t, s, c)
					pass(tt.after)
					cancel()
					if err := <-c.ended; err != nil {
						t.Error(err)
					}
					if isReleased := s.holder() == ""; isReleased != tt.isReleased {
						t.Errorf("released %s after the write: %t", tt.after, isReleased)
					}
				})
			}
		})
	}
}

// What a webhook refuses is not carried out, and an event may arrive late.
func TestReleaseAfterAFailureThatLeavesNoDoubt(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *server, candidate) error{
		"a webhook that fails": func(t *testing.T, _ *server, c candidate) error { return c.send(t, http.MethodPost, "/webhook") },
		"an event without an answer": func(t *testing.T, s *server, c candidate) error {
			config := clientConfig(s)
			c.FenceEvents(config)
			events, err := rest.HTTPClientFor(config)
			if err != nil {
				return err
			}
			events.Timeout = time.Second
			s.stop()
			if err := (candidate{client: events}).send(t, http.MethodPost, "/events"); err == nil {
				t.Error("it was answered")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.isDown = false
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &server{}
				c := newCandidate(ctx, t, s, nil)
				pass(time.Minute)
				if err := write(t, s, c); err != nil {
					t.Error(err)
				}
				cancel()
				if err := <-c.ended; err != nil {
					t.Error(err)
				}
				if holder := s.holder(); holder != "" {
					t.Errorf("%q still holds the Lease", holder)
				}
			})
		})
	}
}

// A sync that ignores its context does not keep the work from ending. While one of its writes
// is under way, the Lease is not released, and afterwards it writes no more.
func TestNoReleaseWhileAWriteIsUnderWay(t *testing.T) {
	for _, isUnderWay := range []bool{false, true} {
		t.Run(fmt.Sprint("under way: ", isUnderWay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := &server{}
				c := newCandidate(ctx, t, s, nil)
				pass(time.Minute)
				written := make(chan error, 1)
				if isUnderWay {
					c.client.Timeout = time.Minute
					go func() { written <- c.send(t, http.MethodPost, "/hanging") }()
					pass(1)
				}
				cancel()
				if err := <-c.ended; err != nil {
					t.Error(err)
				}
				if isReleased := s.holder() == ""; isReleased == isUnderWay {
					t.Errorf("released: %t", isReleased)
				}
				if c.canWrite(t) {
					t.Error("it still writes")
				}
				if isUnderWay {
					<-written
				}
			})
		})
	}
}

// A process that cannot reach its Lease is not ready, because it can never lead. It says what
// to do about it, once a minute.
func TestReadyOnceTheLeaseCanBeReached(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, tt := range map[string]struct {
		err  error
		says string
	}{
		"a permission is missing":  {apierrors.NewForbidden(leases, "lease", errors.New("no")), "-leader-elect-resource-namespace"},
		"the namespace is missing": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default"), "kubectl create namespace default"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines []string
				logger := funcr.New(func(_, line string) {
					if strings.Contains(line, `"Waiting"`) {
						lines = append(lines, line)
					}
				}, funcr.Options{})
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
				s := &server{forbids: tt.err}
				c := newCandidate(ctx, t, s, nil)
				pass(5*time.Minute - time.Second)
				if c.Ready() == nil {
					t.Error("it is ready")
				}
				if len(lines) != 5 || !strings.Contains(lines[0], tt.says) {
					t.Errorf("want 5 lines with %s, got %q", tt.says, lines)
				}
				s.mu.Lock()
				s.forbids = nil
				s.mu.Unlock()
				pass(3 * retryPeriod)
				if err := c.Ready(); err != nil {
					t.Error(err)
				}
				cancel()
				if err := <-c.ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A process on standby is ready.
func TestReadyWhileAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{}
		s.give("another")
		c := newCandidate(ctx, t, s, nil)
		pass(time.Second)
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
		cancel()
		<-c.ended
	})
}

func TestEndBeforeTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{}
		s.give("another")
		c := newCandidate(ctx, t, s, func(context.Context) error { t.Error("it leads"); return nil })
		pass(time.Second)
		cancel()
		if err := <-c.ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if holder := s.holder(); holder != "another" {
			t.Errorf("%q holds the Lease", holder)
		}
	})
}

// A process that uses client-go alone takes part in the same election.
func TestClientGoTakesPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		ctx, cancel := context.WithCancel(t.Context())
		ours := newCandidate(ctx, t, s, nil)
		pass(time.Second)

		lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", "lease",
			resourcelock.ResourceLockConfig{Identity: "plain"}, clientConfig(s), renewDeadline)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		plainCtx, killPlain := context.WithCancel(t.Context())
		go plain.Run(plainCtx)
		pass(5 * time.Minute)
		if plain.IsLeader() {
			t.Error("the plain process leads next to ours")
		}

		cancel()
		if err := <-ours.ended; err != nil {
			t.Error(err)
		}
		pass(3 * retryPeriod)
		if !plain.IsLeader() {
			t.Error("the plain process does not lead after ours has released the Lease")
		}

		ctx, cancel = context.WithCancel(t.Context())
		ours = newCandidate(ctx, t, s, nil)
		pass(5 * time.Minute)
		if ours.canWrite(t) {
			t.Error("ours writes next to the plain one")
		}
		killPlain()                         // which does not release the Lease
		pass(leaseDuration + 5*retryPeriod) // It looks every 2 to 4.4 s: until it has seen the last renewal, and after the lease.
		if !ours.canWrite(t) {
			t.Error("ours does not lead after the lease of the plain one has expired")
		}
		cancel()
		if err := <-ours.ended; err != nil {
			t.Error(err)
		}
	})
}

// A connection that sends nothing any more does not cost the Lease. This takes real time.
// The server offers HTTP/2, which would use the connection again after a request on it has
// timed out.
func TestHangingConnection(t *testing.T) {
	t.Parallel()
	s := &server{}
	listening := httptest.NewUnstartedServer(s)
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
	cluster.Insecure, cluster.ContentType = true, runtime.ContentTypeJSON
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
	for name, tt := range map[string]struct {
		change func(*config.LeaderElectionConfiguration)
		want   string
	}{
		"a fraction of a second": {
			func(c *config.LeaderElectionConfiguration) { c.LeaseDuration.Duration += time.Millisecond },
			"-leader-elect-lease-duration must be whole seconds, and is 15.001s",
		},
		"a renew deadline that is too late": {
			func(c *config.LeaderElectionConfiguration) { c.RenewDeadline.Duration = leaseDuration - 1 },
			"-leader-elect-renew-deadline (14.999999999s) must be at least 1s shorter than -leader-elect-lease-duration (15s)",
		},
		"a retry period that is too long": {
			func(c *config.LeaderElectionConfiguration) { c.RetryPeriod.Duration = renewDeadline },
			"renewDeadline must be greater than retryPeriod*JitterFactor",
		},
		"another lock": {
			func(c *config.LeaderElectionConfiguration) { c.ResourceLock = "endpoints" },
			"endpoints lock is removed, migrate to leases",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := electionConfig()
			tt.change(&c)
			if _, err := leader.New(c, &rest.Config{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %s", err, tt.want)
			}
		})
	}
}
