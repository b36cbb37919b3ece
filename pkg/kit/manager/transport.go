package manager

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// controllerTransport adapts the clients of a controller to its loop and its caches.
func controllerTransport(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
}

// transport is the transport of a controller's clients.
//
//   - A request of a sync does not sleep. client-go repeats a request whose response has the
//     header Retry-After, up to ten times, and a webhook can set it. A worker would sleep
//     meanwhile, so eight refused objects would hold up all others. Without the header, the
//     error reaches package worker, which retries the object later. Informers keep the header,
//     because they hold up no worker.
//   - A first list is consistent. An informer asks for resourceVersion=0, which an API server can
//     answer from an old cache, without what the previous leader wrote.
//   - A relist is answered from the API server's cache. An informer whose first list came in
//     pages assumes that there is no cache, and asks for pages again. They would be read from
//     etcd.
type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if isOfInformer(request) {
		return t.next.RoundTrip(consistent(request))
	}
	response, err := t.next.RoundTrip(request)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// isOfInformer reports whether an informer, or a reader like one, lists or watches.
func isOfInformer(request *http.Request) bool {
	query := request.URL.Query()
	return request.Method == http.MethodGet && (query.Has("watch") || query.Has("limit") || query.Has("resourceVersion"))
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, by which client-go finds the
// transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// consistent returns the request for a list or watch with the version that it should ask for.
func consistent(request *http.Request) *http.Request {
	query := request.URL.Query()
	switch version := query.Get("resourceVersion"); {
	case version == "0":
		query.Del("resourceVersion")
	case version != "" && query.Has("limit") && !query.Has("resourceVersionMatch"): // further pages have no version
		query.Del("limit")
	default:
		return request
	}
	request = request.Clone(request.Context())
	request.URL.RawQuery = query.Encode()
	return request
}
