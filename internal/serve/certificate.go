package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// clockSkew is how far the clock of a client can be behind.
const clockSkew = time.Hour

// certificates returns a function that returns the current certificate: if the files
// can no longer be read, the last one read.
func certificates(c Config) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if c.CertFile == "" {
		own, err := selfSigned()
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil }, err
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

// selfSigned returns a self-signed certificate for this host. client-go's cert.GenerateSelfSignedCertKey makes an RSA
// key, with which handshakes cost many times as much.
func selfSigned() (*tls.Certificate, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: host},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{host, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}, nil
}
