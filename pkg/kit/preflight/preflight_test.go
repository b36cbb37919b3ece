package preflight_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// cable is a network of one server, in memory, so that it can be in a bubble.
type cable struct {
	dialed chan net.Conn
	cut    chan struct{} // closed when the server ends
	once   sync.Once
	isOff  func() bool // while nobody listens
}

func (c *cable) Accept() (net.Conn, error) {
	select {
	case conn := <-c.dialed:
		return conn, nil
	case <-c.cut:
		return nil, net.ErrClosed
	}
}

func (c *cable) Close() error   { c.once.Do(func() { close(c.cut) }); return nil }
func (c *cable) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

func (c *cable) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.isOff() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: c.Addr(), Err: syscall.ECONNREFUSED}
	}
	ours, theirs := net.Pipe()
	select {
	case c.dialed <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cluster is an API server behind a cable, and a record of its requests.
type cluster struct {
	client rest.Interface

	mu     sync.Mutex
	answer http.HandlerFunc // nil while nobody listens
	asked  []string
	log    []string
}

// newCluster starts an API server whose certificate authority is known.
func newCluster(t *testing.T, isTrusted bool) *cluster {
	t.Helper()
	c := &cluster{}
	line := &cable{dialed: make(chan net.Conn), cut: make(chan struct{}), isOff: func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answer == nil
	}}
	server := &httptest.Server{Listener: line, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			c.asked = append(c.asked, r.Method+" "+r.URL.String())
			answer := c.answer
			c.mu.Unlock()
			answer(w, r)
		}),
		ErrorLog: klog.NewStandardLogger("INFO"),
	}}
	server.StartTLS()
	t.Cleanup(server.Close)

	transport := &http.Transport{DialContext: line.dial, TLSClientConfig: &tls.Config{}}
	if isTrusted {
		transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "https://127.0.0.1:6443", QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	c.client = client.RESTClient()
	return c
}

// becomes makes the API server respond like that from now on.
func (c *cluster) becomes(answer http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// keep records a line of the log, without the text of the error.
func (c *cluster) keep(_, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, regexp.MustCompile(`"level"=0 | "err"=.*`).ReplaceAllString(line, ""))
}

func (c *cluster) lines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.log...)
}

func (c *cluster) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.asked...)
}

// await starts to wait for the resources, and returns a channel for the result.
func (c *cluster) await(ctx context.Context, resources ...preflight.Resource) <-chan error {
	ctx = klog.NewContext(ctx, funcr.New(c.keep, funcr.Options{}))
	done := make(chan error, 1)
	go func() { done <- preflight.Await(ctx, c.client, clock.RealClock{}, resources...) }()
	synctest.Wait()
	return done
}

// isDone reports whether a result has arrived, and receives it.
func isDone(done <-chan error, err *error) bool {
	select {
	case *err = <-done:
		return true
	default:
		return false
	}
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// say returns a handler with that response.
func say(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "no"}
		json.NewEncoder(w).Encode(status) //nolint:errcheck // who asked has gone away
	}
}

