package serve_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/serve"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, _ string, _ ...any) { reports.add(err.Error()) }}
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// reports are the errors that were reported since they were last taken.
var reports texts

type texts struct {
	mu  sync.Mutex
	all []string
}

func (t *texts) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, text)
}

func (t *texts) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { t.all = nil }()
	return t.all
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// loopback is a server on ports of its own, HTTPS and plain, with a certificate
// that takes no time to make.
func loopback(t *testing.T) serve.Config {
	t.Helper()
	c := serve.Config{BindAddress: "127.0.0.1:0", InsecureBindAddress: "127.0.0.1:0"}
	dir := t.TempDir()
	c.CertFile, c.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, c, "first.example.com")
	return c
}

// writeCertificate replaces the files by a certificate for that name.
func writeCertificate(t *testing.T, c serve.Config, name string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, c.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	write(t, c.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

// shut closes what is of no use any more.
func shut(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// serving is a server that runs, with the cluster that it asks.
type serving struct {
	cluster
	https, plain string // URLs
	client       *http.Client
	stop         func() error
}

// start starts a server; it stops with the test.
func start(t *testing.T, c serve.Config, live, ready []healthz.HealthChecker) *serving {
	t.Helper()
	reports.take()
	s := &serving{}
	server, err := serve.Listen(c, s.cluster.client(), live, ready)
	if err != nil {
		t.Fatal(err)
	}
	addresses := server.Addresses()
	if c.BindAddress != "" {
		s.https = "https://" + addresses[0]
		addresses = addresses[1:]
	}
	if c.InsecureBindAddress != "" {
		s.plain = "http://" + addresses[0]
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	s.client = &http.Client{Transport: transport, Timeout: time.Minute}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := s.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

// reply is what came of a request.
type reply struct {
	code     int
	protocol string
	header   http.Header
	body     string
}

// ask sends a request, with a token if there is one.
func (s *serving) ask(t *testing.T, method, url, token string) reply {
	t.Helper()
	got, err := s.try(t.Context(), method, url, token)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (s *serving) try(ctx context.Context, method, url, token string) (reply, error) {
	return send(ctx, s.client, method, url, token)
}

func send(ctx context.Context, client *http.Client, method, url, token string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return reply{}, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	return reply{got.StatusCode, got.Proto, got.Header, string(body)}, err
}

// certificate is what a new connection gets to see.
func (s *serving) certificate(t *testing.T) tls.ConnectionState {
	t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.https, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState()
}

func fine(name string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error { return nil })
}

func bad(name string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error { return errors.New("melted") })
}

func TestProbes(t *testing.T) {
	tests := []struct {
		name        string
		live, ready []healthz.HealthChecker
		path        string
		wantCode    int
		wantBody    string
	}{{
		name: "all is well", live: []healthz.HealthChecker{fine("gadget"), fine("events")}, ready: []healthz.HealthChecker{bad("caches")},
		path: "/livez", wantCode: 200, wantBody: "ok",
	}, {
		name: "all is well, in detail", live: []healthz.HealthChecker{fine("gadget"), fine("events")},
		path: "/livez?verbose", wantCode: 200, wantBody: "[+]gadget ok\n[+]events ok\nlivez check passed\n",
	}, {
		name: "something is wrong", live: []healthz.HealthChecker{fine("gadget"), bad("events"), fine("leader")},
		path: "/livez", wantCode: 500, wantBody: "[+]gadget ok\n[-]events failed: reason withheld\n[+]leader ok\nlivez check failed\n",
	}, {
		name: "alive, but not ready", live: []healthz.HealthChecker{fine("gadget")}, ready: []healthz.HealthChecker{bad("caches")},
		path: "/readyz", wantCode: 500, wantBody: "[-]caches failed: reason withheld\nreadyz check failed\n",
	}, {
		name: "ready", live: []healthz.HealthChecker{bad("gadget")}, ready: []healthz.HealthChecker{fine("caches")},
		path: "/readyz", wantCode: 200, wantBody: "ok",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, loopback(t), tt.live, tt.ready)
			for _, server := range []string{s.https, s.plain} {
				got := s.ask(t, http.MethodGet, server+tt.path, "")
				equal(t, "status code", tt.wantCode, got.code)
				equal(t, "body", tt.wantBody, got.body)
				equal(t, "type", "text/plain; charset=utf-8", got.header.Get("Content-Type"))
				equal(t, "sniffing", "nosniff", got.header.Get("X-Content-Type-Options"))
			}
			equal(t, "requests to the API server", nil, s.requests())
		})
	}
}

func TestOtherRequests(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	tests := []struct {
		request string
		want    int
	}{
		{"HEAD /livez", 200},
		{"DELETE /metrics", 405},
		{"GET /", 404},
		{"GET /healthz", 404},
		{"GET /metrics/", 404},
		{"GET /debug/pprof/", 404},
	}
	for _, tt := range tests {
		t.Run(tt.request, func(t *testing.T) {
			method, path, _ := strings.Cut(tt.request, " ")
			for _, server := range []string{s.https, s.plain} {
				got := s.ask(t, method, server+path, "scraper")
				equal(t, "status code", tt.want, got.code)
			}
		})
	}
	equal(t, "requests to the API server", nil, s.requests())
}

func TestMetricsAreForAuthorizedClientsOnly(t *testing.T) {
	who, may := "tokenreviews", "subjectaccessreviews"
	tests := []struct {
		name      string
		token     string
		refuse    map[string]int
		want      int
		wantBody  string // exactly; "" for metrics
		wantAsked []string
	}{{
		name: "nobody in particular",
		want: 401, wantBody: "Unauthorized\n",
	}, {
		name: "a token that nobody knows", token: "stranger",
		want: 401, wantBody: "Unauthorized\n", wantAsked: []string{who},
	}, {
		name: "a token that has expired", token: "doubtful",
		want: 401, wantBody: "Unauthorized\n", wantAsked: []string{who},
	}, {
		name: "somebody without permission", token: "visitor",
		want: 403, wantBody: "Forbidden\n", wantAsked: []string{who, may},
	}, {
		name: "somebody with permission", token: "scraper",
		want: 200, wantAsked: []string{who, may},
	}, {
		name: "the API server cannot say who it is", token: "scraper", refuse: map[string]int{who: 0},
		want: 401, wantBody: "Unauthorized\n", wantAsked: []string{who},
	}, {
		name: "this program may not ask who it is", token: "scraper", refuse: map[string]int{who: 403},
		want: 401, wantBody: "Unauthorized\n", wantAsked: []string{who},
	}, {
		name: "the API server cannot say what is allowed", token: "scraper", refuse: map[string]int{may: 0},
		want: 503, wantBody: "Authorization check failed\n", wantAsked: []string{who, may},
	}, {
		name: "this program may not ask what is allowed", token: "scraper", refuse: map[string]int{may: 403},
		want: 503, wantBody: "Authorization check failed\n", wantAsked: []string{who, may},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t, loopback(t), nil, nil)
			s.refuse = tt.refuse
			got := s.ask(t, http.MethodGet, s.https+"/metrics", tt.token)
			equal(t, "status code", tt.want, got.code)
			if tt.wantBody != "" {
				equal(t, "body", tt.wantBody, got.body)
			} else if !strings.Contains(got.body, "# TYPE go_goroutines gauge\n") {
				t.Errorf("these are no metrics:\n%s", got.body)
			}
			equal(t, "requests to the API server", tt.wantAsked, s.requests())
		})
	}
}

