package worker_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// ending is one way for a sync to end, and what the loop has to do then.
type ending struct {
	name  string
	owes  bool          // another sync, even if nothing changes
	retry bool          // that other sync is a retry, and backs off
	hold  bool          // for the whole back-off, unless something urgent comes
	quiet time.Duration // no other sync earlier than this, whatever comes
	sync  func() (time.Duration, error)
}

var endings = []ending{
	{name: "success", sync: func() (time.Duration, error) { return 0, nil }},
	{name: "look again", owes: true, sync: func() (time.Duration, error) { return time.Minute, nil }},
	{name: "terminal", sync: func() (time.Duration, error) { return 0, worker.Terminal(errMelted) }},
	{name: "terminal, look again", owes: true, sync: func() (time.Duration, error) { return time.Minute, worker.Terminal(errMelted) }},
	{name: "not yet", owes: true, retry: true, sync: func() (time.Duration, error) { return 0, worker.Requeue(errMelted) }},
	{name: "conflict", owes: true, retry: true, sync: func() (time.Duration, error) { return 0, conflict() }},
	{name: "failure", owes: true, retry: true, hold: true, sync: func() (time.Duration, error) { return 0, errMelted }},
	{name: "throttled", owes: true, retry: true, hold: true, quiet: 2 * time.Second, sync: func() (time.Duration, error) { return 0, throttled(2) }},
	{name: "panic", owes: true, retry: true, hold: true, sync: func() (time.Duration, error) { panic("poisoned") }},
}

// plan is what happens to a loop from outside: additions, at times, and how the
// syncs of each object go, one after the other. After those all succeed.
type plan struct {
	workers   int
	additions []addition
	scripts   [][]attempt // by object
}

type addition struct {
	pause  time.Duration // since the addition before
	object int
	after  time.Duration
	urgent bool // then at once
}

type attempt struct {
	takes time.Duration
	ends  ending
}

func plans() *rapid.Generator[plan] {
	pause := rapid.Custom(func(t *rapid.T) time.Duration {
		// Few values, so that things often happen at the same moment.
		return time.Duration(rapid.SampledFrom([]int{0, 0, 1, 5, 1000, 60_000}).Draw(t, "ms")) * time.Millisecond
	})
	attempts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) attempt {
		return attempt{pause.Draw(t, "takes"), rapid.SampledFrom(endings).Draw(t, "ends")}
	}), 0, 8)
	return rapid.Custom(func(t *rapid.T) plan {
		objects := rapid.IntRange(1, 4).Draw(t, "objects")
		return plan{
			workers: rapid.IntRange(1, 3).Draw(t, "workers"),
			scripts: rapid.SliceOfN(attempts, objects, objects).Draw(t, "scripts"),
			additions: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) addition {
				return addition{
					pause:  pause.Draw(t, "pause"),
					object: rapid.IntRange(0, objects-1).Draw(t, "object"),
					after:  pause.Draw(t, "after"),
					urgent: rapid.IntRange(0, 3).Draw(t, "urgent") == 0,
				}
			}), 1, 20).Draw(t, "additions"),
		}
	})
}

// history is what the loop made of a plan, in order.
type history struct {
	mu     sync.Mutex
	events []event
}

type event struct {
	what   string // "add", "add urgently", "start", "end", "cancel" or "returned"
	at     time.Time
	object int
	ends   ending // of "end"
}

func (h *history) note(what string, object int, ends ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{what, time.Now(), object, ends})
}

// play runs a plan for some time, stops the loop, and returns what happened. It must be
// called in a bubble.
func play(t *testing.T, p plan, during time.Duration) []event {
	h := &history{}
	next := make([]int, len(p.scripts))
	var mu sync.Mutex
	l := worker.New("test", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
		object, err := strconv.Atoi(name.Name)
		if err != nil {
			t.Error(err)
		}
		h.note("start", object, ending{})
		now := attempt{ends: endings[0]}
		mu.Lock()
		if script := p.scripts[object]; next[object] < len(script) {
			now = script[next[object]]
			next[object]++
		}
		mu.Unlock()
		time.Sleep(now.takes)
		h.note("end", object, now.ends)
		return now.ends.sync()
	})

	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		if err := l.Run(ctx, p.workers); err != nil {
			t.Error(err)
		}
		h.note("returned", 0, ending{})
		close(returned)
	}()
	synctest.Wait()
	go func() {
		for _, a := range p.additions {
			time.Sleep(a.pause)
			name := cache.NewObjectName("", strconv.Itoa(a.object))
			if a.urgent {
				h.note("add urgently", a.object, ending{})
				l.AddUrgent(name)
				continue
			}
			h.note("add", a.object, ending{})
			l.AddAfter(name, a.after)
		}
	}()
	kittest.Pass(during)
	h.note("cancel", 0, ending{})
	cancel()
	<-returned
	kittest.Pass(time.Hour) // in which nothing more may happen
	return h.events
}

