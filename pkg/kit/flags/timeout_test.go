package flags

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

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
	get := func(path string, after time.Duration) (string, error) {
		client := http.Client{Transport: timeouts{http.DefaultTransport, after}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		read, err := io.ReadAll(response.Body)
		return string(read), err
	}
	for _, path := range []string{"/silent", "/stops"} {
		if read, err := get(path, 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %q and error %v, want that the deadline is exceeded", path, read, err)
		}
	}
	for path, after := range map[string]time.Duration{"/": time.Minute, "/slow?watch=true": time.Millisecond} {
		if read, err := get(path, after); read != "answers" || err != nil {
			t.Errorf("%s: %q and error %v", path, read, err)
		}
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
