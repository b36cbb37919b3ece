package fault

import (
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// wrap returns a handler that does to a request what the rule says. What happens to an open
// watch is up to its stream.
func (r *Rule) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		switch r.Effect {
		case Delay:
			select {
			case <-in.Context().Done():
			case <-time.After(r.After):
				next.ServeHTTP(out, in)
			}
		case ResetBefore:
			Reset(out)
		case HangBefore:
			drain(in)
			hang(in)
		case HangAfter:
			next.ServeHTTP(discard{http.Header{}}, in)
			hang(in)
		case Truncate:
			next.ServeHTTP(&truncated{out, r.Bytes}, in)
		default:
			next.ServeHTTP(out, in)
		}
	})
}

// drain reads the body of a request. A server does not notice that the client is gone before
// the body has been read.
func drain(in *http.Request) { _, _ = io.Copy(io.Discard, in.Body) }

// hang waits until the client is gone, and resets the connection, so that the client of a
// server that is shutting down does not take the end for a response.
func hang(in *http.Request) {
	<-in.Context().Done()
	panic(http.ErrAbortHandler)
}

// jsonInfo has the serializers of JSON.
var jsonInfo, _ = runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)

// Reset resets the connection that a response would be written to, as the crash of a server
// in the middle of a request would.
func Reset(out http.ResponseWriter) {
	connection, _, err := http.NewResponseController(out).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if secured, ok := connection.(interface{ NetConn() net.Conn }); ok {
		connection = secured.NetConn()
	}
	if plain, ok := connection.(*net.TCPConn); ok {
		_ = plain.SetLinger(0)
	}
	_ = connection.Close()
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
