// Package backoff says how long a controller waits before it repeats a write that
// someone keeps undoing. The first few repetitions follow at once, because people try
// things out and caches need a moment; after that, each waits twice as long as the one
// before.
//
// The caller decides which writes are the same, and remembers the last one, its time,
// and how often it was repeated. [MinRequeue] joins the delays that follow from several
// reasons.
package backoff

import "time"

const (
	// Free is how many times the same write may be made without waiting.
	Free = 3
	// First is the delay after that. It doubles with each write, up to Slowest.
	First, Slowest = 5 * time.Second, 5 * time.Minute
	// ForgetAfter is how long after the last write the count begins again at zero.
	ForgetAfter = 2 * Slowest
)

// Delay returns how long to wait after the last of count identical writes in a row
// before the next one.
func Delay(count int) time.Duration {
	if count < Free {
		return 0
	}
	return Doubled(First, count-Free, Slowest)
}

// Doubled returns delay after doubling it the given number of times, but at most limit.
func Doubled(delay time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if delay *= 2; delay >= limit {
			return limit
		}
	}
	return delay
}

// MinRequeue returns the shorter of two delays after which to look again, of which 0 means
// never.
func MinRequeue(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
