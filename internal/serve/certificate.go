package serve

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/cert"
)

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
