// Package serve serves probes to everyone, and metrics and other pages to authorized
// clients only, within limits that hold under any load.
//
// By HTTPS, everyone may get /livez and /readyz (each also with ?verbose). To get /metrics
// or another page, a client has to be known to the API server (TokenReview) and be allowed
// to get that path as a non-resource URL (SubjectAccessReview). A probe never sends a
// request to the API server.
//
// Anyone who can reach the addresses can send anything, so everything that a request costs
// is limited: reviews (guard.go), connections (crowd.go), and how much one connection may
// send and how long that may take (serve.go).
package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log" //nolint:depguard // http.Server needs it
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// Config says where to serve, and how.
type Config struct {
	// BindAddress is the host:port for HTTPS; empty is nowhere.
	BindAddress string
	// InsecureBindAddress is the host:port for plain HTTP, where everyone may get all
	// pages; empty is nowhere. Its host has to be a loopback address.
	InsecureBindAddress string
	// CertFile and KeyFile are in PEM. They are read for every connection, so that a
	// renewed certificate is used at once. Without them, the server makes a self-signed
	// certificate when it is first used.
	CertFile, KeyFile string
	// HTTP2 also enables HTTP/2.
	HTTP2 bool
}

// Validate returns an error that names the flag that is wrong, if any.
func (c Config) Validate() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("-tls-cert-file and -tls-private-key-file go together")
	}
	for flag, address := range map[string]string{"-bind-address": c.BindAddress, "-insecure-bind-address": c.InsecureBindAddress} {
		if address == "" {
			continue
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("%s=%s is not host:port: %w", flag, address, err)
		}
		if flag == "-insecure-bind-address" && host != "localhost" && !net.ParseIP(host).IsLoopback() {
			return fmt.Errorf("%s=%s: plain HTTP is for this machine only, as in 127.0.0.1:8080", flag, address)
		}
	}
	return nil
}

// A Page is a path that only authorized clients may get, like /metrics.
type Page struct {
	Path    string
	Handler http.Handler
}

// A Check is one thing that can be wrong with the process. Err must be fast, safe for
// concurrent use, and send no requests.
type Check struct {
	Name string
	Err  func() error
}

// Server serves probes and pages.
type Server struct {
	servers []*http.Server
	sockets []net.Listener
}

