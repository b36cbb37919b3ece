package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

var (
	vanilla   = cache.NewObjectName("default", "vanilla")
	chocolate = cache.NewObjectName("default", "chocolate")

	errMelted = errors.New("melted")
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a
	// synctest bubble's clock is decades away from the one outside.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{keepReport}
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// journal records what a loop does.
type journal struct {
	begin time.Time

	mu      sync.Mutex
	starts  []time.Duration // of each sync, since begin
	results []worker.Result
	took    []time.Duration
	reports []string
}

type journalKey struct{}

func keepReport(ctx context.Context, err error, msg string, keysAndValues ...any) {
	if j, ok := ctx.Value(journalKey{}).(*journal); ok {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.reports = append(j.reports, fmt.Sprintf("%s: %v %v", msg, err, keysAndValues))
	}
}

func (j *journal) observe(o worker.Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.results = append(j.results, o.Result)
	j.took = append(j.took, o.Took)
}

func (j *journal) started() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.starts = append(j.starts, time.Since(j.begin))
}

// run starts a loop in the current bubble; it stops with the test.
func run(t *testing.T, workers int, sync worker.Sync, opts ...worker.Option) (*worker.Loop, *journal) {
	j := &journal{begin: time.Now()}
	l := worker.New("test", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
		j.started()
		return sync(ctx, name)
	}, append(opts, worker.WithObserver(j.observe))...)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), journalKey{}, j))
	stopped := make(chan error, 1)
	go func() { stopped <- l.Run(ctx, workers) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return l, j
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func conflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "gadgets"}, "vanilla", errMelted)
}

func throttled(seconds int) error {
	return apierrors.NewTooManyRequests("slow down", seconds)
}

func unavailable(seconds int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusServiceUnavailable,
		Reason:  metav1.StatusReasonServiceUnavailable,
		Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
	}}
}

