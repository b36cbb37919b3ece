package build

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	meterInterval = 5 * time.Second
	// typicalRate is how many bytes of Go a processor compiles in a second. It is used
	// until there is something to extrapolate from.
	typicalRate = 150_000
	// enough is the part of a build that says how long the rest will take.
	enough = 0.05
)

// meter turns the output of "go build -v", one line per package, into a line
// of progress every few seconds, and keeps it for the error of a failed build.
type meter struct {
	out     io.Writer
	title   string
	now     func() time.Time
	started time.Time
	closed  chan struct{}
	stopped chan struct{}

	mu        sync.Mutex
	partial   string
	lines     []string
	plan      *plan // nil until it is known
	planned   time.Time
	packages  int   // of the plan that are done
	bytes     int64 // of the plan that are done
	succeeded bool
}

func newMeter(out io.Writer, title string) *meter {
	m := &meter{out: out, title: title, now: time.Now, closed: make(chan struct{}), stopped: make(chan struct{})}
	m.started = m.now()
	fmt.Fprintln(m.out, m.summary())
	go m.tick()
	return m
}

// follow begins to measure against a plan.
func (m *meter) follow(plan *plan) {
	m.mu.Lock()
	m.plan, m.planned = plan, m.now()
	m.mu.Unlock()
	fmt.Fprintln(m.out, m.summary())
}

// Write receives output of the go command.
func (m *meter) Write(output []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := strings.Split(m.partial+string(output), "\n")
	m.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		m.lines = append(m.lines, line)
		if m.plan != nil && isPackage(line) {
			packages, bytes := m.plan.finish(line)
			m.packages, m.bytes = m.packages+packages, m.bytes+bytes
		}
	}
	return len(output), nil
}

// succeed says that the build is complete.
func (m *meter) succeed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.succeeded = true
}

// Close writes the last line of progress.
func (m *meter) Close() {
	close(m.closed)
	<-m.stopped
	fmt.Fprintln(m.out, m.summary())
}

// Tail returns the last n lines of the output that are not names of packages.
func (m *meter) Tail(n int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []string
	for _, line := range append(m.lines, m.partial) {
		if line != "" && !isPackage(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-n):], "\n")
}

func (m *meter) tick() {
	defer close(m.stopped)
	ticker := time.NewTicker(meterInterval)
	defer ticker.Stop()
	for {
		select {
		case <-m.closed:
			return
		case <-ticker.C:
			fmt.Fprintln(m.out, m.summary())
		}
	}
}

func (m *meter) summary() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := m.now().Sub(m.started).Round(time.Second)
	switch {
	case m.succeeded:
		return fmt.Sprintf("building %s: done in %v", m.title, elapsed)
	case m.plan == nil:
		return fmt.Sprintf("building %s: listing its packages", m.title)
	case m.packages > 0 && m.packages >= len(m.plan.packages)-1: // nothing imports a program
		return fmt.Sprintf("building %s: linking, %v", m.title, elapsed)
	default:
		percent := 100 * m.bytes / max(1, m.plan.total)
		return fmt.Sprintf("building %s: %d%%, %d of %d packages, %v; at most %s left",
			m.title, percent, m.packages, len(m.plan.packages), elapsed, m.left())
	}
}

// left estimates how long the rest takes. It counts packages that are in the go
// command's cache as work until the go command has passed them.
func (m *meter) left() string {
	rest := float64(m.plan.total - m.bytes)
	rate := float64(typicalRate * runtime.NumCPU())
	if fraction := float64(m.bytes) / float64(max(1, m.plan.total)); fraction >= enough {
		rate = float64(m.bytes) / max(1, m.now().Sub(m.planned).Seconds())
	}
	left := time.Duration(rest / rate * float64(time.Second))
	if left < time.Minute {
		return fmt.Sprintf("%ds", int(left.Round(time.Second).Seconds()))
	}
	return fmt.Sprintf("%d min", int((left + time.Minute - 1).Minutes()))
}

// isPackage reports whether a line is the name of a package rather than a message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}
