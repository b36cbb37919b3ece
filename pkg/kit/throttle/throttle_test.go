package throttle_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/throttle"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

const window = 2 * time.Second

var vanilla = cache.NewObjectName("default", "vanilla")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func other(i int) cache.ObjectName { return cache.NewObjectName("default", fmt.Sprint(i)) }

// crowd is a Limiter, and objects that do something when they are woken.
type crowd struct {
	*throttle.Limiter
	mu   sync.Mutex
	does func(cache.ObjectName)
	woke map[cache.ObjectName]int
}

// inBubble runs a test with a Limiter in a bubble of its own time.
func inBubble(t *testing.T, test func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{woke: map[cache.ObjectName]int{}}
		c.Limiter = throttle.New(window, clock.RealClock{}, c.wake)
		test(t, c)
		c.set(nil)
	})
}

func (c *crowd) set(does func(cache.ObjectName)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.does = does
}

func (c *crowd) wake(name cache.ObjectName, after time.Duration) {
	time.AfterFunc(after, func() {
		c.mu.Lock()
		does := c.does
		c.woke[name]++
		c.mu.Unlock()
		if does != nil {
			does(name)
		}
	})
}

func TestOneReportPerWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		if c.AllowReport(vanilla) {
			t.Fatal("reported at once, although another may follow")
		}
		kittest.Pass(window / 2)
		if !c.AllowReport(vanilla) {
			t.Fatal("it has to wait after half a window")
		}
		c.Reported(vanilla)
		if c.AllowReport(vanilla) {
			t.Error("reported twice in a window")
		}
		kittest.Pass(window)
		if c.woke[vanilla] != 2 {
			t.Errorf("woken %d times after half a window and a window, want twice", c.woke[vanilla])
		}
		if !c.AllowReport(vanilla) {
			t.Error("it has to wait after a window")
		}
	})
}

// An object may have a number of writes at once, and then a few a minute, even urgent ones.
// Writes that are not urgent leave most of them to urgent ones.
func TestBudgetOfAnObject(t *testing.T) {
	tests := []struct {
		name   string
		may    func(*crowd) bool
		wrote  func(*crowd)
		atOnce int
	}{
		{"urgent ones", func(c *crowd) bool { return c.AllowUrgent(vanilla) }, func(c *crowd) { c.Reported(vanilla) }, 30},
		{"of the Deployment", func(c *crowd) bool { return c.AllowUrgent(vanilla) }, func(c *crowd) { c.Wrote(vanilla, false) }, 30},
		{"refused ones", func(c *crowd) bool { return c.AllowRetry(vanilla) }, func(c *crowd) { c.Wrote(vanilla, true) }, 10},
		{"reports", func(c *crowd) bool { return c.AllowReport(vanilla) }, func(c *crowd) { c.Reported(vanilla) }, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *crowd) {
				writes := 0
				write := func(cache.ObjectName) {
					if tt.may(c) {
						tt.wrote(c)
						writes++
					}
				}
				for range 600 { // a minute
					write(vanilla)
					kittest.Pass(100 * time.Millisecond)
				}
				if want := tt.atOnce + 6; writes < want-2 || writes > want+1 {
					t.Errorf("%d writes in the first minute, want about %d", writes, want)
				}
				writes = 0
				for range 6000 {
					write(vanilla)
					kittest.Pass(100 * time.Millisecond)
				}
				if writes < 58 || writes > 61 {
					t.Errorf("%d writes in ten minutes, want 60", writes)
				}
			})
		})
	}
}

// An object that waits is woken when it is its turn.
func TestWaitingObjectsAreWoken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		for c.AllowUrgent(vanilla) {
			c.Reported(vanilla)
		}
		kittest.Pass(11 * time.Second)
		if c.woke[vanilla] == 0 || !c.AllowUrgent(vanilla) {
			t.Errorf("woken %d times, want once there is room", c.woke[vanilla])
		}
	})
}

// The objects in line have their turns at a common rate, in the order in which they came.
func TestLineIsFair(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		const objects = 100
		var mu sync.Mutex
		var order []cache.ObjectName
		report := func(name cache.ObjectName) {
			if c.AllowReport(name) {
				c.Reported(name)
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}
		}
		c.set(report)
		for i := range objects {
			report(other(i))
			kittest.Pass(time.Millisecond)
		}
		kittest.Pass(window/2 + 10*time.Second)
		mu.Lock()
		early := len(order)
		mu.Unlock()
		if early < 25 || early > 32 {
			t.Errorf("%d reports after ten seconds, want ten at once and two a second", early)
		}
		kittest.Pass(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for i := range objects {
			if i >= len(order) || order[i] != other(i) {
				t.Fatalf("report %d was that of another, or none: %v", i, order)
			}
		}
	})
}

