package explore

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// stepClock is the clock of a process. It stands still until it is told to advance. Of what
// waits for it, only functions are supported: all else panics.
type stepClock struct {
	clock.WithTickerAndDelayedExecution // nil

	mu     sync.Mutex
	at     time.Time
	timers []*stepTimer
}

// stepTimer calls a function once.
type stepTimer struct {
	clock.Timer // nil
	clock       *stepClock
	at          time.Time
	call        func()
}

func (c *stepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *stepClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *stepClock) AfterFunc(d time.Duration, call func()) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &stepTimer{clock: c, at: c.at.Add(d), call: call}
	c.timers = append(c.timers, t)
	return t
}

// Stop implements clock.Timer.
func (t *stepTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	i := slices.Index(t.clock.timers, t)
	if i < 0 {
		return false
	}
	t.clock.timers = slices.Delete(t.clock.timers, i, i+1)
	return true
}

// reset sets the time, and drops all timers.
func (c *stepClock) reset(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.timers = at, nil
}

// advance lets time pass, and calls what is due then, in order.
func (c *stepClock) advance(d time.Duration) {
	c.mu.Lock()
	c.at = c.at.Add(d)
	c.mu.Unlock()
	for {
		c.mu.Lock()
		first := c.first()
		if first < 0 || c.timers[first].at.After(c.at) {
			c.mu.Unlock()
			return
		}
		call := c.timers[first].call
		c.timers = slices.Delete(c.timers, first, first+1)
		c.mu.Unlock()
		call()
	}
}

// next returns when the first timer is due.
func (c *stepClock) next() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.first()
	if first < 0 {
		return at, false
	}
	return c.timers[first].at, true
}

// first returns the index of the timer that is due first, or -1.
func (c *stepClock) first() int {
	first := -1
	for i, t := range c.timers {
		if first < 0 || t.at.Before(c.timers[first].at) {
			first = i
		}
	}
	return first
}
