package throttle

import "time"

// bucket is a token bucket: a token is added per interval, as long as there are fewer than
// size. All that it remembers is when it is full again, so it has no rounding errors.
type bucket struct {
	interval time.Duration
	size     int
	fullAt   time.Time // in the past if it is full
}

// until returns how long it takes until there are n tokens. It is not positive if there are.
// If n is more than size, it is as if there were room for them.
func (b *bucket) until(now time.Time, n int) time.Duration {
	return b.lacking(now) - time.Duration(b.size-n)*b.interval
}

// lacking returns how long it takes until the bucket is full.
func (b *bucket) lacking(now time.Time) time.Duration { return max(0, b.fullAt.Sub(now)) }

// take takes a token, even if there is none.
func (b *bucket) take(now time.Time) { b.fullAt = now.Add(b.lacking(now) + b.interval) }

// takeAny takes a token, unless there is none.
func (b *bucket) takeAny(now time.Time) {
	if b.until(now, 1) <= 0 {
		b.take(now)
	}
}

// debt returns how long it takes until there are no fewer than zero tokens.
func (b *bucket) debt(now time.Time) time.Duration { return max(0, b.until(now, 0)) }
