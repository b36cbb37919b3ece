package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Toll decides about a request to the API server before that sees it: nil lets it
// through. It may be called concurrently.
type Toll func(request *http.Request) http.HandlerFunc

// BreakOff leaves a request without an answer.
func BreakOff(out http.ResponseWriter, _ *http.Request) { breakOff(out) }

// StartControllerBehind starts a controller as StartController does, but one whose
// every request has to pass this process first.
func (n *Namespace) StartControllerBehind(t testing.TB, toll Toll, flags ...string) *Controller {
	t.Helper()
	if err := n.grant(t.Context()); err != nil {
		t.Fatalf("granting the controller its Role: %v", err)
	}
	proxy, err := n.Lab.newProxy(toll)
	if err != nil {
		t.Fatal(err)
	}
	proxy.StartTLS()
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	kubeconfig, err := n.Lab.kubeconfigFor(t.Context(), n.Name, proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := n.Lab.NewControllerWith(append([]string{"-kubeconfig=" + kubeconfig, "-namespace=" + n.Name}, flags...)...)
	c.User = "system:serviceaccount:" + n.Name + ":" + ServiceAccount
	n.Controller = c
	c.Attend(t)
	return c
}

// newProxy makes a server that passes on what it gets, credentials included.
func (l *Lab) newProxy(toll Toll) (*httptest.Server, error) {
	config := l.RESTConfig()
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		return nil, errors.New("the cluster's certificate cannot be read")
	}
	quietly := log.New(io.Discard, "", 0)
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true},
		FlushInterval: -1, // a watch is an answer that never ends
		ErrorLog:      quietly,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if answer := toll(in); answer != nil {
			answer(out, in)
			return
		}
		pass.ServeHTTP(out, in)
	}))
	server.Config.ErrorLog = quietly
	return server, nil
}

// kubeconfigFor writes a kubeconfig of a namespace's controller, which leads to the
// proxy.
func (l *Lab) kubeconfigFor(ctx context.Context, namespace string, proxy *httptest.Server, dir string) (string, error) {
	path, err := l.ServiceAccountKubeconfig(ctx, namespace, ServiceAccount)
	if err != nil {
		return "", err
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server = proxy.URL
		cluster.CertificateAuthority = ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	}
	path = filepath.Join(dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}
