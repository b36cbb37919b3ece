package pace_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/pace"
)

const window = 2 * time.Second

var (
	begin   = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)
	vanilla = cache.NewObjectName("default", "vanilla")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newReports() (*pace.Reports, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(begin)
	return pace.New(window, clock), clock
}

func other(i int) cache.ObjectName { return cache.NewObjectName("default", fmt.Sprint(i)) }

func TestDue(t *testing.T) {
	type step struct {
		at       time.Duration // since the beginning
		do       func(*pace.Reports)
		wantDue  time.Duration // of vanilla, afterwards
		describe string
	}
	wrote := func(name cache.ObjectName, isUnderWay bool) func(*pace.Reports) {
		return func(r *pace.Reports) { r.Wrote(name, isUnderWay) }
	}
	nothing := func(*pace.Reports) {}
	// crowd puts n others under way.
	crowd := func(n int) func(*pace.Reports) {
		return func(r *pace.Reports) {
			for i := range n {
				r.Wrote(other(i), true)
			}
		}
	}
	tests := []struct {
		name  string
		steps []step
	}{{
		name:  "what was never reported on may be at once",
		steps: []step{{0, nothing, 0, "never"}},
	}, {
		name: "a window passes between two reports",
		steps: []step{
			{0, wrote(vanilla, true), window, "just written"},
			{window / 2, nothing, window / 2, "half of it"},
			{window, nothing, 0, "all of it"},
			{10 * window, nothing, 0, "long after"},
			{10 * window, wrote(vanilla, true), window, "written again"},
		},
	}, {
		name: "an urgent report in between begins another window",
		steps: []step{
			{0, wrote(vanilla, true), window, "written"},
			{window / 2, wrote(vanilla, true), window, "written before it was due"},
		},
	}, {
		name: "what has come to an end has its window, too",
		steps: []step{
			{0, wrote(vanilla, false), window, "written"},
			{window, nothing, 0, "a window later"},
		},
	}, {
		name: "what is gone is forgotten",
		steps: []step{
			{0, wrote(vanilla, true), window, "written"},
			{0, func(r *pace.Reports) { r.Forget(vanilla) }, 0, "forgotten"},
			{0, func(r *pace.Reports) { r.Forget(vanilla) }, 0, "forgotten twice"},
		},
	}, {
		name: "few others make no difference",
		steps: []step{
			{0, crowd(3), 0, "others"},
			{0, wrote(vanilla, true), window, "written"},
		},
	}, {
		name: "many others do",
		steps: []step{
			{0, crowd(99), 0, "others"},
			{0, wrote(vanilla, true), 50 * time.Second, "written"},
			{time.Second, nothing, 49 * time.Second, "a second later"},
		},
	}, {
		name: "what has come to an end does not wait for others",
		steps: []step{
			{0, crowd(99), 0, "others"},
			{0, wrote(vanilla, false), window, "written"},
		},
	}, {
		name: "others that came to an end do not count",
		steps: []step{
			{0, crowd(99), 0, "others"},
			{0, func(r *pace.Reports) {
				for i := range 99 {
					r.Wrote(other(i), false)
				}
			}, 0, "they came to an end"},
			{0, wrote(vanilla, true), window, "written"},
		},
	}, {
		name: "others that are gone do not count",
		steps: []step{
			{0, crowd(99), 0, "others"},
			{0, func(r *pace.Reports) {
				for i := range 99 {
					r.Forget(other(i))
				}
			}, 0, "they are gone"},
			{0, wrote(vanilla, true), window, "written"},
		},
	}, {
		name: "others that come later move it away",
		steps: []step{
			{0, wrote(vanilla, true), window, "written"},
			{0, crowd(9), 5 * time.Second, "others"},
			{0, crowd(19), 10 * time.Second, "more of them"},
		},
	}, {
		name: "others that end do not bring it closer",
		steps: []step{
			{0, crowd(9), 0, "others"},
			{0, wrote(vanilla, true), 5 * time.Second, "written"},
			{time.Second, func(r *pace.Reports) { r.Forget(other(1)); r.Wrote(other(2), false) }, 4 * time.Second, "some end"},
		},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, clock := newReports()
			for _, s := range tt.steps {
				clock.SetTime(begin.Add(s.at))
				s.do(r)
				if got := r.Due(vanilla); got != s.wantDue {
					t.Errorf("after %v, %s: due in %v, want %v", s.at, s.describe, got, s.wantDue)
				}
			}
		})
	}
}

func TestNoWindow(t *testing.T) {
	r := pace.New(0, clocktesting.NewFakePassiveClock(begin))
	r.Wrote(vanilla, false)
	if due := r.Due(vanilla); due != 0 {
		t.Errorf("due in %v, want at once", due)
	}
}

// Whoever waits until a report is due need not begin to wait again because
// others are done; and no report on what is under way comes within a window.
func TestDueNeverComesCloser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, clock := newReports()
		promised := map[cache.ObjectName]time.Time{}
		last := map[cache.ObjectName]time.Time{}
		elapsed := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := other(rapid.IntRange(0, 7).Draw(t, "object"))
			now := begin.Add(elapsed)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				r.Wrote(name, rapid.Bool().Draw(t, "under way"))
				delete(promised, name)
				last[name] = now
			case 1:
				r.Forget(name)
				delete(promised, name)
				delete(last, name)
			case 2:
				elapsed += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
				clock.SetTime(begin.Add(elapsed))
			case 3:
				due := now.Add(r.Due(name))
				if due.Before(promised[name]) {
					t.Fatalf("due at %v, promised was %v", due.Sub(begin), promised[name].Sub(begin))
				}
				if at, ok := last[name]; ok && due.Before(at.Add(window)) {
					t.Fatalf("due at %v, and the last was at %v", due.Sub(begin), at.Sub(begin))
				}
				if due.After(now) {
					promised[name] = due
				}
			}
		}
	})
}

// All reports on objects under way together stay below a rate.
func TestManyTogetherStayBelowARate(t *testing.T) {
	r, clock := newReports()
	const objects = 200
	for i := range objects {
		r.Wrote(other(i), true)
	}
	writes := 0
	const seconds = 1000
	for second := range seconds {
		clock.SetTime(begin.Add(time.Duration(second) * time.Second))
		for i := range objects {
			if r.Due(other(i)) == 0 {
				r.Wrote(other(i), true)
				writes++
			}
		}
	}
	if writes > 2*seconds || writes < seconds {
		t.Errorf("%d writes in %d seconds, want up to two a second", writes, seconds)
	}
}

func TestManyAtTheSameTime(t *testing.T) {
	r, _ := newReports()
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for i := range 200 {
				name := other((worker + i) % 5)
				r.Wrote(name, i%2 == 0)
				r.Due(name)
				if i%7 == 0 {
					r.Forget(name)
				}
			}
		})
	}
	running.Wait()
	for i := range 5 {
		r.Forget(other(i))
	}
	// Nobody is counted who is not there.
	r.Wrote(vanilla, true)
	if due := r.Due(vanilla); due != window {
		t.Errorf("due in %v, want %v", due, window)
	}
}