func well(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"GadgetList","apiVersion":"example.com/v1alpha1","metadata":{},"items":[]}`)
}

// hang does not respond, even after the client has given up.
func hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

var (
	missing   = http.NotFound // what an API server says of a group that it does not know
	forbidden = say(http.StatusForbidden, metav1.StatusReasonForbidden)
	broken    = say(http.StatusInternalServerError, metav1.StatusReasonInternalError)

	gadgets = preflight.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1alpha1", Resource: "gadgets"},
		Define:               "kubectl apply -f crd.yaml",
		Permit:               "kubectl apply -f rbac.yaml",
	}
)

const (
	path      = "GET /apis/example.com/v1alpha1/gadgets?limit=1"
	waiting   = `"msg"="Waiting" "for"="gadgets.example.com" "namespace"="" `
	undefined = waiting + `"because"="the cluster does not know this resource" "remedy"="kubectl apply -f crd.yaml"`
	unallowed = waiting + `"because"="permission is missing" "remedy"="kubectl apply -f rbac.yaml"`
	mute      = waiting + `"because"="the API server does not answer as it should" "remedy"="check whether it runs, and its address in the kubeconfig"`
	goingOn   = `"msg"="Going on" "with"="gadgets.example.com"`
)

func TestNoObstacle(t *testing.T) {
	tests := []struct {
		name     string
		resource preflight.Resource
		want     string
	}{{
		name:     "a custom resource in all namespaces",
		resource: gadgets,
		want:     path,
	}, {
		name:     "in one namespace",
		resource: preflight.Resource{GroupVersionResource: gadgets.GroupVersionResource, Namespace: "shop"},
		want:     "GET /apis/example.com/v1alpha1/namespaces/shop/gadgets?limit=1",
	}, {
		name:     "those with a label",
		resource: preflight.Resource{GroupVersionResource: gadgets.GroupVersionResource, Selector: "flavor=vanilla"},
		want:     "GET /apis/example.com/v1alpha1/gadgets?labelSelector=flavor%3Dvanilla&limit=1",
	}, {
		name:     "one by its name",
		resource: preflight.Resource{GroupVersionResource: gadgets.GroupVersionResource, Fields: "metadata.name=vanilla"},
		want:     "GET /apis/example.com/v1alpha1/gadgets?fieldSelector=metadata.name%3Dvanilla&limit=1",
	}, {
		name:     "of the core group",
		resource: preflight.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Selector: "a"},
		want:     "GET /api/v1/namespaces/shop/pods?labelSelector=a&limit=1",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, true)
				c.becomes(well)
				begin := time.Now()
				equal(t, "Await", nil, <-c.await(t.Context(), tt.resource))
				equal(t, "requests", []string{tt.want}, c.requests())
				equal(t, "log", []string{}, c.lines())
				equal(t, "time taken", 0, time.Since(begin))
			})
		})
	}
}

// In each case, a cluster has one obstacle after another, for a minute each, and then none.
func TestObstaclesAreWaitedFor(t *testing.T) {
	tests := []struct {
		name string
		is   []http.HandlerFunc
		want []string
	}{{
		name: "nobody listens",
		is:   []http.HandlerFunc{nil},
		want: []string{mute, goingOn},
	}, {
		name: "the custom resource is not defined",
		is:   []http.HandlerFunc{missing},
		want: []string{undefined, goingOn},
	}, {
		name: "permission is missing",
		is:   []http.HandlerFunc{forbidden},
		want: []string{unallowed, goingOn},
	}, {
		name: "the API server is broken",
		is:   []http.HandlerFunc{broken},
		want: []string{mute, goingOn},
	}, {
		name: "the API server is starting",
		is:   []http.HandlerFunc{say(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)},
		want: []string{mute, goingOn},
	}, {
		name: "a proxy answers for it",
		is:   []http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }},
		want: []string{mute, goingOn},
	}, {
		name: "the API server hangs",
		is:   []http.HandlerFunc{hang},
		want: []string{mute, goingOn},
	}, {
		name: "the same obstacle for several reasons is told once",
		is:   []http.HandlerFunc{nil, broken, hang, nil},
		want: []string{mute, goingOn},
	}, {
		name: "one obstacle after the other is told once each",
		is:   []http.HandlerFunc{nil, forbidden, missing},
		want: []string{mute, unallowed, undefined, goingOn},
	}, {
		name: "an obstacle that comes back is told again",
		is:   []http.HandlerFunc{missing, nil, missing},
		want: []string{undefined, mute, undefined, goingOn},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, true)
				c.becomes(tt.is[0])
				done := c.await(t.Context(), gadgets)
				var err error
				for i, is := range tt.is {
					c.becomes(is)
					kittest.Pass(time.Minute)
					if isDone(done, &err) {
						t.Fatalf("did not wait for the end of obstacle %d: %v", i, err)
					}
				}
				c.becomes(well)
				begin := time.Now()
				equal(t, "Await", nil, <-done)
				if took := time.Since(begin); took > preflight.Interval+10*time.Second {
					t.Errorf("went on after %v", took)
				}
				equal(t, "log", tt.want, c.lines())
			})
		})
	}
}

func TestEndOfAnObstacleIsNoticedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.becomes(missing)
		done := c.await(t.Context(), gadgets)
		kittest.Pass(10*time.Second + 1)
		equal(t, "requests in ten seconds", 11, len(c.requests()))
		c.becomes(well)
		begin := time.Now()
		equal(t, "Await", nil, <-done)
		equal(t, "time taken", preflight.Interval-1, time.Since(begin))
	})
}

// A request that hangs is repeated, because another server may answer it.
func TestHangingRequestIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		c.becomes(hang)
		done := c.await(t.Context(), gadgets)
		kittest.Pass(10*time.Second - 1)
		equal(t, "log within its patience", []string{}, c.lines())
		kittest.Pass(1)
		equal(t, "log afterwards", []string{mute}, c.lines())
		c.becomes(well)
		begin := time.Now()
		equal(t, "Await", nil, <-done)
		equal(t, "time taken", preflight.Interval, time.Since(begin))
	})
}

func TestResourcesAreWaitedForInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := preflight.Resource{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace:            "shop",
			Permit:               "ask an administrator",
		}
		c := newCluster(t, true)
		c.becomes(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/gadgets") {
				well(w, r)
			} else {
				forbidden(w, r)
			}
		})
		done := c.await(t.Context(), gadgets, pods)
		kittest.Pass(time.Second)
		want := []string{`"msg"="Waiting" "for"="pods" "namespace"="shop" "because"="permission is missing" "remedy"="ask an administrator"`}
		equal(t, "log", want, c.lines())
		c.becomes(well)
		equal(t, "Await", nil, <-done)
		equal(t, "log", append(want, `"msg"="Going on" "with"="pods"`), c.lines())
		equal(t, "first request", path, c.requests()[0])
	})
}

// Waiting cannot help, so Await returns an error.
func TestHopelessObstacles(t *testing.T) {
	const trust = "the API server's certificate is not to be trusted: give the -kubeconfig of this cluster, with its certificate authority ("
	tests := []struct {
		name      string
		isTrusted bool
		is        http.HandlerFunc
		want      string
	}{{
		name:      "credentials that are not accepted",
		isTrusted: true,
		is:        say(http.StatusUnauthorized, metav1.StatusReasonUnauthorized),
		want:      "the API server does not accept the credentials: get new ones, or give the -kubeconfig of this cluster (no)",
	}, {
		name: "a certificate that is not trusted",
		is:   well,
		want: trust + `Get "https://127.0.0.1:6443/apis/example.com/v1alpha1/gadgets?limit=1": ` +
			`tls: failed to verify certificate: x509: certificate signed by unknown authority)`,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, tt.isTrusted)
				c.becomes(tt.is)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := <-c.await(ctx, gadgets)
				equal(t, "Await", tt.want, fmt.Sprint(err))
				equal(t, "time taken", 0, time.Since(begin))
				equal(t, "log", []string{}, c.lines())
			})
		})
	}
}

func TestStopping(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"while it waits":     missing,
		"while it is asking": hang,
	}
	for name, is := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, true)
				c.becomes(is)
				errMelted := errors.New("melted")
				ctx, cancel := context.WithCancelCause(t.Context())
				done := c.await(ctx, gadgets)
				kittest.Pass(500 * time.Millisecond)
				said := c.lines()
				begin := time.Now()
				cancel(errMelted)
				if err := <-done; !errors.Is(err, errMelted) {
					t.Errorf("Await = %v, want the reason to stop", err)
				}
				equal(t, "time taken", 0, time.Since(begin))
				equal(t, "log", said, c.lines())
			})
		})
	}
}
