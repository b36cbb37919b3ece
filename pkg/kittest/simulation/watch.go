package simulation

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	watchapi "k8s.io/apimachinery/pkg/watch"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// bookmarkPeriod is how often a watch tells its version.
const bookmarkPeriod = time.Minute

// watch is the body of the response to a watch. It has no goroutine: what is due is delivered
// to the one that reads.
type watch struct {
	*call
	done      <-chan struct{} // closed when the client gives up
	selection apiserver.Selection
	wake      chan struct{} // has room for one
	end       time.Time     // when the API server ends it
	n         int           // events so far

	// The rest is guarded by the history's mu.

	pending  []delivery
	version  int64 // of the last event, or what was known in the beginning
	bookmark time.Time
	buffer   []byte
	isCut    bool
	isClosed bool
}

// delivery is an event on its way.
type delivery struct {
	due     time.Time
	body    []byte
	version int64
}

// watch answers the request for a watch.
func (c *call) watch(ctx context.Context, r *http.Request) (*http.Response, error) {
	h := c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	switch c.fault {
	case tooMany, internal, unavailable, timedOut:
		return c.arrive().HTTP(r), nil
	}
	query := c.request.Query
	w := &watch{call: c, done: ctx.Done(), wake: make(chan struct{}, 1)}
	var err error
	if w.selection, err = apiserver.SelectionOf(c.key, query); err != nil {
		return apiserver.Refuse(err).HTTP(r), nil
	}
	now := time.Now()
	w.end = now.Add(durationBetween(c.draw, 5*time.Minute, 10*time.Minute))
	if c.fault == cutWatch {
		w.end = now.Add(durationBetween(c.draw, time.Second, time.Minute))
	}
	w.bookmark = now.Add(durationBetween(c.draw, bookmarkPeriod/2, bookmarkPeriod))
	version := query.Get("resourceVersion")
	switch {
	case c.isList() && !h.weather.hasWatchList:
		return apiserver.Refuse(apierrors.NewInvalid(metav1.Unversioned.WithKind("ListOptions").GroupKind(), "", nil)).HTTP(r), nil
	case c.isList():
		w.begin()
	case version == "" || version == "0":
		return apiserver.Refuse(apierrors.NewBadRequest("the model only watches from a version on")).HTTP(r), nil
	case versionOf(version) < h.compacted:
		return apiserver.Refuse(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%d)", version, h.compacted))).HTTP(r), nil
	default:
		w.version = versionOf(version)
		w.replay()
	}
	h.watches = append(h.watches, w)
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: w, ContentLength: -1, Request: r,
	}, nil
}

// begin sends what there is, and a bookmark that says that this was all. If that was in the
// past, it sends what has happened since, too.
func (w *watch) begin() {
	store := w.listed()
	for _, obj := range w.selection.In(store) {
		w.send(watchapi.Added, obj, 0)
	}
	w.sendBookmark(store.Version, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	w.version = store.Version
	w.replay()
}

// replay sends what has happened since the version that the client has.
func (w *watch) replay() {
	h := w.history
	for i := 1; i < len(h.states); i++ {
		if h.states[i].store.Version > w.version {
			w.add(h.states[i-1].store, h.states[i].store)
		}
	}
}

// add sends what has changed from one store to the next, as far as the watch shows it.
func (w *watch) add(before, after apiserver.Store) {
	for _, event := range w.selection.Events(before, after) {
		w.send(event.Type, event.Object, versionOf(event.Object.GetResourceVersion()))
	}
}

// send puts an event on its way. Version zero is one of the initial events.
func (w *watch) send(kind watchapi.EventType, obj *unstructured.Unstructured, version int64) {
	h := w.history
	id := encodedKey{kind, obj, w.request.AsMetadata}
	body, ok := h.encoded[id]
	if !ok {
		content := obj.Object
		if w.request.AsMetadata {
			content = apiserver.Metadata(content)
		}
		body = append(encode(map[string]any{"type": string(kind), "object": content}), '\n')
		h.encoded[id] = body
	}
	w.deliver(body, version)
	if version > w.version {
		w.version = version
	}
}

type encodedKey struct {
	kind       watchapi.EventType
	obj        *unstructured.Unstructured
	asMetadata bool
}

// deliver puts bytes on their way, after those that already are.
func (w *watch) deliver(body []byte, version int64) {
	w.n++
	due := time.Now().Add(durationBetween(w.draw, quickest, 3*quick))
	if w.fault == slowWatch && !w.history.isQuiet {
		due = due.Add(durationBetween(w.draw, 0, 15*time.Second))
	}
	if n := len(w.pending); n > 0 && due.Before(w.pending[n-1].due) {
		due = w.pending[n-1].due
	}
	w.pending = append(w.pending, delivery{due, body, version})
	w.notify()
}

func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) sendBookmark(version int64, annotations map[string]string) {
	kinds := w.history.Kinds
	kind := kinds[slices.IndexFunc(kinds, func(k apiserver.Kind) bool { return k.Resource.GroupResource() == w.key.Resource })]
	meta := map[string]any{"resourceVersion": strconv.FormatInt(version, 10), "creationTimestamp": nil}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	object := map[string]any{"kind": kind.Kind, "apiVersion": kind.Resource.GroupVersion().String(), "metadata": meta}
	if w.request.AsMetadata {
		object = apiserver.Metadata(object)
	}
	w.deliver(append(encode(map[string]any{"type": string(watchapi.Bookmark), "object": object}), '\n'), version)
}

