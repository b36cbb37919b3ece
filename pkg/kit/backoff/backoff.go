// Package backoff joins the delays after which a controller looks at an object again, each of which
// has its own reason.
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
