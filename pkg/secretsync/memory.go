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

// Problem is why a copy is not as it should be. The zero Problem means that nothing is
// wrong.
type Problem struct{ Reason, Message string }

// Memory is what a process remembers of a copy from one sync to the next. A process that
// has just started remembers nothing, and may repeat a write whose result a former process
// knew. The zero Memory remembers nothing.
type Memory struct {
	Goal       string    // what the last write was for; empty before the first write
	WrittenAt  time.Time // when the last write was answered
	Writes     int       // how many writes in a row had the same goal
	Altered    string    // the parts that the API server stored differently than requested
	RevertedBy string    // the field manager who reverted the copy last; empty if unknown

	Problem Problem // the last one, which has been recorded in an event
}

// wait returns how long after now the next write with the same goal is due.
func (m Memory) wait(now time.Time) time.Duration {
	count := m.Writes
	if m.Altered != "" {
		count += backoff.Free - 1 // the first response says already what the next will say
	}
	return max(0, m.WrittenAt.Add(backoff.Delay(count)).Sub(now))
}

// isContested reports whether the next write with the same goal will probably be altered
// or reverted, too.
func (m Memory) isContested() bool { return m.Altered != "" || m.Writes >= backoff.Free }

// ongoing returns the problem that remains although the last write succeeded; the zero
// Problem if there is none. A repair is known to last when it has lasted for as long as
// the pause after it.
func (m Memory) ongoing(now time.Time) Problem {
	if m.Altered != "" || m.Writes > backoff.Free && m.wait(now) > 0 {
		return m.contention()
	}
	return Problem{}
}

// contention returns what keeps the copy from staying as it was written.
func (m Memory) contention() Problem {
	if m.Altered != "" {
		return Problem{ReasonAltered, fmt.Sprintf("an admission policy or webhook changed the copy before it was stored: its %s; secretsync waits longer before each retry", m.Altered)}
	}
	who := "someone"
	if m.RevertedBy != "" {
		who = fmt.Sprintf("%q", m.RevertedBy)
	}
	return Problem{ReasonContested, "the copy keeps being reverted, last by " + who + "; secretsync waits longer before each repair"}
}

// after returns the memory after a decision was carried out on a copy that lastManager
// had changed, of which the API server stored some parts altered.
func (m Memory) after(d Decision, lastManager string, altered []string, now time.Time) Memory {
	next := Memory{Goal: d.Goal, WrittenAt: now, Writes: 1, Altered: strings.Join(altered, ", "), Problem: m.Problem}
	if m.Goal == d.Goal && now.Sub(m.WrittenAt) < backoff.ForgetAfter {
		next.Writes += m.Writes
		next.RevertedBy = cmp.Or(lastManager, m.RevertedBy)
	}
	return next
}

// forgetAfter returns how long after now the memory of a copy that is neither there nor
// wanted can be forgotten.
func (m Memory) forgetAfter(now time.Time) time.Duration {
	return max(0, m.WrittenAt.Add(backoff.ForgetAfter).Sub(now))
}

// memories holds the memories of all copies. It is safe for concurrent use.
type memories struct {
	mu     sync.Mutex
	byName map[cache.ObjectName]Memory
}

// get returns what is remembered of a copy.
func (m *memories) get(name cache.ObjectName) Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byName[name]
}

// set replaces what is remembered of a copy.
func (m *memories) set(name cache.ObjectName, memory Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if memory == (Memory{}) {
		delete(m.byName, name)
		return
	}
	if m.byName == nil {
		m.byName = map[cache.ObjectName]Memory{}
	}
	m.byName[name] = memory
}

// count returns how many copies have a problem, by reason.
func (m *memories) count() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{}
	for _, memory := range m.byName {
		counts[memory.Problem.Reason]++
	}
	return counts
}
