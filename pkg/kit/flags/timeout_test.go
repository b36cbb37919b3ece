package flags

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
