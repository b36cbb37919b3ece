package fault

import (
	"bytes"
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restclientwatch "k8s.io/client-go/rest/watch"
)

// stream is the response to a watch.
type stream struct {
	http.ResponseWriter
	set     *Set
	request Request
	began   time.Time
	context context.Context
	cancel  context.CancelCauseFunc

	// These are protected by the lock of the set.
	timers map[*Active]*time.Timer
	frozen []*Active
	thawed chan struct{} // closed while frozen is empty
}

// The reasons to end a watch.
var (
	errCut     = errors.New("the watch is cut")
	errExpired = errors.New("the watch has expired")
)

// watching returns a handler that passes a watch on, to which rules may be applied while it
// is open.
func (s *Set) watching(next http.Handler, r Request, rules []*Active) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		ctx, cancel := context.WithCancelCause(in.Context())
		defer cancel(nil)
		w := &stream{ResponseWriter: out, set: s, request: r, began: time.Now(), context: ctx, cancel: cancel, timers: map[*Active]*time.Timer{}, thawed: make(chan struct{})}
		close(w.thawed)
		s.open(w, rules)
		defer s.close(w)
		defer w.end()
		next.ServeHTTP(w, in.WithContext(ctx))
	})
}

// open adds a stream, with the rules that apply to it.
func (s *Set) open(w *stream, rules []*Active) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, w)
	for _, a := range rules {
		if !a.removed {
			w.apply(a)
		}
	}
}

// close removes a stream.
func (s *Set) close(w *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, func(other *stream) bool { return other == w })
	for _, timer := range w.timers {
		timer.Stop()
	}
}

// apply applies a rule to an open stream. The caller must hold the lock.
func (w *stream) apply(a *Active) {
	switch a.Rule.Effect {
	case HangBefore, HangAfter:
		if len(w.frozen) == 0 {
			w.thawed = make(chan struct{})
		}
		w.frozen = append(w.frozen, a)
	case Cut, Expire:
		reason := errCut
		if a.Rule.Effect == Expire {
			reason = errExpired
		}
		from := w.began
		if a.since.After(from) {
			from = a.since
		}
		w.timers[a] = time.AfterFunc(time.Until(from.Add(a.Rule.After)), func() { w.cancel(reason) })
	default: // of the beginning of a request
	}
}

// forget ends what a rule does to the stream. The caller must hold the lock.
func (w *stream) forget(a *Active) {
	if timer := w.timers[a]; timer != nil {
		timer.Stop()
		delete(w.timers, a)
	}
	if i := slices.Index(w.frozen, a); i >= 0 {
		w.frozen = slices.Delete(w.frozen, i, i+1)
		if len(w.frozen) == 0 {
			close(w.thawed)
		}
	}
}

// Unwrap returns the response for [http.ResponseController].
func (w *stream) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write waits while the stream is frozen. It returns an error if the stream ends before.
func (w *stream) Write(events []byte) (int, error) {
	for {
		w.set.mu.Lock()
		thawed, isFrozen := w.thawed, len(w.frozen) > 0
		w.set.mu.Unlock()
		switch {
		case context.Cause(w.context) != nil:
			return 0, context.Cause(w.context)
		case !isFrozen:
			return w.ResponseWriter.Write(events)
		}
		select {
		case <-w.context.Done():
		case <-thawed:
		}
	}
}

// end ends the response in good order if a rule has ended the stream. Otherwise a panic of
// the handler goes on.
func (w *stream) end() {
	cause := context.Cause(w.context)
	if !errors.Is(cause, errCut) && !errors.Is(cause, errExpired) {
		return
	}
	if r := recover(); r != nil && r != http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
		panic(r)
	}
	if errors.Is(cause, errExpired) {
		_, _ = w.ResponseWriter.Write(expired(w.Header().Get("Content-Type"))) // the client may be gone
	}
}

// expired returns the last event of a watch whose resource version has become too old, in the
// format of the watch.
func expired(contentType string) []byte {
	info := jsonInfo
	if mediaType, _, err := mime.ParseMediaType(contentType); err == nil {
		if found, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType); ok && found.StreamSerializer != nil {
			info = found
		}
	}
	status := apierrors.NewResourceExpired("fault injected by a test").ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	var frame bytes.Buffer
	encoder := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(&frame), info.StreamSerializer.Serializer)
	if err := restclientwatch.NewEncoder(encoder, info.Serializer).Encode(&watch.Event{Type: watch.Error, Object: &status}); err != nil {
		panic(err) // a status can be encoded
	}
	return frame.Bytes()
}
