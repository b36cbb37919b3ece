package fault

import (
	"fmt"
	"io"
	"log"
	"net/http/httputil"
	"net/url"

	"k8s.io/client-go/rest"
)

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