// violation returns a guarantee that the loop broke, no matter when it was stopped.
func violation(p plan, events []event) error {
	running := map[int]bool{}
	quietUntil, heldUntil := map[int]time.Time{}, map[int]time.Time{}
	started, urgent, retries := map[int]time.Time{}, map[int]time.Time{}, map[int]int{}
	var canceled, returned bool
	for _, e := range events {
		switch e.what {
		case "start":
			switch {
			case canceled:
				return fmt.Errorf("object %d was started after the end", e.object)
			case running[e.object]:
				return fmt.Errorf("object %d was synced twice at the same time", e.object)
			case e.at.Before(quietUntil[e.object]):
				return fmt.Errorf("object %d was synced before the server wanted it", e.object)
			case e.at.Before(heldUntil[e.object]) && urgent[e.object].Before(started[e.object]):
				return fmt.Errorf("object %d was synced within its back-off, with nothing urgent", e.object)
			}
			running[e.object] = true
			started[e.object] = e.at
			if len(running) > p.workers {
				return fmt.Errorf("%d syncs at the same time, with %d workers", len(running), p.workers)
			}
		case "end":
			if returned {
				return fmt.Errorf("object %d was still running when Run returned", e.object)
			}
			delete(running, e.object)
			quietUntil[e.object] = e.at.Add(e.ends.quiet)
			delete(heldUntil, e.object)
			if e.ends.hold {
				heldUntil[e.object] = e.at.Add(min(5*time.Millisecond<<retries[e.object], time.Minute))
			}
			retries[e.object]++
			if !e.ends.retry {
				delete(retries, e.object)
			}
		case "add urgently":
			urgent[e.object] = e.at
		case "cancel":
			canceled = true
		case "returned":
			returned = true
		}
	}
	return nil
}

// unfinished returns an object that still needs a sync, or that was synced more often than
// requested.
func unfinished(p plan, events []event) error {
	for object := range p.scripts {
		var asked, syncs int
		var owed string
		for _, e := range events {
			if e.object != object {
				continue
			}
			switch e.what {
			case "add", "add urgently":
				asked++
				owed = "an addition"
			case "start":
				syncs++
				owed = ""
			case "end":
				if e.ends.owes {
					asked++
					owed = e.ends.name
				}
			}
		}
		if owed != "" {
			return fmt.Errorf("object %d was not synced after %s", object, owed)
		}
		if syncs > asked {
			return fmt.Errorf("object %d was synced %d times, asked for %d times", object, syncs, asked)
		}
	}
	return nil
}

func TestEveryAdditionAndEveryRetryIsFollowedByASync(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := plans().Draw(rt, "plan")
		var events []event
		synctest.Test(t, func(t *testing.T) { events = play(t, p, 24*time.Hour) })
		if err := violation(p, events); err != nil {
			rt.Fatal(err)
		}
		if err := unfinished(p, events); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestALoopMayBeStoppedAtAnyMoment(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := plans().Draw(rt, "plan")
		during := time.Duration(rapid.IntRange(0, 3000).Draw(rt, "during")) * time.Millisecond
		var events []event
		synctest.Test(t, func(t *testing.T) { events = play(t, p, during) })
		if err := violation(p, events); err != nil {
			rt.Fatal(err)
		}
	})
}

// However busy some objects keep the workers, another one waits for no more than
// one sync of each of them. (What the other workers take from the queue after it
// may still be a moment faster.)
func TestNoObjectStarvesAnother(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		workers := rapid.IntRange(1, 3).Draw(rt, "workers")
		busy := rapid.IntRange(1, 6).Draw(rt, "busy objects")
		fails := rapid.SliceOfN(rapid.Bool(), busy, busy).Draw(rt, "fails")
		wait := time.Duration(rapid.IntRange(0, 50).Draw(rt, "wait")) * time.Millisecond

		var overtaken int
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var waiting bool
			var l *worker.Loop
			l, _ = run(t, workers, func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
				mu.Lock()
				switch {
				case name == chocolate:
					waiting = false
				case waiting:
					overtaken++
				}
				mu.Unlock()
				if name == chocolate {
					return 0, nil
				}
				time.Sleep(time.Millisecond)
				l.Add(name)
				if i, _ := strconv.Atoi(name.Name); fails[i] {
					return 0, errMelted
				}
				return 0, nil
			})
			for i := range busy {
				l.Add(cache.NewObjectName("", strconv.Itoa(i)))
			}
			time.Sleep(wait)
			mu.Lock()
			waiting = true
			mu.Unlock()
			l.Add(chocolate)
			kittest.Pass(time.Second)
			if waiting {
				t.Error("chocolate was never synced")
			}
		})
		if overtaken > busy+workers-1 {
			rt.Fatalf("%d syncs of %d busy objects came first", overtaken, busy)
		}
	})
}
