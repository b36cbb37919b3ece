// Package backoff says how soon a controller may write the same again that somebody
// keeps undoing: at once the first few times, as people try things and caches need a
// moment, and then later and later.
//
// What counts as the same is up to the caller, who remembers what was last written,
// when, and how often in a row.
package backoff

import "time"

const (
	// Free is how many writes of the same may follow each other at once.
	Free = 3
	// The pause after these is First, and doubles with each write up to Slowest.
	First, Slowest = 5 * time.Second, 5 * time.Minute
	// ForgetAfter is how long after the last write the same is another story.
	ForgetAfter = 2 * Slowest
)

// Delay returns how long after the last of count writes of the same in a row the next
// may be made.
func Delay(count int) time.Duration {
	if count < Free {
		return 0
	}
	return Doubled(First, count-Free, Slowest)
}

// Doubled returns a delay doubled so many times, up to a limit.
func Doubled(delay time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if delay *= 2; delay >= limit {
			return limit
		}
	}
	return delay
}
