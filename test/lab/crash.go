package lab

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// KillAtEachWrite runs a scenario with a controller that is never killed, and then twice for
// each write that this controller has made: with a controller that is killed right before
// that write, and with one that is killed right after it. A controller that is killed is
// started again at once. The scenario must create objects, wait, and require what must be
// true in the end whenever the controller was killed. Each run has a namespace of its own.
//
// How often a controller writes a status also depends on the time, so that a run may have
// fewer of these writes than the first one, but not none. It must have all of the others.
func KillAtEachWrite(t *testing.T, newNamespace func(*testing.T) *Namespace, flags []string, scenario func(t *testing.T, n *Namespace)) {
	t.Helper()
	var writes []string
	run := func(t *testing.T, death Death) mortal {
		t.Helper()
		n := newNamespace(t)
		m := n.startMortal(t, death, flags...)
		scenario(t, n)
		return m
	}
	if !t.Run("never", func(t *testing.T) { writes = run(t, Death{}).Writes() }) {
		return
	}
	t.Run("killed", func(t *testing.T) {
		count := map[string]int{}
		for _, write := range writes {
			count[write]++
			number := count[write]
			for _, after := range []bool{false, true} {
				when := map[bool]string{false: "before", true: "after"}[after]
				t.Run(fmt.Sprintf("%s %s, number %d", when, write, number), func(t *testing.T) {
					t.Parallel()
					m := run(t, Death{Write: number, Of: write, After: after})
					switch {
					case m.hasDied():
					case number > 1 && strings.HasSuffix(write, " status"):
						t.Logf("not killed, because there were only these writes: %q", m.Writes())
					default:
						t.Errorf("not killed, because there were only these writes: %q", m.Writes())
					}
				})
			}
		}
	})
	t.Logf("writes of the controller that was never killed: %q", writes)
}

// mortal is a controller that is killed once.
type mortal struct {
	*Door
	again chan struct{} // closed when it was killed, and started again
}

// startMortal starts a controller like [Namespace.StartController], which is killed at that
// moment. Events do not count as writes, because they are sent beside the others.
func (n *Namespace) startMortal(t testing.TB, death Death, flags ...string) mortal {
	t.Helper()
	m := mortal{NewDoor(describe), make(chan struct{})}
	m.Death = death
	c := n.StartControllerThrough(t, m.Handler, flags...)
	done := make(chan struct{})
	var undertaker sync.WaitGroup
	undertaker.Go(func() {
		select {
		case <-done:
			return
		case <-m.Shut():
		}
		if err := errors.Join(c.kill(syscall.SIGKILL), c.Launch()); err != nil {
			t.Error(err)
		}
		close(m.again)
	})
	t.Cleanup(func() {
		close(done)
		undertaker.Wait()
	})
	return m
}

// hasDied reports whether the controller was killed and started again.
func (m mortal) hasDied() bool {
	select {
	case <-m.again:
		return true
	default:
		return false
	}
}

// describe describes a write by its verb and its path below the namespace.
func describe(r *http.Request) string {
	path := strings.Split(r.URL.Path, "/")
	_, names, _ := strings.Cut(r.URL.Path, "/namespaces/")
	if parts := strings.SplitN(names, "/", 2); len(parts) == 2 {
		path = strings.Split(parts[1], "/")
	}
	if r.Method == http.MethodGet || path[0] == "events" {
		return ""
	}
	return r.Method + " " + strings.Join(path, " ")
}
