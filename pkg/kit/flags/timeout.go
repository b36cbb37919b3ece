package flags

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// requestTimeout is how long a request may take: a little longer than an API server allows,
// whose --request-timeout is a minute by default, so that its answer comes first.
const requestTimeout = 65 * time.Second

// timeouts gives up requests that take too long, even if their connection lives. A watch
// takes as long as it likes, which is why [http.Client] has no timeout.
type timeouts struct {
	next  http.RoundTripper
	after time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t timeouts) RoundTrip(request *http.Request) (*http.Response, error) {
	if isWatch(request.URL.RawQuery) {
		return t.next.RoundTrip(request)
	}
	ctx, cancel := context.WithTimeout(request.Context(), t.after)
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
func (t timeouts) WrappedRoundTripper() http.RoundTripper { return t.next }

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
