package parts

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const meterInterval = 5 * time.Second

// meter turns the output of "go build -v", one line per package, into a line
// of progress every few seconds, and keeps it for the error of a failed build.
type meter struct {
	out     io.Writer
	title   string
	started time.Time
	closed  chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	partial string
	lines   []string
}

func newMeter(out io.Writer, title string) *meter {
	m := &meter{out: out, title: title, started: time.Now(), closed: make(chan struct{}), done: make(chan struct{})}
	fmt.Fprintln(out, title+" (once per version; a few minutes)")
	go m.tick()
	return m
}

// Write takes output of the go command.
func (m *meter) Write(output []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := strings.Split(m.partial+string(output), "\n")
	m.partial = lines[len(lines)-1]
	m.lines = append(m.lines, lines[:len(lines)-1]...)
	return len(output), nil
}

// Close writes the last line of progress.
func (m *meter) Close() {
	close(m.closed)
	<-m.done
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
	defer close(m.done)
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
	packages, latest := 0, ""
	for _, line := range m.lines {
		if isPackage(line) {
			packages, latest = packages+1, line
		}
	}
	elapsed := time.Since(m.started).Round(time.Second)
	if latest == "" {
		return fmt.Sprintf("%s ... %s", m.title, elapsed)
	}
	return fmt.Sprintf("%s ... %d packages, %s (%s)", m.title, packages, elapsed, latest)
}

// isPackage tells the name of a package from a message.
func isPackage(line string) bool {
	return !strings.ContainsAny(line, " \t:#")
}