func TestReviewsNameTheClientAndThePath(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	s.ask(t, http.MethodGet, s.https+"/metrics?name=x", "scraper")
	want := authorizationv1.SubjectAccessReviewSpec{
		User:                  "scraper",
		Groups:                []string{"people", "system:authenticated"},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	equal(t, "review", want, s.access)
}

// A client that tries the same token again and again is no load on the API server.
func TestTokensAreRemembered(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	for range 3 {
		for token, want := range map[string]int{"scraper": 200, "visitor": 403, "stranger": 401} {
			got := s.ask(t, http.MethodGet, s.https+"/metrics", token)
			equal(t, "status code of "+token, want, got.code)
		}
	}
	reviews := map[string]int{}
	for _, resource := range s.requests() {
		reviews[resource]++
	}
	equal(t, "requests to the API server", map[string]int{"tokenreviews": 3, "subjectaccessreviews": 2}, reviews)
}

func TestPlainMetricsNeedNoAuthorization(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	got := s.ask(t, http.MethodGet, s.plain+"/metrics", "")
	equal(t, "status code", 200, got.code)
	if !strings.Contains(got.body, "# TYPE go_goroutines gauge\n") {
		t.Errorf("these are no metrics:\n%s", got.body)
	}
	equal(t, "requests to the API server", nil, s.requests())
}

func TestTLS13IsRequired(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	equal(t, "version", tls.VersionName(tls.VersionTLS13), tls.VersionName(s.certificate(t).Version))

	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.https, "https://"))
	if err == nil {
		shut(t, connection)
	}
	equal(t, "error", "remote error: tls: protocol version not supported", fmt.Sprint(err))
}

