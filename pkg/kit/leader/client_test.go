package leader

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// hanging is a client of which some requests get no answer.
type hanging struct {
	Leases
	hangs func(verb string) bool
}

func (h hanging) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if h.hangs("get") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Leases.Get(ctx, name, o)
}

func (h hanging) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if h.hangs("update") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Leases.Update(ctx, lease, o)
}

// A connection can break without anybody being told.
func TestOneRenewalThatHangsDoesNotEndTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var isBroken atomic.Bool // until it is replaced
		var reconnects atomic.Int32
		a := runWith(t, Client{
			Leases: func(namespace string) Leases {
				return hanging{client.CoordinationV1().Leases(namespace), func(string) bool { return isBroken.Load() }}
			},
			Reconnect: func() {
				reconnects.Add(1)
				isBroken.Store(false)
			},
		}, usual)
		<-a.leads
		time.Sleep(time.Minute)
		for range 3 {
			synctest.Wait()
			isBroken.Store(true)
			time.Sleep(time.Minute)
			select {
			case err := <-a.ended:
				t.Fatalf("Run = %v", err)
			default:
			}
			if err := a.write(http.MethodPost); err != nil {
				t.Errorf("after a second attempt it may not write: %v", err)
			}
		}
		if n := reconnects.Load(); n != 3 {
			t.Errorf("%d new connections for 3 broken ones", n)
		}
		a.stop()
		a.end()
		if err := <-a.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// Requests that fail have been answered, and say nothing against their connection.
func TestAnErrorIsNoReasonToReconnect(t *testing.T) {
	client := reach(fake.NewClientset())
	client.Reconnect = func() { t.Error("reconnected") }
	e, err := New(usual, client, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	e.send(t.Context(), step{do: read}, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	e.send(ended, step{do: read}, nil)
}

// server is an API server that has one Lease, and notes on which connections it
// was asked.
type server struct {
	*httptest.Server
	mu          sync.Mutex
	connections []string
	hangs       func(connection string) bool
}

// serveLease starts a server that answers no request on connections for which hangs
// is true.
func serveLease(t *testing.T, hangs func(connection string) bool) *server {
	t.Helper()
	s := &server{hangs: hangs}
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true // as the API server does: one connection for all requests
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.connections = append(s.connections, r.RemoteAddr)
	s.mu.Unlock()
	if s.hangs(r.RemoteAddr) {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(lease("me", 15)) //nolint:errcheck // the client will tell
}

// seen are the connections that requests came by, in order.
func (s *server) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.connections)
}

func (s *server) config() *rest.Config {
	return &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1}
}

func TestAConnectionIsDroppedAfterATimeout(t *testing.T) {
	var first atomic.Pointer[string]
	s := serveLease(t, func(connection string) bool {
		first.CompareAndSwap(nil, &connection)
		return *first.Load() == connection
	})
	client, err := NewClient(s.config())
	if err != nil {
		t.Fatal(err)
	}
	short := usual
	short.LeaseDuration.Duration, short.RenewDeadline.Duration, short.RetryPeriod.Duration = 3*time.Second, time.Second, 500*time.Millisecond
	e, err := New(short, client, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() (logged string) {
		s, _ := e.next(clock.RealClock{}.Now())
		e.apply(e.send(t.Context(), s, nil))
		e.candidate.leases[0].noRead = time.Time{}
		return e.logged
	}
	if logged := ask(); !strings.Contains(logged, context.DeadlineExceeded.Error()) {
		t.Errorf("a request without an answer gives %q", logged)
	}
	if logged := ask(); logged != "" {
		t.Errorf("the next request gives %q", logged)
	}
	if seen := s.seen(); len(seen) != 2 || seen[0] == seen[1] {
		t.Errorf("two requests came on the connections %q, want two different ones", seen)
	}
}

// Whatever others do with their clients, renewals go on.
func TestTheLeaseHasAConnectionAndARateOfItsOwn(t *testing.T) {
	s := serveLease(t, func(string) bool { return false })
	config := s.config()
	config.QPS, config.Burst = 0.0001, 1
	others, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := others.CoordinationV1().Leases("a").Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := client.Leases("a").Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := s.seen()
	if own := slices.Compact(seen[1:]); len(own) != 1 || own[0] == seen[0] {
		t.Errorf("the lease's requests came on %q, those of others on %q", own, seen[0])
	}
	if config.QPS == -1 || config.Dial != nil {
		t.Error("the config has been changed")
	}
}

// Requests that outsiders can cause must not hold up any others.
func TestSeparateClientsShareNothing(t *testing.T) {
	var mu sync.Mutex
	connections := map[string][]string{} // by the client's user agent
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		connections[r.UserAgent()] = append(connections[r.UserAgent()], r.RemoteAddr)
		http.NotFound(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 0.0001, Burst: 1}
	ask := func(agent string, config *rest.Config, times int) {
		t.Helper()
		config = rest.CopyConfig(config)
		config.UserAgent = agent
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for range times {
			if _, err := client.CoreV1().Pods("a").Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
	}
	ask("one", config, 1)
	ask("two", config, 1)
	ask("apart", Separate(config), 10)
	if connections["one"][0] != connections["two"][0] {
		t.Errorf("client-go has got two connections by itself: %q", connections)
	}
	if own := slices.Compact(connections["apart"]); len(own) != 1 || own[0] == connections["one"][0] {
		t.Errorf("it has the connections %q, others %q", own, connections["one"])
	}
}
