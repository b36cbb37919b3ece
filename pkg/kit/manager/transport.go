package manager

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// controllerTransport makes the clients of a controller behave as its loop and its caches
// need it.
func controllerTransport(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
}

// transport is the transport of a controller's clients.
//
//   - A write does not sleep. client-go repeats a request whose response has the header
//     Retry-After, up to ten times, and a webhook can set it. A worker would sleep meanwhile,
//     so eight refused objects would hold up all others. Without the header, the error
//     reaches package worker, which retries the object later.
type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && request.Method != http.MethodGet {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, by which client-go finds the
// transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