// Listen opens the addresses. live are the checks of /livez, and ready are those of
// /readyz. The pages are served in addition to /metrics. The client sends the reviews
// that authorize requests, and must not share its rate limits or its connections with
// clients that cannot wait for those.
func Listen(c Config, client Reviewer, live, ready []Check, pages ...Page) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	pages = append(pages, Page{"/metrics", legacyregistry.Handler()})
	s := &Server{}
	if c.BindAddress != "" {
		config, err := tlsConfig(c)
		if err != nil {
			return nil, err
		}
		if err := s.listen("-bind-address", c.BindAddress, handler(live, ready, pages, newGuard(client).protect), config); err != nil {
			return nil, err
		}
	}
	if c.InsecureBindAddress != "" {
		if err := s.listen("-insecure-bind-address", c.InsecureBindAddress, handler(live, ready, pages, openly), nil); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// listen opens one address. It is for plain HTTP if config is nil.
func (s *Server) listen(flag, address string, handler http.Handler, config *tls.Config) error {
	socket, err := net.Listen("tcp", address) //nolint:noctx // it takes no time
	if err != nil {
		return fmt.Errorf("%w: give %s another address, or an empty one to serve nothing", err, flag)
	}
	s.serve(socket, handler, config)
	return nil
}

// serve adds a server, which Run starts. Its limits leave room for every probe and every
// scrape, and for little more.
func (s *Server) serve(socket net.Listener, handler http.Handler, config *tls.Config) {
	server := &http.Server{
		Handler:           withoutBody(handler),
		TLSConfig:         config,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: 5 * time.Second, // and for a TLS handshake
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second, // a scrape a minute keeps its connection
		MaxHeaderBytes:    16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          8,
			MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream:     16 << 10,
			WriteByteTimeout:              30 * time.Second,
		},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(config != nil && len(config.NextProtos) > 0)
	s.servers, s.sockets = append(s.servers, server), append(s.sockets, socket)
}

// Addresses returns the addresses that the server listens on, HTTPS first.
func (s *Server) Addresses() []string {
	var addresses []string
	for _, socket := range s.sockets {
		addresses = append(addresses, socket.Addr().String())
	}
	return addresses
}

// Run serves until ctx ends. It returns when the last request has been answered, or a
// second later.
func (s *Server) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	var serving wait.Group
	failed := make(chan error, len(s.servers))
	for i, server := range s.servers {
		server.ConnState = newCrowd(maxConnections, logger).observe
		server.ErrorLog = log.New(complaints{logger}, "", 0)
		serving.Start(func() {
			logger.Info("Serving", "address", s.sockets[i].Addr().String(), "tls", server.TLSConfig != nil)
			var err error
			if server.TLSConfig != nil {
				err = server.ServeTLS(s.sockets[i], "", "")
			} else {
				err = server.Serve(s.sockets[i])
			}
			if !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, server := range s.servers {
		if server.Shutdown(ending) != nil {
			server.Close() //nolint:errcheck // it is no longer needed
		}
	}
	serving.Wait()
	return err
}

// close closes the addresses.
func (s *Server) close() {
	for _, socket := range s.sockets {
		socket.Close() //nolint:errcheck // it was never used
	}
}

// handler serves the probes to everyone, and the pages as protect allows.
func handler(live, ready []Check, pages []Page, protect func(http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", probe("livez", live))
	mux.Handle("GET /readyz", probe("readyz", ready))
	for _, page := range pages {
		mux.Handle("GET "+page.Path, protect(page.Handler))
	}
	return mux
}

// openly protects nothing.
func openly(page http.Handler) http.Handler { return page }

// withoutBody refuses requests that have a body, without reading the body.
func withoutBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		http.Error(w, "A request must not have a body", http.StatusRequestEntityTooLarge)
		// Otherwise the server would read the body to be able to reuse the connection.
		http.NewResponseController(w).SetReadDeadline(time.Unix(0, 0)) //nolint:errcheck // the read timeout ends it otherwise
	})
}

// complaints is the log of net/http. Messages that any client can cause at will, such as
// that a handshake has failed, are logged at V(4) only.
type complaints struct{ logger klog.Logger }

// Write implements io.Writer for one line.
func (c complaints) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if strings.Contains(text, "panic serving") || strings.Contains(text, "Accept error") {
		c.logger.Error(nil, "Serving probes and metrics", "problem", text)
	} else {
		c.logger.V(4).Info("Serving probes and metrics", "problem", text)
	}
	return len(line), nil
}

// probe returns a handler that responds like the API server's own /livez: with 200 and
// "ok" if every check passes, and with 500 otherwise. The response lists all checks if one
// fails, or for ?verbose.
func probe(name string, checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var report bytes.Buffer
		status, verdict := http.StatusOK, "passed"
		for _, check := range checks {
			if err := check.Err(); err != nil {
				status, verdict = http.StatusInternalServerError, "failed"
				fmt.Fprintf(&report, "[-]%s failed: %v\n", check.Name, err)
			} else {
				fmt.Fprintf(&report, "[+]%s ok\n", check.Name)
			}
		}
		fmt.Fprintf(&report, "%s check %s\n", name, verdict)
		if status == http.StatusOK && !r.URL.Query().Has("verbose") {
			report.Reset()
			report.WriteString("ok")
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		w.Write(report.Bytes()) //nolint:errcheck // the client has gone away
	})
}

// tlsConfig returns the configuration for HTTPS.
func tlsConfig(c Config) (*tls.Config, error) {
	certificate, err := certificates(c)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate}
	if c.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	return config, nil
}

// certificates returns a function that returns the current certificate. If the files
// cannot be read later, it returns the last one that could be.
func certificates(c Config) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.CertFile == "" {
		return selfSigned(), nil
	}
	first, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading -tls-cert-file and -tls-private-key-file: %w", err)
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		now, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("still using the last certificate: %w", err))
			return last.Load(), nil
		}
		last.Store(&now)
		return &now, nil
	}, nil
}

// selfSigned returns a function that returns a self-signed certificate for this host. It is
// made for the first client: generating a key takes longer than the rest of a start.
func selfSigned() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	once := sync.OnceValues(func() (*tls.Certificate, error) {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, []string{"localhost"})
		if err != nil {
			return nil, fmt.Errorf("making a certificate: %w", err)
		}
		certificate, err := tls.X509KeyPair(certPEM, keyPEM)
		return &certificate, err
	})
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return once() }
}