// Each case is one object whose first sync ends as given and whose later ones
// succeed. The loop is watched for an hour.
func TestWhatFollowsASync(t *testing.T) {
	const firstRetry = 5 * time.Millisecond
	tests := []struct {
		name        string
		again       time.Duration
		err         error
		wantStarts  []time.Duration
		wantResult  worker.Result
		wantReports []string
	}{{
		name:       "a success is left alone",
		wantStarts: []time.Duration{0},
		wantResult: worker.Synced,
	}, {
		name:       "a success can ask for another look",
		again:      time.Minute,
		wantStarts: []time.Duration{0, time.Minute},
		wantResult: worker.Synced,
	}, {
		name:        "a terminal error is reported once and waits for a change",
		err:         worker.Terminal(errMelted),
		wantStarts:  []time.Duration{0},
		wantResult:  worker.GaveUp,
		wantReports: []string{"Gave up until the next change: melted [next 0s]"},
	}, {
		name:        "a terminal error can ask for another look",
		again:       time.Minute,
		err:         worker.Terminal(errMelted),
		wantStarts:  []time.Duration{0, time.Minute},
		wantResult:  worker.GaveUp,
		wantReports: []string{"Gave up for now: melted [next 1m0s]"},
	}, {
		name:        "a wrapped terminal error is terminal",
		err:         fmt.Errorf("scooping: %w", worker.Terminal(errMelted)),
		wantStarts:  []time.Duration{0},
		wantResult:  worker.GaveUp,
		wantReports: []string{"Gave up until the next change: scooping: melted [next 0s]"},
	}, {
		name:       "not yet is retried without a report",
		err:        worker.Requeue(errMelted),
		wantStarts: []time.Duration{0, firstRetry},
		wantResult: worker.Deferred,
	}, {
		name:       "wrapped not yet is still not yet",
		err:        fmt.Errorf("scooping: %w", worker.Requeue(errMelted)),
		wantStarts: []time.Duration{0, firstRetry},
		wantResult: worker.Deferred,
	}, {
		name:       "a conflict is retried without a report",
		err:        conflict(),
		wantStarts: []time.Duration{0, firstRetry},
		wantResult: worker.Deferred,
	}, {
		name:       "a wrapped conflict is still a conflict",
		err:        fmt.Errorf("scooping: %w", conflict()),
		wantStarts: []time.Duration{0, firstRetry},
		wantResult: worker.Deferred,
	}, {
		name:        "a conflict called terminal is terminal",
		err:         worker.Terminal(conflict()),
		wantStarts:  []time.Duration{0},
		wantResult:  worker.GaveUp,
		wantReports: []string{"Gave up until the next change: " + conflict().Error() + " [next 0s]"},
	}, {
		name:        "any other error is reported and retried",
		err:         errMelted,
		wantStarts:  []time.Duration{0, firstRetry},
		wantResult:  worker.Failed,
		wantReports: []string{"Sync failed: melted [next 5ms]"},
	}, {
		name:        "an error's retry is the other look that was asked for",
		again:       time.Minute,
		err:         errMelted,
		wantStarts:  []time.Duration{0, firstRetry},
		wantResult:  worker.Failed,
		wantReports: []string{"Sync failed: melted [next 5ms]"},
	}, {
		name:        "a throttled request is retried when the server said",
		err:         throttled(7),
		wantStarts:  []time.Duration{0, 7 * time.Second},
		wantResult:  worker.Failed,
		wantReports: []string{"Sync failed: slow down [next 7s]"},
	}, {
		name:       "an unavailable server is tried again when it said, quietly if so marked",
		err:        worker.Requeue(fmt.Errorf("scooping: %w", unavailable(7))),
		wantStarts: []time.Duration{0, 7 * time.Second},
		wantResult: worker.Deferred,
	}, {
		name:        "the longest of several requested delays counts",
		err:         errors.Join(throttled(7), unavailable(9), throttled(8)),
		wantStarts:  []time.Duration{0, 9 * time.Second},
		wantResult:  worker.Failed,
		wantReports: []string{"Sync failed: " + errors.Join(throttled(7), unavailable(9), throttled(8)).Error() + " [next 9s]"},
	}, {
		name:        "terminal joined with a plain error is retried and reported",
		err:         errors.Join(worker.Terminal(errMelted), errMelted),
		wantStarts:  []time.Duration{0, firstRetry},
		wantResult:  worker.Failed,
		wantReports: []string{"Sync failed: melted\nmelted [next 5ms]"},
	}, {
		name:       "terminal joined with not yet is retried quietly",
		err:        errors.Join(worker.Requeue(errMelted), worker.Terminal(errMelted)),
		wantStarts: []time.Duration{0, firstRetry},
		wantResult: worker.Deferred,
	}, {
		name:        "not yet joined with a plain error is retried and reported",
		err:         fmt.Errorf("scooping: %w", errors.Join(worker.Requeue(errMelted), errMelted, worker.Requeue(errMelted))),
		wantStarts:  []time.Duration{0, firstRetry},
		wantResult:  worker.Failed,
		wantReports: []string{"Sync failed: scooping: melted\nmelted\nmelted [next 5ms]"},
	}, {
		name:        "nothing but terminal errors is terminal",
		err:         utilerrors.NewAggregate([]error{worker.Terminal(errMelted), worker.Terminal(errors.New("dropped"))}),
		wantStarts:  []time.Duration{0},
		wantResult:  worker.GaveUp,
		wantReports: []string{"Gave up until the next change: [melted, dropped] [next 0s]"},
	}, {
		name:        "the outermost mark counts",
		err:         worker.Terminal(errors.Join(worker.Requeue(errMelted), errMelted)),
		wantStarts:  []time.Duration{0},
		wantResult:  worker.GaveUp,
		wantReports: []string{"Gave up until the next change: melted\nmelted [next 0s]"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
					if !first {
						return 0, nil
					}
					first = false
					return tt.again, tt.err
				})
				l.Add(vanilla)
				kittest.Pass(time.Hour)

				equal(t, "starts of syncs", tt.wantStarts, got.starts)
				equal(t, "result of the first sync", tt.wantResult, got.results[0])
				equal(t, "reports", tt.wantReports, got.reports)
			})
		})
	}
}

func TestOneObjectDoesNotStopAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy int
		l, got := run(t, 1, func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			if name == vanilla {
				panic("poisoned")
			}
			healthy++
			return 0, nil
		})
		l.Add(vanilla)
		l.Add(chocolate)
		kittest.Pass(8 * time.Millisecond) // vanilla: 0 and 5 ms

		equal(t, "healthy syncs", 1, healthy)
		equal(t, "results", []worker.Result{worker.Panicked, worker.Synced, worker.Panicked}, got.results)
		equal(t, "number of reports", 2, len(got.reports))
		for _, report := range got.reports {
			if !strings.HasPrefix(report, "Sync panicked: panic: poisoned\n") || !strings.Contains(report, t.Name()) {
				t.Errorf("the report lacks the panic or its stack:\n%s", report)
			}
		}
		equal(t, "busy workers", 0, l.Busy())
	})
}

func TestBackOffDoublesUpToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) { return 0, errMelted })
		l.Add(vanilla)
		kittest.Pass(24 * time.Hour)

		wantPause := 5 * time.Millisecond
		for i := range len(got.starts) - 1 {
			equal(t, fmt.Sprintf("pause after failure %d", i+1), wantPause, got.starts[i+1]-got.starts[i])
			wantPause = min(2*wantPause, time.Minute)
		}
		if len(got.starts) < 24*60/5 {
			t.Errorf("only %d attempts in a day", len(got.starts))
		}
	})
}

func TestBackOffStartsAfreshOnceItHasEnded(t *testing.T) {
	for name, end := range map[string]error{
		"with a success":        nil,
		"with a terminal error": worker.Terminal(errMelted),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				results := []error{errMelted, errMelted, end, errMelted, nil}
				l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
					err := results[0]
					results = results[1:]
					return 0, err
				})
				l.Add(vanilla)
				kittest.Pass(time.Second)
				l.Add(vanilla)
				kittest.Pass(time.Second)

				equal(t, "starts of syncs", []time.Duration{
					0, 5 * time.Millisecond, 15 * time.Millisecond,
					time.Second, time.Second + 5*time.Millisecond,
				}, got.starts)
			})
		})
	}
}

// The first sync ends as given, the second succeeds; something changes 2 ms after
// the first.
func TestWhatEndsAHold(t *testing.T) {
	add, addAfter, addUrgent := (*worker.Loop).Add, func(l *worker.Loop, name cache.ObjectName) { l.AddAfter(name, time.Millisecond) }, (*worker.Loop).AddUrgent
	const firstRetry = 5 * time.Millisecond
	tests := []struct {
		name       string
		err        error // nil panics
		change     func(*worker.Loop, cache.ObjectName)
		wantSecond time.Duration
	}{
		{"a change does not end the back-off of a failure", errMelted, add, firstRetry},
		{"nor does a change that may wait", errMelted, addAfter, firstRetry},
		{"an urgent change does", errMelted, addUrgent, 2 * time.Millisecond},
		{"a change does not end the back-off of a panic", nil, add, firstRetry},
		{"an urgent change ends that, too", nil, addUrgent, 2 * time.Millisecond},
		{"a change is what was waited for", worker.Requeue(errMelted), add, 2 * time.Millisecond},
		{"and so it is after a conflict", conflict(), add, 2 * time.Millisecond},
		{"a change does not end what the server asked for", throttled(7), add, 7 * time.Second},
		{"nor does an urgent change", throttled(7), addUrgent, 7 * time.Second},
		{"nor when it was waited for", worker.Requeue(unavailable(7)), addUrgent, 7 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
					switch {
					case !first:
						return 0, nil
					case tt.err == nil:
						first = false
						panic("poisoned")
					}
					first = false
					return 0, tt.err
				})
				l.Add(vanilla)
				kittest.Pass(2 * time.Millisecond)
				tt.change(l, vanilla)
				kittest.Pass(time.Hour)
				equal(t, "start of the second sync", tt.wantSecond, got.starts[1])
			})
		})
	}
}

// Back-off and Retry-After of one failure end at different times.
func TestAnUrgentChangeEndsOnlyTheRestOfAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := throttled(1)
		l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
			defer func() { err = nil }()
			return 0, err
		}, worker.WithRateLimiter(workqueue.NewTypedItemFastSlowRateLimiter[cache.ObjectName](time.Minute, time.Minute, 1)))
		l.Add(vanilla)
		kittest.Pass(time.Millisecond)
		l.AddUrgent(vanilla)
		kittest.Pass(30 * time.Second)
		equal(t, "starts of syncs", []time.Duration{0, time.Second}, got.starts)
	})
}

