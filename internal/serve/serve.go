// Package serve serves probes to everyone, and metrics to authorized clients.
//
// Over HTTPS, everyone can get /livez and /readyz, even with ?verbose. To get /metrics, a
// client needs a token that the API server knows (TokenReview), and the permission to get
// that non-resource URL (SubjectAccessReview). A probe sends no request to the API server.
//
// Anyone who can reach the addresses can send anything. The timeouts of net/http end slow
// connections, each source address can have 64 connections, and the client for reviews has a
// rate limit of its own. A NetworkPolicy should admit only clients with a reason to connect.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog" //nolint:depguard // http.Server needs it
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// Config says where to serve, and how.
type Config struct {
	// BindAddress is the host:port for HTTPS; empty means none.
	BindAddress string
	// InsecureBindAddress is the host:port for plain HTTP, where everyone can get the
	// metrics, too; empty means none. Its host must be a loopback address.
	InsecureBindAddress string
	// CertFile and KeyFile are in PEM. They are read for every connection, so that a
	// renewed certificate is used at once. Without them, the server makes a self-signed
	// certificate when it is first used.
	CertFile, KeyFile string
}

// Validate returns an error that names the wrong flag, if any.
func (c Config) Validate() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("-tls-cert-file and -tls-private-key-file must be set together")
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

// Server serves probes and metrics.
type Server struct {
	servers []*http.Server
	sockets []net.Listener
}

// Listen opens the addresses. live are the checks of /livez, and ready are those of
// /readyz. A check must be fast, safe for concurrent use, and send no requests. The client
// sends the reviews that authorize requests for metrics; every request with an unknown
// token causes one, so the client needs a low rate limit and a timeout.
func Listen(c Config, client kubernetes.Interface, live, ready []healthz.HealthChecker) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Server{}
	if c.BindAddress != "" {
		certificate, err := certificates(c)
		if err != nil {
			return nil, err
		}
		secure := newServer(live, ready, newGuard(client).protect(legacyregistry.Handler()))
		secure.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate}
		if err := s.listen("-bind-address", c.BindAddress, secure); err != nil {
			return nil, err
		}
	}
	if c.InsecureBindAddress != "" {
		if err := s.listen("-insecure-bind-address", c.InsecureBindAddress, newServer(live, ready, legacyregistry.Handler())); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// newServer returns a server for plain HTTP. Its limits leave room for every probe and
// every scrape, and for little more.
func newServer(live, ready []healthz.HealthChecker, metrics http.Handler) *http.Server {
	mux := http.NewServeMux()
	healthz.InstallLivezHandler(mux, live...)
	healthz.InstallReadyzHandler(mux, ready...)
	mux.Handle("GET /metrics", metrics)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           mux,
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second, // and for a TLS handshake
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       90 * time.Second, // a scrape a minute keeps its connection
		MaxHeaderBytes:    16 << 10,
		// At V(2): any client can cause a failed handshake at will.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(klog.Background()), -2),
	}
}

// listen opens one address for a server.
func (s *Server) listen(flag, address string, server *http.Server) error {
	socket, err := net.Listen("tcp", address) //nolint:noctx // it takes no time
	if err != nil {
		return fmt.Errorf("%w: give %s another address, or an empty one to serve nothing", err, flag)
	}
	tcp := &limited{TCPListener: socket.(*net.TCPListener), open: map[netip.Addr]int{}}
	s.servers, s.sockets = append(s.servers, server), append(s.sockets, tcp)
	return nil
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
	serving, ctx := errgroup.WithContext(ctx)
	for i, server := range s.servers {
		serving.Go(func() error {
			klog.Background().Info("Serving", "address", s.sockets[i].Addr().String(), "tls", server.TLSConfig != nil)
			serve := server.Serve
			if server.TLSConfig != nil {
				serve = func(socket net.Listener) error { return server.ServeTLS(socket, "", "") }
			}
			if err := serve(s.sockets[i]); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, server := range s.servers {
		if server.Shutdown(ending) != nil {
			server.Close() //nolint:errcheck // it is no longer needed
		}
	}
	return serving.Wait()
}

// close closes the addresses.
func (s *Server) close() {
	for _, socket := range s.sockets {
		socket.Close() //nolint:errcheck // it was never used
	}
}
