// Package backoff combines the delays after which a controller looks at an object again. There can be
// several, each for a reason of its own.
package backoff

import "time"

// MinRequeue returns the shorter of two delays after which to look again, of which 0 means
// never.
func MinRequeue(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