// An urgent change during a sync may come too late for that sync.
func TestUrgentChangeDuringAFailingSyncIsSyncedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Second)
			return 0, errMelted
		}, worker.WithRateLimiter(workqueue.NewTypedItemFastSlowRateLimiter[cache.ObjectName](time.Minute, time.Minute, 1)))
		l.Add(vanilla)
		kittest.Pass(500 * time.Millisecond)
		l.AddUrgent(vanilla)
		kittest.Pass(10 * time.Second)
		equal(t, "starts of syncs", []time.Duration{0, time.Second}, got.starts)
	})
}

// If the failure of an object is reported in its status, the report itself changes the
// object.
func TestReportOfAFailureDoesNotEndItsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *worker.Loop
		l, got := run(t, 1, func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			time.AfterFunc(time.Millisecond, func() { l.Add(name) })
			return 0, errMelted
		})
		l.Add(vanilla)
		kittest.Pass(time.Minute)
		// 5 ms, doubled each time: 13 retries take 41 s, one more would take 82.
		equal(t, "syncs in a minute", 14, len(got.starts))
	})
}

func TestManyAdditionsBecomeOneSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got := run(t, 4, func(context.Context, cache.ObjectName) (time.Duration, error) { return 0, nil })
		for range 100 {
			l.AddAfter(vanilla, time.Second)
			kittest.Pass(time.Millisecond)
		}
		l.AddAfter(vanilla, 500*time.Millisecond)
		kittest.Pass(time.Hour)
		equal(t, "starts of syncs", []time.Duration{600 * time.Millisecond}, got.starts)
	})
}

func TestChangeDuringASyncIsSyncedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got := run(t, 4, func(context.Context, cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Second)
			return 0, nil
		})
		l.Add(vanilla)
		kittest.Pass(500 * time.Millisecond)
		l.Add(vanilla)
		l.Add(vanilla)
		kittest.Pass(time.Hour)
		equal(t, "starts of syncs", []time.Duration{0, time.Second}, got.starts)
	})
}

// Keys come from caches, so earlier additions are not needed, and the caches are read when
// they are ready, and not before.
func TestRunBeginsWithItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		gadgets, read := newChecker("gadgets"), make(chan struct{})
		keys := func(yield func(cache.ObjectName) bool) {
			defer close(read)
			select {
			case <-gadgets.done:
			default:
				t.Error("the keys were read before the cache was ready")
			}
			_ = yield(vanilla) && yield(chocolate) && yield(vanilla)
		}
		l := worker.New("test", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			<-read // or else vanilla may be synced before it comes a second time
			got = append(got, name.Name)
			return 0, nil
		}, worker.WithKeys(keys))
		l.Add(cache.NewObjectName("default", "long gone"))
		l.AddAfter(cache.NewObjectName("default", "long gone"), time.Hour)
		l.WaitFor(gadgets)
		go func() { _ = l.Run(t.Context(), 1) }()
		synctest.Wait()
		l.Add(cache.NewObjectName("default", "just came"))
		close(gadgets.done)
		kittest.Pass(2 * time.Hour)
		equal(t, "syncs", []string{"just came", "vanilla", "chocolate"}, got)
	})
}

// What changes while a loop begins need not wait behind all of its keys, and these need no
// queue that has room for all of them.
func TestRunGoesThroughItsKeysBitByBit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, ahead = 10_000, 1_100
		ctx, cancel := context.WithCancel(t.Context())
		var read, synced, seen atomic.Int64
		keys := func(yield func(cache.ObjectName) bool) {
			for read.Load() < all && yield(cache.NewObjectName("default", fmt.Sprint(read.Load()))) {
				read.Add(1)
			}
		}
		l := worker.New("test", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Millisecond)
			n := synced.Add(1)
			if name == vanilla {
				seen.Store(n)
			}
			if r := read.Load(); r > n+ahead {
				t.Errorf("%d keys are read when %d are synced", r, n)
			}
			return 0, nil
		}, worker.WithKeys(keys))
		stopped := make(chan error, 1)
		go func() { stopped <- l.Run(ctx, 1) }()
		kittest.Pass(100 * time.Millisecond)
		changed := synced.Load()
		l.Add(vanilla)
		kittest.Pass(time.Minute)
		equal(t, "syncs", all+1, synced.Load())
		if n := seen.Load(); n > changed+ahead {
			t.Errorf("what changed after %d syncs was synced after %d", changed, n)
		}
		cancel()
		equal(t, "Run", nil, <-stopped)
	})
}

