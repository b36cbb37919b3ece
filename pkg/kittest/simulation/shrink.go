package simulation

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// mostRuns limits how often a history is run to make it shorter.
const mostRuns = 150

// Shrink looks for a history that fails in the same way with fewer faults and edits: it drops
// one after the other, and keeps what is not needed dropped.
func (s Simulation) Shrink(t *testing.T, failed Result) Result {
	t.Helper()
	dropped, runs := map[string]bool{}, 0
	for hasShrunk := true; hasShrunk; {
		hasShrunk = false
		for _, name := range failed.Happened {
			if runs++; runs > mostRuns {
				return failed
			}
			fewer := maps.Clone(dropped)
			fewer[name] = true
			if shorter := s.History(t, failed.Seed, fewer); shorter.Check == failed.Check {
				dropped, failed, hasShrunk = fewer, shorter, true
				break
			}
		}
	}
	return failed
}

// String says what went wrong, and what happened before.
func (r *Result) String() string {
	return fmt.Sprintf("seed %d: %s: %s\n%s\n", r.Seed, r.Check, r.Failure, strings.Join(r.Trace, "\n"))
}
