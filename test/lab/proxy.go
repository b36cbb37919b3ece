package lab

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

// StartControllerThrough starts a controller like [Namespace.StartController], but all of its
// requests go through a middleware in this process, such as [fault.Set.Handler].
func (n *Namespace) StartControllerThrough(t testing.TB, middleware func(apiServer http.Handler) http.Handler, flags ...string) *Controller {
	t.Helper()
	if err := n.grant(t.Context()); err != nil {
		t.Fatalf("granting the controller its Role: %v", err)
	}
	proxy := n.Lab.proxy(t, middleware)
	kubeconfig, err := n.Lab.kubeconfigFor(t.Context(), n.Name, proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := n.Lab.NewControllerWith(append(append([]string{"-kubeconfig=" + kubeconfig}, n.flags()...), flags...)...)
	c.User = "system:serviceaccount:" + n.Name + ":" + n.Lab.program.Account
	n.Controller = c
	c.StartForTest(t)
	return c
}

// StartControllerThrough starts a controller like [Lab.StartController], but all of its requests go through a
// middleware.
func (l *Lab) StartControllerThrough(t testing.TB, middleware func(apiServer http.Handler) http.Handler, flags ...string) *Controller {
	t.Helper()
	kubeconfig, err := l.kubeconfigFor(t.Context(), l.program.Namespace, l.proxy(t, middleware), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := l.NewControllerWith(append([]string{"-kubeconfig=" + kubeconfig}, flags...)...)
	c.User = "system:serviceaccount:" + l.program.Namespace + ":" + l.program.Account
	c.StartForTest(t)
	return c
}

// proxy starts a server, which runs until the test ends, for the handler that the middleware
// returns. What the middleware gets passes a request on to the API server, including its
// credentials.
func (l *Lab) proxy(t testing.TB, middleware func(apiServer http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	apiServer, err := fault.APIServer(rest.AnonymousClientConfig(l.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(middleware(apiServer))
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
	path, err := l.ServiceAccountKubeconfig(ctx, namespace, l.program.Account)
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
