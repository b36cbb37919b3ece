package lab

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A Link is the way from a controller to the API server, which a test can cut. The zero value is whole. It is safe
// for concurrent use.
type Link struct {
	mu   sync.Mutex
	down chan struct{} // is closed when the link is mended; nil while it is whole
}

// Cut keeps everything back: requests hang, and watches freeze, as if packets were lost.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = make(chan struct{})
}

// Mend lets everything pass that has waited and whose client still does.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.down)
	l.down = nil
}

// wait waits until the link is whole.
func (l *Link) wait(ctx context.Context) error {
	l.mu.Lock()
	down := l.down
	l.mu.Unlock()
	if down == nil {
		return nil
	}
	select {
	case <-down:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// through returns a handler that passes requests on over the link. It must be served by HTTP/1.1, where a connection
// can be closed without breaking other requests.
func (l *Link) through(apiServer http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body) // A server does not notice before that the client is gone.
		if err == nil {
			err = l.wait(in.Context())
		}
		if err != nil {
			panic(http.ErrAbortHandler) // which closes the connection
		}
		in.Body = io.NopCloser(bytes.NewReader(body))
		apiServer.ServeHTTP(&linked{out, in.Context(), l}, in)
	})
}

// linked is a response that passes over a link.
type linked struct {
	http.ResponseWriter
	request context.Context
	link    *Link
}

func (w *linked) Write(content []byte) (int, error) {
	if err := w.link.wait(w.request); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(content)
}

// Unwrap returns the response for [http.ResponseController].
func (w *linked) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// StartControllerOver starts a controller like [Namespace.StartController], but all of its requests pass over a link.
func (n *Namespace) StartControllerOver(t testing.TB, link *Link, flags ...string) *Controller {
	t.Helper()
	return n.start(t, func(kubeconfig string) string { return n.Lab.over(t, link, kubeconfig) }, flags...)
}

// over starts a server, which runs until the test ends, that passes requests on to the API server over a link, with
// the credentials of each request. It returns the path of a copy of the kubeconfig that leads there.
func (l *Lab) over(t testing.TB, link *Link, kubeconfig string) string {
	t.Helper()
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(l.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(l.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	quiet := log.New(io.Discard, "", 0) // The client sees the errors.
	server := httptest.NewUnstartedServer(link.through(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // flush at once: the response to a watch has no end
		ErrorLog:      quiet,
	}))
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})

	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server.URL
		cluster.CertificateAuthority = ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
