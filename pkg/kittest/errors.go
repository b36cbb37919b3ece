package kittest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Errors collects what is reported by utilruntime.HandleError and its variants. Its method
// Handle is an entry of utilruntime.ErrorHandlers. The zero value is ready for use. Its
// methods are safe for concurrent use.
type Errors struct {
	mu    sync.Mutex
	lines []string
}

// Handle keeps an error, after its message if it was reported with one.
func (e *Errors) Handle(_ context.Context, err error, msg string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, strings.TrimPrefix(fmt.Sprintf("%s: %v", msg, err), "Unhandled Error: "))
}

// Take returns the errors so far, and forgets them.
func (e *Errors) Take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := e.lines
	e.lines = nil
	return lines
}

// RequireOneLine requires an error of one line that contains all of these names.
func RequireOneLine(t testing.TB, err error, names []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
}