// A loop that is stopped reads no more keys.
func TestStoppingWhileItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		read := 0
		l := worker.New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Second)
			return 0, nil
		}, worker.WithKeys(func(yield func(cache.ObjectName) bool) {
			for read = 0; yield(cache.NewObjectName("default", fmt.Sprint(read))); read++ {
			}
		}))
		time.AfterFunc(time.Second, cancel)
		equal(t, "Run", nil, l.Run(ctx, 1))
		if read > 1_100 {
			t.Errorf("%d keys were read", read)
		}
	})
}

// A goroutine started by New would outlive the bubble, which synctest refuses.
func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := worker.New("test", nil)
		l.Add(vanilla)
		l.AddAfter(vanilla, time.Second)
		l.AddUrgent(vanilla)
	})
}

// checker is done when its channel is closed.
type checker struct {
	name string
	done chan struct{}
}

func newChecker(name string) checker { return checker{name, make(chan struct{})} }

func (c checker) Name() string          { return c.name }
func (c checker) Done() <-chan struct{} { return c.done }

func TestNothingIsSyncedBeforeTheCachesAreReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs int
		l := worker.New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
			syncs++
			return 0, nil
		})
		gadgets, pods := newChecker("gadgets"), newChecker("pods")
		l.WaitFor(gadgets, pods)
		go func() { _ = l.Run(t.Context(), 2) }()
		synctest.Wait()
		l.Add(vanilla)
		close(gadgets.done)
		kittest.Pass(time.Hour)
		equal(t, "syncs while a cache is not ready", 0, syncs)

		close(pods.done)
		synctest.Wait()
		equal(t, "syncs afterwards", 1, syncs)
	})
}

func TestRunSaysWhichCachesNeverBecameReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		gadgets, pods := newChecker("gadgets"), newChecker("pods")
		close(gadgets.done)
		cancel(errMelted)
		l := worker.New("test", nil)
		l.WaitFor(gadgets, pods)
		err := l.Run(ctx, 1)
		if !errors.Is(err, errMelted) {
			t.Errorf("Run = %v, want it to wrap the context's cause", err)
		}
		equal(t, "error", "running test: stopped before the caches were ready (pods): melted", fmt.Sprint(err))
	})
}

func TestRunRefusesMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := worker.New("test", nil)
		equal(t, "no workers", "running test: 0 workers cannot sync anything", fmt.Sprint(l.Run(ctx, 0)))
		equal(t, "a clean stop", nil, l.Run(ctx, 1))
		equal(t, "a second run", "running test: a loop runs only once", fmt.Sprint(l.Run(ctx, 1)))
	})
}

// A write that is given up may be carried out nevertheless, when someone else already leads.
func TestARunningSyncMayFinishItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var mu sync.Mutex
		ends := map[string]time.Duration{}
		l := worker.New("test", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
			answered := 4 * time.Second
			if name == chocolate {
				answered = time.Hour
			}
			select {
			case <-time.After(answered):
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			ends[name.Name] = time.Since(began)
			return 0, ctx.Err()
		}, worker.WithKeys(slices.Values([]cache.ObjectName{vanilla, chocolate})))
		time.AfterFunc(time.Second, cancel)
		equal(t, "Run", nil, l.Run(ctx, 2))
		equal(t, "ends", map[string]time.Duration{"vanilla": 4 * time.Second, "chocolate": 6 * time.Second}, ends)
	})
}

func TestStoppingWaitsForRunningSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var started, finished []string
		l := worker.New("test", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
			started = append(started, name.Name)
			<-ctx.Done()
			time.Sleep(55 * time.Second) // a slow farewell
			finished = append(finished, name.Name)
			return time.Second, nil
		})
		returned := make(chan error, 1)
		go func() { returned <- l.Run(ctx, 1) }()
		synctest.Wait()
		l.Add(vanilla)
		synctest.Wait()
		l.Add(chocolate)

		cancel()
		kittest.Pass(59 * time.Second)
		select {
		case <-returned:
			t.Fatal("Run returned before its worker did")
		default:
		}
		kittest.Pass(time.Second)
		equal(t, "Run", nil, <-returned)
		l.Add(chocolate)
		l.AddAfter(chocolate, time.Second)
		kittest.Pass(time.Hour)
		equal(t, "started syncs", []string{"vanilla"}, started)
		equal(t, "finished syncs", []string{"vanilla"}, finished)
	})
}

func TestStoppingIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), journalKey{}, j))
		l := worker.New("test", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
			<-ctx.Done()
			if name == vanilla {
				return 0, fmt.Errorf("scooping: %w", ctx.Err())
			}
			return 0, errMelted
		}, worker.WithObserver(j.observe), worker.WithKeys(slices.Values([]cache.ObjectName{vanilla, chocolate})))
		time.AfterFunc(time.Second, cancel)
		equal(t, "Run", nil, l.Run(ctx, 2))
		equal(t, "reports", []string{"Sync failed: melted [next 5ms]"}, j.reports)
	})
}

func TestBusyIsTheLongestRunningSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, 2, func(context.Context, cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Minute)
			return 0, nil
		})
		equal(t, "idle", 0, l.Busy())
		l.Add(vanilla)
		kittest.Pass(20 * time.Second)
		l.Add(chocolate)
		kittest.Pass(30 * time.Second)
		equal(t, "both running", 50*time.Second, l.Busy())
		kittest.Pass(20 * time.Second)
		equal(t, "the younger running", 50*time.Second, l.Busy())
		kittest.Pass(time.Hour)
		equal(t, "idle again", 0, l.Busy())
	})
}

// Retries follow the given rate limiter, and only the given clock: the bubble's stands
// still.
func TestOptionsReplaceWhatTheyName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clocktesting.NewFakeClock(time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC))
		l, got := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
			clock.Step(time.Second)
			return 0, errMelted
		},
			worker.WithClock(clock),
			worker.WithRateLimiter(workqueue.NewTypedItemFastSlowRateLimiter[cache.ObjectName](0, time.Hour, 1)),
		)
		l.Add(vanilla)
		synctest.Wait()
		equal(t, "attempts at once", 2, len(got.starts))
		clock.Step(59 * time.Minute)
		synctest.Wait()
		equal(t, "attempts within the hour", 2, len(got.starts))
		clock.Step(time.Minute)
		synctest.Wait()
		equal(t, "attempts after the hour", 3, len(got.starts))
		equal(t, "time taken", []time.Duration{time.Second, time.Second, time.Second}, got.took)
	})
}

func TestSyncLogsTheLoopAndTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(4), ktesting.BufferLogs(true)))
		l := worker.New("gadget", func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			klog.FromContext(ctx).Info("Scooping")
			return 0, worker.Requeue(errMelted)
		})
		go func() { _ = l.Run(klog.NewContext(t.Context(), logger), 1) }()
		synctest.Wait()
		l.Add(vanilla)
		synctest.Wait()

		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		for _, want := range []string{
			`INFO gadget: Scooping object="default/vanilla"`,
			`INFO gadget: Not yet object="default/vanilla" cause="melted" next="5ms"`,
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
	})
}

func TestMarksLeaveTheErrorAsItIs(t *testing.T) {
	for name, mark := range map[string]func(error) error{"Terminal": worker.Terminal, "Requeue": worker.Requeue} {
		t.Run(name, func(t *testing.T) {
			if err := mark(nil); err != nil {
				t.Errorf("marked nil = %v", err)
			}
			err := mark(conflict())
			equal(t, "text", conflict().Error(), err.Error())
			if !apierrors.IsConflict(err) {
				t.Error("a marked conflict is no conflict any more")
			}
		})
	}
}