// Objects that leave the line delay nothing, even if there are ten thousand.
func TestLineThatEmptiesAdvancesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		const objects = 10000
		for i := range objects {
			c.Reported(other(i))
		}
		kittest.Pass(window)
		for i := range objects {
			if c.AllowReport(other(i)) {
				t.Fatalf("object %d need not wait behind so many", i)
			}
		}
		if c.AllowReport(vanilla) {
			t.Fatal("it need not wait behind so many")
		}
		for i := range objects {
			c.CancelReport(other(i))
		}
		kittest.Pass(61 * time.Second) // a great number of urgent ones holds up the others for a minute
		if c.woke[vanilla] == 0 || !c.AllowReport(vanilla) {
			t.Error("it still waits, though nobody else does")
		}
	})
}

// While everything is refused, all objects together make few attempts. When the obstacle is
// gone, all of them proceed at once.
func TestRetriesCatchUpAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		const objects = 1000
		var mu sync.Mutex
		attempts, done, isBroken := 0, 0, true
		retry := func(name cache.ObjectName) {
			if !c.AllowRetry(name) {
				return
			}
			mu.Lock()
			attempts++
			refused := isBroken
			if !refused {
				done++
			}
			mu.Unlock()
			c.Wrote(name, refused)
			if refused {
				c.wake(name, time.Minute)
			}
		}
		c.set(retry)
		for i := range objects {
			c.Wrote(other(i), true)
			retry(other(i))
		}
		kittest.Pass(10 * time.Minute)
		mu.Lock()
		if attempts < 1000 || attempts > 1300 {
			t.Errorf("%d attempts in ten minutes, want two a second", attempts)
		}
		isBroken = false
		mu.Unlock()
		kittest.Pass(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if done != objects {
			t.Errorf("%d of %d are done two minutes after it was mended", done, objects)
		}
	})
}

// If everything in one namespace is refused, neither other namespaces wait nor first
// attempts.
func TestRetriesOfOneNamespaceDelayNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		const objects = 1000
		var mu sync.Mutex
		tries := map[string]int{} // by namespace
		c.set(func(name cache.ObjectName) {
			if !c.AllowRetry(name) {
				return
			}
			c.Wrote(name, true)
			c.wake(name, time.Second)
			mu.Lock()
			defer mu.Unlock()
			tries[name.Namespace]++
		})
		for i := range objects {
			c.Wrote(other(i), true)
			c.wake(other(i), time.Second)
		}
		kittest.Pass(10 * time.Second)
		few := cache.NewObjectName("parlor", "vanilla")
		c.Wrote(few, true)
		c.wake(few, time.Second)
		kittest.Pass(4 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if tries["parlor"] == 0 {
			t.Errorf("an object waits behind %d of another namespace, which have tried %d times", objects, tries["default"])
		}
	})
}

// An object that does not use its turn delays the others only for a moment.
func TestUnusedTurnExpires(t *testing.T) {
	for name, ask := range map[string]func(*crowd, cache.ObjectName) bool{
		"report": func(c *crowd, name cache.ObjectName) bool { return c.AllowReport(name) },
		"retry":  func(c *crowd, name cache.ObjectName) bool { return c.AllowRetry(name) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *crowd) {
				for i := range 30 {
					ask(c, other(i))
				}
				if ask(c, vanilla) {
					t.Fatal("it need not wait behind so many")
				}
				kittest.Pass(3 * time.Minute)
				if c.woke[vanilla] == 0 || !ask(c, vanilla) {
					t.Error("it waits for those that do not use their turn")
				}
			})
		})
	}
}

// A deleted object loses its place in line, and a turn that it has not used.
func TestForget(t *testing.T) {
	inBubble(t, func(t *testing.T, c *crowd) {
		for i := range 20 {
			c.AllowRetry(other(i))
		}
		for i := range 20 {
			c.Forget(other(i))
		}
		if !c.AllowRetry(vanilla) {
			t.Error("it waits behind those that are gone")
		}
	})
}

func TestNoWindow(t *testing.T) {
	p := throttle.New(0, clock.RealClock{}, func(cache.ObjectName, time.Duration) {})
	p.Reported(vanilla)
	if !p.AllowReport(vanilla) {
		t.Error("it has to wait, want at once")
	}
}

func TestConcurrentUse(t *testing.T) {
	inBubble(t, func(_ *testing.T, c *crowd) {
		var running sync.WaitGroup
		for worker := range 8 {
			running.Go(func() {
				for i := range 200 {
					name := other((worker + i) % 5)
					if c.AllowReport(name) {
						c.Reported(name)
					}
					if c.AllowRetry(name) {
						c.Wrote(name, i%2 == 0)
					}
					c.CancelReport(name)
					c.CancelRetry(name)
					if i%7 == 0 {
						c.Forget(name)
					}
				}
			})
		}
		running.Wait()
	})
}
