package lab

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// A Death is the moment at which a controller is killed: at one of its writes, before the
// request arrives at the API server, or after the API server has carried it out and before
// the response arrives at the controller. Write counts from 1; zero is never. Events do not
// count, because they are sent beside the other writes.
type Death struct {
	Write int
	After bool
}

// KillAtEachWrite runs a scenario with a controller that is never killed, and then twice for
// each write that this controller has made: with a controller that is killed right before
// that write, and with one that is killed right after it. A controller that is killed is
// started again at once. The scenario must create objects, wait, and require what must be
// true in the end whenever the controller was killed. Each run has a namespace of its own.
//
// Which writes of a status a controller makes also depends on the time, so that the number
// of writes can differ from run to run. The test fails if most deaths do not happen.
func KillAtEachWrite(t *testing.T, newNamespace func(*testing.T) *Namespace, flags []string, scenario func(t *testing.T, n *Namespace)) {
	t.Helper()
	var writes []string
	run := func(t *testing.T, death Death) *mortal {
		t.Helper()
		n := newNamespace(t)
		m := n.startMortal(t, death, flags...)
		scenario(t, n)
		return m
	}
	if !t.Run("never", func(t *testing.T) { writes = run(t, Death{}).written() }) {
		return
	}
	var deaths atomic.Int32
	t.Run("killed", func(t *testing.T) {
		for i, write := range writes {
			for _, after := range []bool{false, true} {
				when := map[bool]string{false: "before", true: "after"}[after]
				t.Run(fmt.Sprintf("%s write %d, %s", when, i+1, write), func(t *testing.T) {
					t.Parallel()
					m := run(t, Death{i + 1, after})
					if m.hasDied() {
						deaths.Add(1)
					} else {
						t.Logf("there were only these writes: %q", m.written())
					}
				})
			}
		}
	})
	if most := 2 * len(writes); !t.Failed() && int(deaths.Load()) <= most/2 {
		t.Errorf("of %d deaths, only %d have happened", most, deaths.Load())
	}
	t.Logf("%d of %d deaths", deaths.Load(), 2*len(writes))
}

// mortal is a controller that is killed once.
type mortal struct {
	*Controller
	death Death

	mu     sync.Mutex
	writes []string
	again  bool // it was killed, and started again
}

// startMortal starts a controller like [Namespace.StartController], which is killed at that
// moment.
func (n *Namespace) startMortal(t testing.TB, death Death, flags ...string) *mortal {
	t.Helper()
	m := &mortal{death: death}
	reached, done := make(chan struct{}), make(chan struct{})
	m.Controller = n.startControllerBehind(t, func(apiServer http.Handler) http.Handler {
		return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
			if !m.note(in) {
				apiServer.ServeHTTP(out, in)
				return
			}
			if death.After {
				apiServer.ServeHTTP(discard{http.Header{}}, in)
			} else if _, err := io.Copy(io.Discard, in.Body); err != nil {
				t.Errorf("reading a request: %v", err)
			}
			close(reached)
			select { // until the controller has been killed
			case <-in.Context().Done():
			case <-done:
			}
		})
	}, flags...)
	var undertaker sync.WaitGroup
	undertaker.Go(func() {
		select {
		case <-done:
			return
		case <-reached:
		}
		if err := m.kill(syscall.SIGKILL); err != nil {
			t.Error(err)
		} else if err := m.Launch(); err != nil {
			t.Error(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.again = true
	})
	t.Cleanup(func() {
		close(done)
		undertaker.Wait()
	})
	return m
}

// note records a request that is a write, and reports whether the controller is to be killed
// at it.
func (m *mortal) note(r *http.Request) bool {
	if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, "/apis/events.k8s.io/") {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	path := strings.Split(r.URL.Path, "/")
	_, names, _ := strings.Cut(r.URL.Path, "/namespaces/")
	if parts := strings.SplitN(names, "/", 2); len(parts) == 2 {
		path = strings.Split(parts[1], "/")
	}
	m.writes = append(m.writes, r.Method+" "+strings.Join(path, " "))
	return len(m.writes) == m.death.Write
}

// written returns all writes so far.
func (m *mortal) written() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.writes)
}

// hasDied reports whether the controller was killed and started again.
func (m *mortal) hasDied() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.again
}

// discard is a response that nobody receives.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (d discard) Write(body []byte) (int, error) { return len(body), nil }
func (d discard) WriteHeader(int)                {}