// cut ends a watch, with what is on its way.
func (w *watch) cut() {
	w.isCut = true
	w.notify()
}

// Read implements io.Reader.
func (w *watch) Read(b []byte) (int, error) {
	for {
		n, wait, err := w.read(b)
		if n > 0 || err != nil {
			return n, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-w.done:
			timer.Stop()
			return 0, context.Canceled
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// read returns what is due, or how long to wait for the next thing.
func (w *watch) read(b []byte) (n int, wait time.Duration, err error) {
	h := w.history
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case w.isClosed:
		return 0, 0, net.ErrClosed
	case w.isCut || w.isDead:
		return 0, 0, io.ErrUnexpectedEOF
	case now.Before(w.frozenUntil) || now.Before(w.suspendedUntil):
		return 0, max(w.frozenUntil.Sub(now), w.suspendedUntil.Sub(now)), nil
	case len(w.buffer) > 0:
		n = copy(b, w.buffer)
		w.buffer = w.buffer[n:]
		return n, 0, nil
	}
	if len(w.pending) > 0 && !w.pending[0].due.After(now) {
		next := w.pending[0]
		w.pending = w.pending[1:]
		if next.version > 0 {
			w.learn(w.cache(), next.version)
			w.interfereBefore(next.version)
		}
		n = copy(b, next.body)
		w.buffer = next.body[n:]
		return n, 0, nil
	}
	if !now.Before(w.end) {
		return 0, 0, io.EOF
	}
	if !now.Before(w.bookmark) {
		w.bookmark = now.Add(bookmarkPeriod)
		w.sendBookmark(h.Store.Version, nil)
	}
	next := w.end
	if w.bookmark.Before(next) {
		next = w.bookmark
	}
	if len(w.pending) > 0 && w.pending[0].due.Before(next) {
		next = w.pending[0].due
	}
	return 0, next.Sub(now), nil
}

// interfereBefore sometimes has somebody act just before an event arrives. What they do is in
// no cache when the process reacts to the event.
func (w *watch) interfereBefore(version int64) {
	h := w.history
	name := fmt.Sprintf("%s, version %d", w.name, version)
	if h.weather.isCalm || h.isQuiet || w.isAside() || !h.weather.kinds[beforeEvent] || h.dropped[name] || w.draw.Float64() > h.weather.rate/4 {
		return
	}
	if what := h.world.Interfere(w.draw, "watch", w.key); what != "" {
		h.happened(beforeEvent, name, beforeEvent+": "+what)
	}
}

// Close implements io.Closer.
func (w *watch) Close() error {
	w.history.locked(func() {
		w.isClosed = true
		w.history.watches = slices.DeleteFunc(w.history.watches, func(other *watch) bool { return other == w })
		w.notify()
	})
	return nil
}
