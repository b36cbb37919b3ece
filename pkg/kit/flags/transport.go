package flags

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// requestTimeout is how long a request may take: a little longer than an API server
	// allows, whose --request-timeout is a minute by default, so that its answer comes first.
	requestTimeout = 65 * time.Second
	// watchBuffer is how much of a watch is read at a time.
	watchBuffer = 64 << 10
)

// transport gives up requests that take too long, even if their connection lives. A watch
// takes as long as it likes, which is why [http.Client] has no timeout.
//
// It reads watches, and so streaming lists, in large pieces. A decoder reads one object at a
// time, and the HTTP/2 client makes a system call for about every 4 kB that are read, to tell
// the server that it may send more.
type transport struct {
	next    http.RoundTripper
	timeout time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if isWatch(request.URL.RawQuery) {
		response, err := t.next.RoundTrip(request)
		if err == nil {
			response.Body = readAhead{bufio.NewReaderSize(response.Body, watchBuffer), response.Body}
		}
		return response, err
	}
	ctx, cancel := context.WithTimeout(request.Context(), t.timeout)
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = body{response.Body, cancel}
	return response, nil
}

// isWatch reports whether a query asks for a watch. It does not allocate, unlike
// [net/url.ParseQuery]: it looks at each request. Clients do not escape the name.
func isWatch(query string) bool {
	for query != "" {
		var parameter string
		parameter, query, _ = strings.Cut(query, "&")
		if name, _, _ := strings.Cut(parameter, "="); name == "watch" {
			return true
		}
	}
	return false
}

// WrappedRoundTripper implements k8s.io/apimachinery/pkg/util/net.RoundTripperWrapper.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// readAhead is the body of a watch.
type readAhead struct {
	io.Reader
	io.Closer
}

// body is the body of a response that must be read before the timeout.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
