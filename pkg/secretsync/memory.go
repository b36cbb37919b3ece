package secretsync

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
)

// Problem is why a copy is not as it should be. The zero Problem is none.
type Problem struct{ Reason, Words string }

// Memory is what one process remembers of one copy from sync to sync. A process that
// has none, because it has just begun, may make a write again whose answer it would
// have known. The zero Memory remembers nothing.
type Memory struct {
	Goal    string    // what the last write was for; empty before the first write
	At      time.Time // when that was answered
	Count   int       // how often in a row the same was written
	Altered string    // what the API server stored otherwise than requested; empty if nothing
	Undoer  string    // the field manager that was seen to have undone it last; empty if none was

	Problem Problem // the last one; people have been told
}

// wait is how long it is at now until something may be written again for the same
// goal.
func (m Memory) wait(now time.Time) time.Duration {
	count := m.Count
	if m.Altered != "" {
		count += backoff.Free - 1 // the first answer says that the next will be the same
	}
	return max(0, m.At.Add(backoff.Delay(count)).Sub(now))
}

// isUndone reports whether the next write for the same goal may well be undone, too.
func (m Memory) isUndone() bool { return m.Altered != "" || m.Count >= backoff.Free }

// lasting is the problem that there still is although the last write succeeded: a
// repair counts when it has lasted as long as the pause after it.
func (m Memory) lasting(now time.Time) Problem {
	if m.Altered != "" || m.Count > backoff.Free && m.wait(now) > 0 {
		return m.problem()
	}
	return Problem{}
}

// problem is what keeps the copy from staying as it was written.
func (m Memory) problem() Problem {
	if m.Altered != "" {
		return Problem{ReasonAltered, fmt.Sprintf("the API server stored the copy otherwise than requested, by an admission policy or webhook: its %s; secretsync waits longer each time before it tries again", m.Altered)}
	}
	who := "somebody"
	if m.Undoer != "" {
		who = fmt.Sprintf("%q", m.Undoer)
	}
	return Problem{ReasonContested, who + " keeps undoing what is written to the copy; secretsync waits longer each time before it repairs that"}
}

// after is the memory after the decision has been carried out on a copy that the
// undoer had changed, with what the API server has stored in other words.
func (m Memory) after(d Decision, undoer string, altered []string, now time.Time) Memory {
	next := Memory{Goal: d.Goal, At: now, Count: 1, Altered: strings.Join(altered, ", "), Problem: m.Problem}
	if m.Goal == d.Goal && now.Sub(m.At) < backoff.ForgetAfter {
		next.Count += m.Count
		next.Undoer = cmp.Or(undoer, m.Undoer)
	}
	return next
}

// left is how long it is at now until there is nothing left to remember of a copy
// that nobody wants and that is gone.
func (m Memory) left(now time.Time) time.Duration {
	return max(0, m.At.Add(backoff.ForgetAfter).Sub(now))
}

// memories are those of all copies. They are safe for concurrent use.
type memories struct {
	mu sync.Mutex
	of map[cache.ObjectName]Memory
}

// get is what is remembered of a copy.
func (m *memories) get(name cache.ObjectName) Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[name]
}

// set remembers that of a copy from now on.
func (m *memories) set(name cache.ObjectName, memory Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if memory == (Memory{}) {
		delete(m.of, name)
		return
	}
	if m.of == nil {
		m.of = map[cache.ObjectName]Memory{}
	}
	m.of[name] = memory
}

// count says how many copies have a problem, by its reason.
func (m *memories) count() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, memory := range m.of {
		counts[memory.Problem.Reason]++
	}
	return counts
}
