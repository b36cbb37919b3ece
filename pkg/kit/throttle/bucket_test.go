package throttle

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The obvious library has the same number of tokens at all times, but for rounding errors.
func TestBucketIsARateLimiter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 30).Draw(t, "size")
		interval := rapid.SampledFrom([]time.Duration{time.Second / 5, time.Second / 2, 10 * time.Second}).Draw(t, "interval")
		b, limiter := bucket{interval: interval, size: size}, rate.NewLimiter(rate.Every(interval), size)
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			tokens := limiter.TokensAt(now)
			if got := float64(size) - float64(b.lacking(now))/float64(interval); max(got-tokens, tokens-got) > 1e-6 {
				t.Fatalf("%v tokens, want %v", got, tokens)
			}
			for n := range 3 {
				want := time.Duration((float64(n) - tokens) * float64(interval))
				if got := b.until(now, n); (got - want).Abs() > time.Millisecond {
					t.Fatalf("%s until there are %d tokens, want %s", got, n, want)
				}
			}
			before := b
			if rapid.Bool().Draw(t, "even if there is none") {
				b.take(now)
			} else {
				b.takeAny(now)
				if isClose := max(tokens-1, 1-tokens) < 1e-6; !isClose && (b != before) != (tokens > 1) {
					t.Fatalf("taken: %t, with %v tokens", b != before, tokens)
				}
			}
			if b != before {
				limiter.ReserveN(now, 1)
			}
		}
	})
}
