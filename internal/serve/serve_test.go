package serve

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
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// loopback is a server on ports of its own, HTTPS and plain, with a certificate
// that takes no time to make.
func loopback(t *testing.T) Config {
	t.Helper()
	c := Config{BindAddress: "127.0.0.1:0", InsecureBindAddress: "127.0.0.1:0"}
	dir := t.TempDir()
	c.CertFile, c.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writeCertificate(t, c, "first.example.com")
	return c
}

// writeCertificate replaces the files by a certificate for that name.
func writeCertificate(t *testing.T, c Config, name string) {
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
}

// start starts a server; it stops with the test.
func start(t *testing.T, c Config, live, ready []healthz.HealthChecker) *serving {
	t.Helper()
	s := &serving{}
	server, err := Listen(c, s.cluster.client(), live, ready)
	if err != nil {
		t.Fatal(err)
	}
	addresses := server.Addresses()
	s.https = "https://" + addresses[0]
	if c.InsecureBindAddress != "" {
		s.plain = "http://" + addresses[1]
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	s.client = &http.Client{Transport: transport, Timeout: time.Minute}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		equal(t, "Run", nil, <-ended)
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
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Proto, response.Header, string(body)}
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

// The process is alive and not ready. The response names the check that fails, but gives no reason.
func TestResponses(t *testing.T) {
	check := func(name string, err error) healthz.HealthChecker {
		return healthz.NamedCheck(name, func(*http.Request) error { return err })
	}
	s := start(t, loopback(t), []healthz.HealthChecker{check("gadget", nil), check("leader", nil)}, []healthz.HealthChecker{check("gadget", nil), check("events", errors.New("melted"))})
	for request, want := range map[string]string{
		"GET /livez":         "200 ok",
		"HEAD /livez":        "200 ",
		"GET /livez?verbose": "200 [+]gadget ok\n[+]leader ok\nlivez check passed\n",
		"GET /readyz":        "500 [+]gadget ok\n[-]events failed: reason withheld\nreadyz check failed\n",
		"DELETE /metrics":    "405 Method Not Allowed\n",
		"GET /":              "404 404 page not found\n",
		"GET /healthz":       "404 404 page not found\n",
		"GET /metrics/":      "404 404 page not found\n",
		"GET /debug/pprof/":  "404 404 page not found\n",
	} {
		method, path, _ := strings.Cut(request, " ")
		for _, server := range []string{s.https, s.plain} {
			got := s.ask(t, method, server+path, "scraper")
			equal(t, request, want, fmt.Sprint(got.code, " ", got.body))
			equal(t, "type", "text/plain; charset=utf-8", got.header.Get("Content-Type"))
			equal(t, "sniffing", "nosniff", got.header.Get("X-Content-Type-Options"))
			equal(t, "protocol", "HTTP/1.1", got.protocol) // HTTP/2 is off
		}
	}
	// By plain HTTP, which only this machine can send, metrics need no authorization.
	for _, tt := range []struct {
		server, token string
		want          int
	}{{s.plain, "", 200}, {s.https, "", 401}, {s.https, "scraper", 200}} {
		if tt.token != "" {
			equal(t, "requests to the API server", nil, s.requests())
		}
		got := s.ask(t, http.MethodGet, tt.server+"/metrics", tt.token)
		equal(t, "status code", tt.want, got.code)
		equal(t, "has metrics", tt.want == 200, strings.Contains(got.body, "# TYPE go_goroutines gauge\n"))
	}
}

func TestTLS13IsRequired(t *testing.T) {
	s := start(t, loopback(t), nil, nil)
	equal(t, "version", tls.VersionName(tls.VersionTLS13), tls.VersionName(s.certificate(t).Version))

	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.https, "https://"))
	if err == nil {
		defer connection.Close()
	}
	equal(t, "error", "remote error: tls: protocol version not supported", fmt.Sprint(err))
}