func TestSelfSignedCertificateByDefault(t *testing.T) {
	s := start(t, serve.Config{BindAddress: "127.0.0.1:0"}, nil, nil)
	chain := s.certificate(t).PeerCertificates
	roots := x509.NewCertPool()
	roots.AddCert(chain[len(chain)-1])
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", host} {
		if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("it is not valid for %s: %v", name, err)
		}
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: "example.com", Roots: roots}); err == nil {
		t.Error("it is valid for anything")
	}
}

func TestCertificateFilesMayChange(t *testing.T) {
	c := loopback(t)
	s := start(t, c, nil, nil)
	seen := func() string { return s.certificate(t).PeerCertificates[0].Subject.CommonName }
	equal(t, "at first", "first.example.com", seen())

	writeCertificate(t, c, "second.example.com")
	equal(t, "renewed", "second.example.com", seen())
	equal(t, "reports", nil, reports.take())

	write(t, c.CertFile, []byte("half a certif"))
	equal(t, "broken", "second.example.com", seen())
	equal(t, "reports", []string{"still using the last certificate: tls: failed to find any PEM data in certificate input"}, reports.take())

	if err := os.Remove(c.KeyFile); err != nil {
		t.Fatal(err)
	}
	equal(t, "gone", "second.example.com", seen())

	writeCertificate(t, c, "third.example.com")
	equal(t, "repaired", "third.example.com", seen())

	old, err := os.ReadFile(c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, c, "fourth.example.com")
	write(t, c.KeyFile, old)
	equal(t, "with the key of another", "third.example.com", seen())
}

func TestHTTP2IsOff(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	equal(t, "protocol", "HTTP/1.1", s.ask(t, http.MethodGet, s.https+"/livez", "").protocol)
}

func TestValidate(t *testing.T) {
	const local = ": plain HTTP is for this machine only, as in 127.0.0.1:8080"
	tests := []struct {
		name   string
		config serve.Config
		want   string
	}{
		{"nowhere", serve.Config{}, "<nil>"},
		{"everywhere", serve.Config{BindAddress: ":8443"}, "<nil>"},
		{"on one address", serve.Config{BindAddress: "192.0.2.1:8443"}, "<nil>"},
		{"plain on this machine", serve.Config{InsecureBindAddress: "127.0.0.1:8080"}, "<nil>"},
		{"plain on another address of this machine", serve.Config{InsecureBindAddress: "127.1.2.3:8080"}, "<nil>"},
		{"plain on this machine by IPv6", serve.Config{InsecureBindAddress: "[::1]:8080"}, "<nil>"},
		{"plain on this machine by name", serve.Config{InsecureBindAddress: "localhost:8080"}, "<nil>"},
		{"plain everywhere", serve.Config{InsecureBindAddress: ":8080"}, "-insecure-bind-address=:8080" + local},
		{"plain on every address", serve.Config{InsecureBindAddress: "0.0.0.0:8080"}, "-insecure-bind-address=0.0.0.0:8080" + local},
		{"plain on the network", serve.Config{InsecureBindAddress: "192.0.2.1:8080"}, "-insecure-bind-address=192.0.2.1:8080" + local},
		{"plain by any name", serve.Config{InsecureBindAddress: "example.com:8080"}, "-insecure-bind-address=example.com:8080" + local},
		{"no port", serve.Config{BindAddress: "localhost"}, "-bind-address=localhost is not host:port: address localhost: missing port in address"},
		{"no port for plain", serve.Config{InsecureBindAddress: "127.0.0.1"}, "-insecure-bind-address=127.0.0.1 is not host:port: address 127.0.0.1: missing port in address"},
		{"a certificate and its key", serve.Config{CertFile: "a", KeyFile: "b"}, "<nil>"},
		{"a certificate without its key", serve.Config{CertFile: "a"}, "-tls-cert-file and -tls-private-key-file must be set together"},
		{"a key without its certificate", serve.Config{KeyFile: "b"}, "-tls-cert-file and -tls-private-key-file must be set together"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { equal(t, "error", tt.want, fmt.Sprint(tt.config.Validate())) })
	}
}

