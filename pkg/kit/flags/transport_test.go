package flags

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// get sends a request through the transport, and returns the body of the response.
func get(t *testing.T, through transport, url string) (io.ReadCloser, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := through.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// A request is given up if no answer comes, or if it stops in the middle; a watch is not.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		switch in.URL.Path {
		case "/silent":
			<-in.Context().Done()
		case "/stops":
			_, _ = io.WriteString(out, "begins")
			_ = http.NewResponseController(out).Flush()
			<-in.Context().Done()
		case "/slow":
			time.Sleep(50 * time.Millisecond)
			_, _ = io.WriteString(out, "answers")
		default:
			_, _ = io.WriteString(out, "answers")
		}
	}))
	t.Cleanup(server.Close)
	readAll := func(path string, after time.Duration) (string, error) {
		body, err := get(t, transport{http.DefaultTransport, after}, server.URL+path)
		if err != nil {
			return "", err
		}
		defer body.Close()
		read, err := io.ReadAll(body)
		return string(read), err
	}
	for _, path := range []string{"/silent", "/stops"} {
		if read, err := readAll(path, 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %q and error %v, want that the deadline is exceeded", path, read, err)
		}
	}
	for path, after := range map[string]time.Duration{"/": time.Minute, "/slow?watch=true": time.Millisecond} {
		if read, err := readAll(path, after); read != "answers" || err != nil {
			t.Errorf("%s: %q and error %v", path, read, err)
		}
	}
}

// stream is the body of a watch on which much has arrived.
type stream struct {
	*strings.Reader
	reads  int
	closed bool
}

func (s *stream) Read(into []byte) (int, error) {
	s.reads++
	return s.Reader.Read(into)
}

func (s *stream) Close() error {
	s.closed = true
	return nil
}

// answer answers every request with a body.
type answer struct{ body io.ReadCloser }

func (a answer) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: a.body, Request: request}, nil
}

// watchThrough watches through the transport, and returns what the events are read from.
func watchThrough(t *testing.T, body io.ReadCloser) io.ReadCloser {
	t.Helper()
	events, err := get(t, transport{answer{body}, time.Minute}, "https://cluster.example/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// What has arrived of a watch is read in large pieces, however small the events are.
func TestWatchIsReadAhead(t *testing.T) {
	t.Parallel()
	const size, number = 1 << 10, 1 << 10
	sent := &stream{Reader: strings.NewReader(strings.Repeat("e", size*number))}
	events := watchThrough(t, sent)
	for event := make([]byte, size); ; {
		if _, err := io.ReadFull(events, event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if want := size*number/watchBuffer + 1; sent.reads != want {
		t.Errorf("%d reads, want %d: one for each %d bytes, and the end", sent.reads, want, watchBuffer)
	}
	if err := events.Close(); err != nil || !sent.closed {
		t.Errorf("the watch ends with error %v; its connection is released: %t", err, sent.closed)
	}
}

// An event does not wait for the next one.
func TestEventComesAtOnce(t *testing.T) {
	t.Parallel()
	received, sent := io.Pipe()
	events := watchThrough(t, received)
	for _, event := range []string{"first", "second"} {
		go func() { _, _ = io.WriteString(sent, event) }()
		got := make([]byte, 16)
		if n, err := events.Read(got); string(got[:n]) != event || err != nil {
			t.Errorf("%q and error %v, want %q", got[:n], err, event)
		}
	}
	if err := sent.CloseWithError(io.ErrUnexpectedEOF); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the connection is lost, and the error is %v", err)
	}
}

// Every request is looked at, so that must cost no memory.
func TestIsWatch(t *testing.T) {
	for query, want := range map[string]bool{
		"":           false,
		"watch=true": true,
		"allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300&watch=true": true,
		"watch=1&timeout=5s": true,
		"allowWatchBookmarks=true&limit=500&resourceVersion=0": false,
		"fieldSelector=metadata.name%3Dwatch":                  false,
		"labelSelector=watch%3Dtrue&fieldManager=watch":        false,
		"rewatch=true&watches=true":                            false,
	} {
		if got := isWatch(query); got != want {
			t.Errorf("%q: %t, want %t", query, got, want)
		}
		if allocated := testing.AllocsPerRun(10, func() { isWatch(query) }); allocated > 0 {
			t.Errorf("%q: %.0f allocations, want none", query, allocated)
		}
	}
}

// A typed client asks for a watch as isWatch expects, and for a list as it does not.
func TestClientsAskForWatches(t *testing.T) {
	t.Parallel()
	for _, isForWatch := range []bool{false, true} {
		options := metav1.ListOptions{Watch: isForWatch, LabelSelector: "watch=true", AllowWatchBookmarks: true}
		query, err := scheme.ParameterCodec.EncodeParameters(&options, corev1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if got := isWatch(query.Encode()); got != isForWatch {
			t.Errorf("%s: %t, want %t", query.Encode(), got, isForWatch)
		}
	}
}
