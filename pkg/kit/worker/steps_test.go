package worker_test

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// epoch is when the time of a synctest bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// begun is the beginning of a sync.
type begun struct {
	Object, At string
}

// calls are what is called on a loop, and what its syncs return. Their times of call differ
// by microseconds, and all else takes milliseconds, so that no two things happen at
// the same moment.
type calls struct {
	on      []call
	scripts map[string][]ending // by object; all further syncs succeed
}

type call struct {
	at     time.Duration // since the epoch
	object string
	what   string
	after  time.Duration
}

func drawCalls(t *rapid.T) calls {
	ms := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 5 * time.Millisecond, 300 * time.Millisecond, time.Second, time.Minute})
	objects := rapid.SampledFrom([]string{"a", "b", "c"})
	c := calls{scripts: map[string][]ending{}}
	var at time.Duration
	for i := range rapid.IntRange(1, 20).Draw(t, "calls") {
		at += ms.Draw(t, "pause")
		c.on = append(c.on, call{
			at:     at + time.Duration(i)*time.Microsecond,
			object: objects.Draw(t, "object"),
			what:   rapid.SampledFrom([]string{"after", "urgent"}).Draw(t, "what"),
			after:  ms.Draw(t, "after"),
		})
	}
	for _, object := range []string{"a", "b", "c"} {
		c.scripts[object] = rapid.SliceOfN(rapid.SampledFrom(endings), 0, 20).Draw(t, "script")
	}
	return c
}

func (c call) make(l *worker.Loop) {
	name := cache.NewObjectName("default", c.object)
	switch c.what {
	case "after":
		l.AddAfter(name, c.after)
	case "urgent":
		l.AddUrgent(name)
	}
}

// loop returns a loop that plays the scripts, and adds each sync to the journal.
func (c calls) loop(clock clock.WithTicker, journal *[]begun, done map[string]int) *worker.Loop {
	return worker.New("test", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
		*journal = append(*journal, begun{name.Name, clock.Since(epoch).String()})
		n := done[name.Name]
		done[name.Name]++
		if n >= len(c.scripts[name.Name]) {
			return 0, nil
		}
		return c.scripts[name.Name][n].sync()
	}, worker.WithClock(clock))
}

func (c calls) run(t *testing.T) (journal []begun) {
	l := c.loop(clock.RealClock{}, &journal, map[string]int{})
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- l.Run(ctx, 1) }()
	synctest.Wait()
	for _, on := range c.on {
		time.Sleep(time.Until(epoch.Add(on.at)))
		on.make(l)
	}
	time.Sleep(time.Hour)
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	return journal
}

// step takes all steps. Before each of them, it hands over to a new loop if it draws that.
func (c calls) step(t *rapid.T) (journal []begun) {
	clock, done := clocktesting.NewFakeClock(epoch), map[string]int{}
	renew := func() (*worker.Loop, *worker.Steps) {
		l := c.loop(clock, &journal, done)
		s, err := l.Steps(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l, s
	}
	l, s := renew()
	on := c.on
	for {
		if rapid.Bool().Draw(t, "restored") {
			state := toJSON(t, s)
			l, s = renew()
			fromJSON(t, s, state)
			if got := toJSON(t, s); got != state {
				t.Fatalf("restored %s, got %s", state, got)
			}
		}
		next, ok := s.Next()
		switch _, isDue := s.Due(); {
		case isDue:
			s.Sync()
		case len(on) > 0 && (!ok || epoch.Add(on[0].at).Before(next)):
			clock.SetTime(epoch.Add(on[0].at))
			on[0].make(l)
			on = on[1:]
		case ok:
			clock.SetTime(next)
		default:
			return journal
		}
	}
}

func toJSON(t rapid.TB, s *worker.Steps) string {
	t.Helper()
	text, err := json.Marshal(s.State())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func fromJSON(t rapid.TB, s *worker.Steps, text string) {
	t.Helper()
	var state worker.StepsState
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	s.SetState(state)
}

func TestStepsSyncWhatRunSyncs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCalls(rt)
		var want []begun
		synctest.Test(t, func(t *testing.T) { want = c.run(t) })
		if got := c.step(rt); !slices.Equal(want, got) {
			rt.Fatalf("Run synced %v, but Steps synced %v", want, got)
		}
	})
}

