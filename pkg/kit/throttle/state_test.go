package throttle

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kittest"
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

// woken are the calls of a Limiter's wake, by time.
type woken []string

func (w *woken) wake(name cache.ObjectName, after time.Duration) {
	*w = append(*w, fmt.Sprintf("at %s: %s in %s", time.Now(), name, after))
}

// pair is a Limiter that goes on, and one that is often restored from its state.
type pair struct {
	t                  *rapid.T
	kept, restored     *Limiter
	byKept, byRestored woken
}

// both calls both, and compares what they return, whom they wake, and their states.
func (p *pair) both(call func(*Limiter) bool) {
	p.t.Helper()
	want, got := call(p.kept), call(p.restored)
	if want != got {
		p.t.Fatalf("returned %t, but %t if restored", want, got)
	}
	p.compare()
}

func (p *pair) compare() {
	p.t.Helper()
	slices.Sort(p.byKept) // the lines have timers that may fire at the same moment
	slices.Sort(p.byRestored)
	if !slices.Equal(p.byKept, p.byRestored) {
		p.t.Fatalf("woke %v, but %v if restored", p.byKept, p.byRestored)
	}
	p.byKept, p.byRestored = nil, nil
	if want, got := p.json(p.kept), p.json(p.restored); want != got {
		p.t.Fatalf("state %s, but %s if restored", want, got)
	}
}

func (p *pair) json(l *Limiter) string {
	text, err := json.Marshal(l.State())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// restore restores one Limiter from the other's state, in place or as a new one.
func (p *pair) restore(anew bool) {
	var state State
	if err := json.Unmarshal([]byte(p.json(p.kept)), &state); err != nil {
		p.t.Fatal(err)
	}
	if anew {
		p.restored.SetState(State{}) // which stops its timers
		p.restored = New(p.kept.window, clock.RealClock{}, p.byRestored.wake)
	}
	p.restored.SetState(state)
	p.compare()
}

func TestStateIsComplete(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			window := rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(rt, "window")
			p := &pair{t: rt}
			p.kept = New(window, clock.RealClock{}, p.byKept.wake)
			p.restored = New(window, clock.RealClock{}, p.byRestored.wake)
			many := func(call func(cache.ObjectName)) bool {
				for i := range 15 {
					call(cache.NewObjectName(fmt.Sprint(i%3), fmt.Sprint(i)))
				}
				return true
			}
			objects := rapid.IntRange(0, 14)
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				i := objects.Draw(rt, "object")
				name := cache.NewObjectName(fmt.Sprint(i%3), fmt.Sprint(i))
				isRefused := rapid.Bool().Draw(rt, "is refused")
				switch rapid.IntRange(0, 13).Draw(rt, "step") {
				case 0:
					p.both(func(l *Limiter) bool { return l.AllowUrgent(name) })
				case 1:
					p.both(func(l *Limiter) bool { return l.AllowReport(name) })
				case 2:
					p.both(func(l *Limiter) bool { return l.AllowRetry(name) })
				case 3:
					p.both(func(l *Limiter) bool { l.Wrote(name, isRefused); return true })
				case 4:
					p.both(func(l *Limiter) bool { l.Reported(name); return true })
				case 5:
					p.both(func(l *Limiter) bool { l.CancelRetry(name); return true })
				case 6:
					p.both(func(l *Limiter) bool { l.CancelReport(name); return true })
				case 7:
					p.both(func(l *Limiter) bool { l.Forget(name); return true })
				case 8:
					p.both(func(l *Limiter) bool { return many(func(name cache.ObjectName) { l.AllowReport(name) }) })
				case 9:
					p.both(func(l *Limiter) bool { return many(func(name cache.ObjectName) { l.AllowRetry(name) }) })
				case 10:
					p.both(func(l *Limiter) bool { return many(l.Reported) })
				case 11:
					p.restore(rapid.Bool().Draw(rt, "anew"))
				default:
					kittest.Pass(rapid.SampledFrom([]time.Duration{
						time.Millisecond, 300 * time.Millisecond, time.Second, 10 * time.Second, 31 * time.Second, 6 * time.Minute,
					}).Draw(rt, "pause"))
					p.compare()
				}
			}
			p.kept.SetState(State{})
			p.restored.SetState(State{})
		})
	})
}

// After all of its effects have ended, nothing is left of a write.
func TestStateForgetsWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(time.Second, clock.RealClock{}, func(cache.ObjectName, time.Duration) {})
		name := cache.NewObjectName("default", "vanilla")
		l.AllowRetry(name)
		l.Wrote(name, true)
		l.Reported(name)
		p := &pair{}
		if got := p.json(l); got == "{}" {
			t.Errorf("state %s after writes", got)
		}
		kittest.Pass(time.Minute)
		if got := p.json(l); got != "{}" {
			t.Errorf("state %s a minute later", got)
		}
	})
}
