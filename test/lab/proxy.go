package lab

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

// An Interceptor decides about a request to the API server. It returns nil to pass the
// request on, or else the handler that answers it instead of the API server. It must be safe
// for concurrent use.
type Interceptor func(request *http.Request) http.HandlerFunc

// StartControllerBehind starts a controller like [Namespace.StartController], but all of its
// requests go through a proxy in this process, which calls intercept for each of them.
func (n *Namespace) StartControllerBehind(t testing.TB, intercept Interceptor, flags ...string) *Controller {
	t.Helper()
	return n.StartControllerThrough(t, func(apiServer http.Handler) http.Handler {
		return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			if handler := intercept(in); handler != nil {
				handler(out, in)
				return
			}
			apiServer.ServeHTTP(out, in)
		})
	}, flags...)
}

// StartControllerThrough starts a controller like [Namespace.StartController], but all of its
// requests go through a middleware in this process, such as [fault.Set.Handler].
func (n *Namespace) StartControllerThrough(t testing.TB, middleware func(apiServer http.Handler) http.Handler, flags ...string) *Controller {
	t.Helper()
	if err := n.grant(t.Context()); err != nil {
		t.Fatalf("granting the controller its Role: %v", err)
	}
	proxy := n.Lab.Proxy(t, func(apiServer *httputil.ReverseProxy) http.Handler { return middleware(apiServer) })
	kubeconfig, err := n.Lab.kubeconfigFor(t.Context(), n.Name, proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := n.Lab.NewControllerWith(append([]string{"-kubeconfig=" + kubeconfig, "-namespace=" + n.Name}, flags...)...)
	c.User = "system:serviceaccount:" + n.Name + ":" + ServiceAccount
	n.Controller = c
	c.StartForTest(t)
	return c
}

// Proxy starts a server, which runs until the test ends, for the handler that wrap returns.
// What wrap gets passes a request on to the API server, including its credentials.
func (l *Lab) Proxy(t testing.TB, wrap func(apiServer *httputil.ReverseProxy) http.Handler) *httptest.Server {
	t.Helper()
	apiServer, err := fault.APIServer(rest.AnonymousClientConfig(l.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(wrap(apiServer))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// kubeconfigFor writes a kubeconfig for the namespace's controller, which connects to the
// proxy instead of the API server, and returns its path.
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
