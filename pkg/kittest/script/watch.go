package script

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// watch is the body of the response to a watch.
type watch struct {
	*Cluster
	resource  string
	selection apiserver.Selection
	content   func(object map[string]any) map[string]any // what is shown of an object
	done      <-chan struct{}                            // closed when the client gives up
	wake      chan struct{}                              // has room for one

	// The rest is guarded by the cluster's mu.

	pending []byte // lines of JSON
	isCut   bool
}

// watch answers the request for a watch. A streaming list is refused, as by an API server that
// does not know it.
func (c *Cluster) watch(r *http.Request, key apiserver.Key, request apiserver.Request) (*http.Response, error) {
	selection, err := apiserver.SelectionOf(key, request.Query)
	if err != nil {
		return apiserver.Refuse(err).HTTP(r), nil
	}
	if request.Query.Has("sendInitialEvents") {
		return apiserver.Refuse(apierrors.NewInvalid(metav1.Unversioned.WithKind("ListOptions").GroupKind(), "", nil)).HTTP(r), nil
	}
	version, err := strconv.ParseInt(request.Query.Get("resourceVersion"), 10, 64)
	if err != nil {
		return apiserver.Refuse(apierrors.NewBadRequest(err.Error())).HTTP(r), nil
	}
	first := slices.IndexFunc(c.past, func(s apiserver.Store) bool { return s.Version >= version })
	if first < 0 || c.past[first].Version > version {
		return apiserver.Refuse(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))).HTTP(r), nil
	}
	w := &watch{Cluster: c, resource: key.Resource.Resource, selection: selection, content: whole, done: r.Context().Done(), wake: make(chan struct{}, 1)}
	if request.AsMetadata {
		w.content = apiserver.Metadata
	}
	for i := first + 1; i < len(c.past); i++ {
		w.add(c.past[i-1], c.past[i])
	}
	c.watches = append(c.watches, w)
	response := apiserver.Response{Code: http.StatusOK}.HTTP(r)
	response.Body, response.ContentLength = w, -1
	return response, nil
}

func whole(object map[string]any) map[string]any { return object }

// add adds what the watch shows of a step from one store to the next.
func (w *watch) add(before, after apiserver.Store) {
	for _, event := range w.selection.Events(before, after) {
		line, err := json.Marshal(map[string]any{"type": event.Type, "object": w.content(event.Object.Object)})
		if err != nil {
			w.t.Error(err)
		}
		w.pending = append(append(w.pending, line...), '\n')
	}
	w.notify()
}

func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (w *watch) Read(b []byte) (int, error) {
	for {
		if n, isCut := w.read(b); n > 0 {
			return n, nil
		} else if isCut {
			return 0, io.EOF
		}
		select {
		case <-w.done:
			return 0, io.ErrUnexpectedEOF
		case <-w.wake:
		}
	}
}

// read reads what has arrived.
func (w *watch) read(b []byte) (n int, isCut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut || w.held[w.resource] {
		return 0, w.isCut
	}
	n = copy(b, w.pending)
	w.pending = w.pending[n:]
	return n, false
}

// Close implements io.Closer.
func (w *watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = slices.DeleteFunc(w.watches, func(other *watch) bool { return other == w })
	return nil
}
