package fault

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

// An Effect is what a rule does to a request.
type Effect string

// The effects.
const (
	// HangBefore never answers, and the API server receives no request. Watches that are
	// open already freeze.
	HangBefore Effect = "hang before"
	// HangAfter passes the request on, but never the response.
	HangAfter Effect = "hang after"
	// Truncate closes the connection after some bytes of the response.
	Truncate Effect = "truncate"
	// Cut closes the connection of a watch a while after it began, or after the rule was
	// added if that is later.
	Cut Effect = "cut"
)

// wrap returns a handler that does to a request what the rule says.
func (a *Active) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		switch a.Rule.Effect {
		case HangBefore:
			// A server does not notice that the client is gone before the body has been read.
			_, _ = io.Copy(io.Discard, in.Body)
			hang(in)
		case HangAfter:
			next.ServeHTTP(discard{http.Header{}}, in)
			hang(in)
		case Truncate:
			next.ServeHTTP(&truncated{out, a.Rule.Bytes}, in)
		case Cut:
			ctx, cancel := context.WithCancel(in.Context())
			defer cancel()
			a.cut(cancel)
			next.ServeHTTP(out, in.WithContext(ctx))
		}
	})
}

// hang waits until the client is gone, and closes the connection, so that the client of a
// server that is shutting down does not take the end for a response.
func hang(in *http.Request) {
	<-in.Context().Done()
	panic(http.ErrAbortHandler)
}

// discard is a response that nobody receives.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (d discard) Write(body []byte) (int, error) { return len(body), nil }
func (d discard) WriteHeader(int)                {}

// truncated is a response of which some bytes are sent before the connection is closed.
type truncated struct {
	http.ResponseWriter
	left int
}

// Unwrap returns the response for [http.ResponseController].
func (w *truncated) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes what may still be sent. After that it aborts the handler.
func (w *truncated) Write(body []byte) (int, error) {
	if len(body) < w.left {
		w.left -= len(body)
		return w.ResponseWriter.Write(body)
	}
	_, _ = w.ResponseWriter.Write(body[:w.left])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// watch is the response to a watch that is open.
type watch struct {
	http.ResponseWriter
	set     *Set
	request Request
	context context.Context
	cancel  context.CancelFunc
}

// watching returns a handler that passes a watch on, to which rules can be applied while it
// is open.
func (s *Set) watching(next http.Handler, r Request) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		ctx, cancel := context.WithCancel(in.Context())
		defer cancel()
		w := &watch{out, s, r, ctx, cancel}
		s.mu.Lock()
		s.watches = append(s.watches, w)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.watches = slices.DeleteFunc(s.watches, func(other *watch) bool { return other == w })
		}()
		next.ServeHTTP(w, in.WithContext(ctx))
	})
}

// Unwrap returns the response for [http.ResponseController].
func (w *watch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write waits while the watch is frozen. It returns an error if the watch ends before.
func (w *watch) Write(events []byte) (int, error) {
	for w.isFrozen() {
		select {
		case <-w.context.Done():
			return 0, w.context.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return w.ResponseWriter.Write(events)
}

func (w *watch) isFrozen() bool {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	return slices.ContainsFunc(w.set.active, func(a *Active) bool {
		return (a.Rule.Effect == HangBefore || a.Rule.Effect == HangAfter) && a.Rule.selects(w.request)
	})
}

// APIServer returns a handler that passes requests on to an API server, with the credentials
// of config. If config has none, those of each request are passed on.
func APIServer(config *rest.Config) (*httputil.ReverseProxy, error) {
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	target = &url.URL{Scheme: target.Scheme, Host: target.Host, Path: target.Path}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,                         // flush at once: the response to a watch has no end
		ErrorLog:      log.New(io.Discard, "", 0), // the client sees the errors
	}, nil
}
