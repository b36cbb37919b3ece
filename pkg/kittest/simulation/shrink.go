package simulation

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// mostRuns limits how often a history is run to make it shorter.
const mostRuns = 150

// shrink looks for a history that fails in the same way with fewer faults and edits: it drops
// one after the other, and keeps what is not needed dropped.
func (s Simulation) shrink(t *testing.T, failed outcome) outcome {
	t.Helper()
	dropped, runs := map[string]bool{}, 0
	for hasShrunk := true; hasShrunk; {
		hasShrunk = false
		for _, name := range failed.happened {
			if runs++; runs > mostRuns {
				return failed
			}
			fewer := maps.Clone(dropped)
			fewer[name] = true
			if shorter := s.history(t, failed.seed, fewer); shorter.check == failed.check {
				dropped, failed, hasShrunk = fewer, shorter, true
				break
			}
		}
	}
	return failed
}

// String says what went wrong, and what happened before.
func (o *outcome) String() string {
	return fmt.Sprintf("seed %d: %s: %s\n%s\n", o.seed, o.check, o.failure, strings.Join(o.trace, "\n"))
}
