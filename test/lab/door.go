package lab

import (
	"io"
	"net/http"
	"slices"
	"sync"
)

// A Death is the moment at which a process is killed: at one of its writes, before the
// request arrives at the API server, or after the API server has carried it out and before
// the response arrives at the process. Write counts from 1; zero is never.
type Death struct {
	Write int
	Of    string // the description of the writes that count; "" is any
	After bool
}

// A Door is what the requests of a process go through. It records writes in order, and at
// one of them it is shut: the request gets no response, so that the process can be killed
// while it waits for that.
type Door struct {
	Death    Death // when it is shut; it must be set before the process is started
	describe func(*http.Request) string
	shut     chan struct{}

	mu      sync.Mutex
	writes  []string
	counted int
}

// NewDoor returns a door that is never shut. Describe returns a description of a write, or
// "" for a request that does not count.
func NewDoor(describe func(*http.Request) string) *Door {
	return &Door{describe: describe, shut: make(chan struct{})}
}

// Shut returns a channel that is closed when the door is shut.
func (d *Door) Shut() <-chan struct{} { return d.shut }

// Writes returns all writes so far.
func (d *Door) Writes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.writes)
}

// Handler returns what receives the requests and passes them on; see [Lab.Proxy].
func (d *Door) Handler(apiServer http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		write := d.describe(in)
		if write == "" || !d.note(write) {
			apiServer.ServeHTTP(out, in)
			return
		}
		if d.Death.After {
			apiServer.ServeHTTP(discard{http.Header{}}, in)
		} else {
			_, _ = io.Copy(io.Discard, in.Body)
		}
		close(d.shut)
		<-in.Context().Done() // until the process has been killed
	})
}

// note records a write, and reports whether the door is to be shut at it.
func (d *Door) note(write string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes = append(d.writes, write)
	if d.Death.Of != "" && d.Death.Of != write {
		return false
	}
	d.counted++
	return d.counted == d.Death.Write
}

// discard is a response that nobody receives.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (d discard) Write(body []byte) (int, error) { return len(body), nil }
func (d discard) WriteHeader(int)                {}