// The delays are those of a loop that runs: they double, stop growing, and start afresh.
func TestStepsBackOffLikeClientGo(t *testing.T) {
	c := calls{on: []call{{object: "a", what: "after"}}, scripts: map[string][]ending{}}
	named := func(name string) ending {
		return endings[slices.IndexFunc(endings, func(e ending) bool { return e.name == name })]
	}
	for range 30 {
		c.scripts["a"] = append(c.scripts["a"], named("failure"))
	}
	c.scripts["a"] = append(c.scripts["a"], named("look again"), named("failure"), named("failure"))
	var want []begun
	synctest.Test(t, func(t *testing.T) { want = c.run(t) })
	rapid.Check(t, func(rt *rapid.T) {
		if got := c.step(rt); !slices.Equal(want, got) {
			rt.Fatalf("Run synced %v, but Steps synced %v", want, got)
		}
	})
}

func TestStepsTakeWhatIsDueInOrderOfTimeAndName(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch)
	var synced []string
	l := worker.New("test", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
		synced = append(synced, name.Name)
		return 0, nil
	}, worker.WithClock(clock), worker.WithKeys(slices.Values([]cache.ObjectName{vanilla, chocolate})))
	s, err := l.Steps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Feed()
	for i, name := range []string{"d", "c", "b", "a"} {
		l.AddAfter(cache.NewObjectName("", name), time.Second-time.Duration(i/2))
	}
	clock.Step(time.Second)
	l.Add(cache.NewObjectName("", "0"))
	for range 8 {
		s.Sync()
	}
	equal(t, "syncs", []string{"vanilla", "chocolate", "a", "b", "c", "d", "0"}, synced)
	if err := l.Run(t.Context(), 1); err == nil {
		t.Error("a loop that was started can be run")
	}
	if _, err := l.Steps(t.Context()); err == nil {
		t.Error("a loop that was started can be started again")
	}
}

// A test may end a sync in the middle, and go back to what was before.
func TestStepsMayAbandonASync(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch)
	asked, abandon := make(chan struct{}), make(chan bool)
	l := worker.New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
		asked <- struct{}{}
		if <-abandon {
			runtime.Goexit()
		}
		return 0, nil
	}, worker.WithClock(clock))
	s, err := l.Steps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sync := func() (over chan struct{}) {
		over = make(chan struct{})
		go func() {
			defer close(over)
			s.Sync()
		}()
		<-asked
		return over
	}
	l.Add(vanilla)
	l.Add(chocolate)
	before := toJSON(t, s)
	equal(t, "before", `{"ready":["default/vanilla","default/chocolate"]}`, before)

	over := sync()
	l.AddUrgent(vanilla)
	l.AddAfter(chocolate, time.Minute)
	equal(t, "while it runs", `{"ready":["default/chocolate"],"processing":["default/vanilla"],"again":["default/vanilla"],`+
		`"delayed":{"default/chocolate":"2000-01-01T00:01:00Z"},`+
		`"running":{"default/vanilla":{"since":"2000-01-01T00:00:00Z","urgent":true}}}`, toJSON(t, s))
	abandon <- true
	<-over
	fromJSON(t, s, before)
	equal(t, "restored", before, toJSON(t, s))

	over = sync()
	l.Add(vanilla)
	abandon <- false
	<-over
	clock.Step(2 * time.Second)
	equal(t, "in the end", `{"ready":["default/chocolate","default/vanilla"]}`, toJSON(t, s))
}

// A hold and a back-off that no longer have an effect make no difference.
func TestStepsLeaveOutWhatIsOver(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch)
	err := throttled(1)
	l := worker.New("test", func(context.Context, cache.ObjectName) (time.Duration, error) { return 0, err }, worker.WithClock(clock))
	s, startErr := l.Steps(t.Context())
	if startErr != nil {
		t.Fatal(startErr)
	}
	for range 9 {
		l.AddUrgent(vanilla)
		clock.Step(time.Minute)
		s.Sync()
	}
	clock.Step(time.Second)
	equal(t, "after the server's time",
		`{"delayed":{"default/vanilla":"2000-01-01T00:09:01.28Z"},"failures":{"default/vanilla":9},"held":{"default/vanilla":{"until":"2000-01-01T00:09:01.28Z"}}}`,
		toJSON(t, s))
	clock.Step(time.Second)
	equal(t, "after the hold", `{"ready":["default/vanilla"],"failures":{"default/vanilla":9}}`, toJSON(t, s))
	err = nil
	s.Sync()
	equal(t, "after a success", `{}`, toJSON(t, s))
}