func TestSelfSignedCertificateByDefault(t *testing.T) {
	s := start(t, Config{BindAddress: "127.0.0.1:0"}, nil, nil)
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
	var reported []string
	handlers := utilruntime.ErrorHandlers
	defer func() { utilruntime.ErrorHandlers = handlers }()
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(_ context.Context, err error, _ string, _ ...any) { reported = append(reported, err.Error()) }}
	c := loopback(t)
	current, err := certificates(c)
	if err != nil {
		t.Fatal(err)
	}
	require := func(about, want string) {
		t.Helper()
		certificate, err := current(nil)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, about, want, certificate.Leaf.Subject.CommonName)
	}
	require("at first", "first.example.com")
	writeCertificate(t, c, "second.example.com")
	require("renewed", "second.example.com")
	equal(t, "reports", nil, reported)

	write(t, c.CertFile, []byte("half a certif"))
	require("broken", "second.example.com")
	equal(t, "reports", []string{"still using the last certificate: tls: failed to find any PEM data in certificate input"}, reported)

	if err := os.Remove(c.KeyFile); err != nil {
		t.Fatal(err)
	}
	require("gone", "second.example.com")
	writeCertificate(t, c, "third.example.com")
	require("repaired", "third.example.com")

	old, err := os.ReadFile(c.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, c, "fourth.example.com")
	write(t, c.KeyFile, old)
	require("with the key of another", "third.example.com")
}

func TestValidate(t *testing.T) {
	const local = ": plain HTTP is for this machine only, as in 127.0.0.1:8080"
	const together = "-tls-cert-file and -tls-private-key-file must be set together"
	for config, want := range map[Config]string{
		{}:                                      "<nil>",
		{BindAddress: ":8443"}:                  "<nil>",
		{InsecureBindAddress: "127.1.2.3:8080"}: "<nil>",
		{InsecureBindAddress: "[::1]:8080"}:     "<nil>",
		{InsecureBindAddress: "localhost:8080"}: "<nil>",
		{InsecureBindAddress: ":8080"}:          "-insecure-bind-address=:8080" + local,
		{InsecureBindAddress: "0.0.0.0:8080"}:   "-insecure-bind-address=0.0.0.0:8080" + local,
		{InsecureBindAddress: "example.com:80"}: "-insecure-bind-address=example.com:80" + local,
		{BindAddress: "localhost"}:              "-bind-address=localhost is not host:port: address localhost: missing port in address",
		{InsecureBindAddress: "127.0.0.1"}:      "-insecure-bind-address=127.0.0.1 is not host:port: address 127.0.0.1: missing port in address",
		{CertFile: "a", KeyFile: "b"}:           "<nil>",
		{CertFile: "a"}:                         together,
		{KeyFile: "b"}:                          together,
	} {
		equal(t, fmt.Sprintf("error of %+v", config), want, fmt.Sprint(config.Validate()))
	}
}

func TestWhatCannotBeListenedOn(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	inUse := "listen tcp " + address + ": bind: address already in use: give %s another address, or an empty one to serve nothing"
	for config, want := range map[Config]string{
		{BindAddress: address}: fmt.Sprintf(inUse, "-bind-address"),
		{BindAddress: "127.0.0.1:0", InsecureBindAddress: address}:           fmt.Sprintf(inUse, "-insecure-bind-address"),
		{BindAddress: ":0", CertFile: "nowhere.crt", KeyFile: "nowhere.key"}: "reading -tls-cert-file and -tls-private-key-file: open nowhere.crt: no such file or directory",
		{InsecureBindAddress: ":8080"}:                                       "-insecure-bind-address=:8080: plain HTTP is for this machine only, as in 127.0.0.1:8080",
	} {
		_, err := Listen(config, (&cluster{}).client(), nil, nil)
		equal(t, fmt.Sprintf("error of %+v", config), want, fmt.Sprint(err))
	}
}