func TestWhatCannotBeListenedOn(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	files := loopback(t)
	tests := []struct {
		name string
		edit func(*serve.Config)
		want string
	}{{
		name: "the address is in use",
		edit: func(c *serve.Config) { c.BindAddress = address },
		want: "listen tcp " + address + ": bind: address already in use: give -bind-address another address, or an empty one to serve nothing",
	}, {
		name: "the plain address is in use",
		edit: func(c *serve.Config) { c.BindAddress, c.InsecureBindAddress = "127.0.0.1:0", address },
		want: "listen tcp " + address + ": bind: address already in use: give -insecure-bind-address another address, or an empty one to serve nothing",
	}, {
		name: "there is no such port",
		edit: func(c *serve.Config) { c.BindAddress = "127.0.0.1:99999" },
		want: "listen tcp: address 99999: invalid port: give -bind-address another address, or an empty one to serve nothing",
	}, {
		name: "the certificate is not there",
		edit: func(c *serve.Config) { c.CertFile = "nowhere.crt" },
		want: "reading -tls-cert-file and -tls-private-key-file: open nowhere.crt: no such file or directory",
	}, {
		name: "it is not valid",
		edit: func(c *serve.Config) { c.InsecureBindAddress = ":8080" },
		want: "-insecure-bind-address=:8080: plain HTTP is for this machine only, as in 127.0.0.1:8080",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := files
			c.InsecureBindAddress = ""
			tt.edit(&c)
			_, err := serve.Listen(c, (&cluster{}).client(), nil, nil)
			equal(t, "error", tt.want, fmt.Sprint(err))
		})
	}
}

func TestTheEndAwaitsAnAnswerUnderWay(t *testing.T) {
	asked, mayAnswer := make(chan struct{}), make(chan struct{})
	s := start(t, loopback(t), []healthz.HealthChecker{healthz.NamedCheck("slow", func(*http.Request) error {
		close(asked)
		<-mayAnswer
		return nil
	})}, nil)
	var got reply
	var err error
	var asking sync.WaitGroup
	asking.Go(func() { got, err = s.try(t.Context(), http.MethodGet, s.https+"/livez", "") })
	<-asked
	time.AfterFunc(50*time.Millisecond, func() { close(mayAnswer) })
	equal(t, "Run", nil, s.stop())
	asking.Wait()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "body", "ok", got.body)
}

func TestTheEndDoesNotAwaitForEver(t *testing.T) {
	asked, mayAnswer := make(chan struct{}), make(chan struct{})
	s := start(t, loopback(t), []healthz.HealthChecker{healthz.NamedCheck("stuck", func(*http.Request) error {
		close(asked)
		<-mayAnswer
		return nil
	})}, nil)
	var asking sync.WaitGroup
	asking.Go(func() {
		if got, err := s.try(t.Context(), http.MethodGet, s.https+"/livez", ""); err == nil {
			t.Errorf("answered with %d", got.code)
		}
	})
	<-asked
	begin := time.Now()
	equal(t, "Run", nil, s.stop())
	asking.Wait()
	if took := time.Since(begin); took < 500*time.Millisecond || took > 20*time.Second {
		t.Errorf("the end took %v, want about a second", took)
	}
	close(mayAnswer)
}
