package pacing

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

const window = 2 * time.Second

// inBubble runs a test of a new Limiter in time that passes as fast as it can.
func inBubble(t *testing.T, test func(t *testing.T, l *Limiter)) {
	synctest.Test(t, func(t *testing.T) { test(t, New(window)) })
}

func nth(i int) cache.ObjectName {
	return cache.NewObjectName("parlor", fmt.Sprint("sundae-", i))
}

// until asks again and again, as it is told to, and returns how long it took.
func until(ask func() time.Duration) time.Duration {
	start := time.Now()
	for wait := ask(); wait > 0; wait = ask() {
		time.Sleep(wait)
	}
	return time.Since(start)
}

func expect(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got != want {
		t.Errorf("%s after %s, want %s", what, got, want)
	}
}

func TestBudgetOfAnObject(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Limiter) {
		write := func() time.Duration { return l.Write(nth(1)) }
		report := func() time.Duration { return l.Report(nth(1), true) }
		for range objectBurst / 2 {
			expect(t, "a write", until(write), 0)
			expect(t, "an urgent report", until(report), 0)
		}
		expect(t, "the next write", until(write), objectInterval)
		expect(t, "the next urgent report", until(report), objectInterval)
		if wait := l.Write(nth(2)); wait != 0 {
			t.Errorf("another object waits for %s", wait)
		}
		l.Forget(nth(1))
		expect(t, "a write for the next of the name", until(write), 0)
	})
}

func TestWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Limiter) {
		report := func() time.Duration { return l.Report(nth(1), false) }
		expect(t, "the first report", until(report), window/2)
		expect(t, "the next one", until(report), window)
		time.Sleep(time.Hour)
		expect(t, "one after a pause", until(report), window/2)
		if wait := l.Report(nth(1), true); wait != 0 {
			t.Errorf("an urgent report waits for %s", wait)
		}
		expect(t, "one after an urgent one", until(report), window)

		// What is no longer to be reported has not waited.
		time.Sleep(time.Hour)
		report()
		time.Sleep(window)
		l.Cancel(nth(1))
		expect(t, "another report", until(report), window/2)
	})
}

// All objects together report at a limited rate, and none of them waits for ever.
func TestSharedRate(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Limiter) {
		const objects = 100
		start, done := time.Now(), make(chan time.Duration, objects)
		for i := range objects {
			go func() {
				until(func() time.Duration { return l.Report(nth(i), false) })
				done <- time.Since(start)
			}()
		}
		written := map[time.Duration]int{} // by the second
		var last time.Duration
		for range objects {
			last = <-done
			written[last/time.Second]++
		}
		for second, n := range written {
			if second < patience/time.Second && n > sharedBurst+sharedPerSecond {
				t.Errorf("%d reports in second %d", n, second)
			}
		}
		if last < (objects-sharedBurst)/sharedPerSecond*time.Second || last > 5*time.Minute {
			t.Errorf("the last one after %s", last)
		}
	})
}

// Urgent reports of others take precedence, but no report waits for long.
func TestLongestWait(t *testing.T) {
	inBubble(t, func(t *testing.T, l *Limiter) {
		var took time.Duration
		go func() {
			time.Sleep(time.Millisecond) // Urgent reports come first.
			took = until(func() time.Duration { return l.Report(nth(0), false) })
		}()
		for i := 1; took == 0; i++ {
			for range 2 * sharedBurst {
				l.Report(nth(i), true)
			}
			time.Sleep(time.Second / sharedPerSecond / 2)
			synctest.Wait()
		}
		if took < patience || took > 5*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}
