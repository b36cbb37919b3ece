package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

var (
	vanilla   = cache.NewObjectName("default", "vanilla")
	chocolate = cache.NewObjectName("default", "chocolate")

	errMelted = errors.New("melted")
)

func TestMain(m *testing.M) {
	// The default handlers also sleep, by a clock that is not the bubble's.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{report}
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// reports is the context key of a *[]string.
type reports struct{}

// report keeps what a loop of one worker reports as an error.
func report(ctx context.Context, err error, msg string, _ ...any) {
	if all, ok := ctx.Value(reports{}).(*[]string); ok {
		*all = append(*all, fmt.Sprintf("%s: %v", msg, err))
	}
}

// run runs a loop, which waits for the handlers, in the current bubble until the test ends. The
// functions return when each sync began, since the start of the loop, and what was reported.
func run(t *testing.T, workers int, do worker.Sync, handlers ...cache.DoneChecker) (loop *worker.Loop, starts func() []time.Duration, reported func() []string) {
	t.Helper()
	var (
		begin = time.Now()
		mu    sync.Mutex
		times []time.Duration
		all   []string
	)
	loop = worker.New("test", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
		mu.Lock()
		times = append(times, time.Since(begin))
		mu.Unlock()
		return do(ctx, name)
	})
	loop.WaitFor(handlers...)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), reports{}, &all))
	stopped := make(chan error, 1)
	go func() { stopped <- loop.Run(ctx, workers) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return loop, func() []time.Duration { mu.Lock(); defer mu.Unlock(); return times }, func() []string { return all }
}

// pass lets time pass in the bubble, until nothing happens at its end any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
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

func throttled(seconds int) error { return apierrors.NewTooManyRequests("slow down", seconds) }

// The first sync of an object ends as given, and the second succeeds.
func TestWhatFollowsASync(t *testing.T) {
	const firstRetry = 5 * time.Millisecond
	for name, tt := range map[string]struct {
		after   time.Duration
		err     error
		starts  []time.Duration
		reports []string
	}{
		"a success is left alone": {
			starts: []time.Duration{0},
		},
		"a success can ask for another sync": {
			after: time.Minute, starts: []time.Duration{0, time.Minute},
		},
		"no error is no terminal one": {
			err: worker.NoBackoff(nil), starts: []time.Duration{0},
		},
		"no error is not deferred": {
			err: worker.Deferred(nil), starts: []time.Duration{0},
		},
		"a terminal error is reported and left alone": {
			err: worker.NoBackoff(errMelted), starts: []time.Duration{0}, reports: []string{"Sync failed: melted"},
		},
		"a terminal error can ask for another sync": {
			after: time.Minute, err: fmt.Errorf("scooping: %w", worker.NoBackoff(errMelted)),
			starts: []time.Duration{0, time.Minute}, reports: []string{"Sync failed: scooping: melted"},
		},
		"a requeue is not reported": {
			err: fmt.Errorf("scooping: %w", worker.Deferred(errMelted)), starts: []time.Duration{0, firstRetry},
		},
		"a conflict is not reported": {
			err: fmt.Errorf("scooping: %w", conflict()), starts: []time.Duration{0, firstRetry},
		},
		"a terminal conflict is terminal": {
			err: worker.NoBackoff(conflict()), starts: []time.Duration{0}, reports: []string{"Sync failed: " + conflict().Error()},
		},
		"another error is reported, and its retry is not the other sync that was asked for": {
			after: time.Minute, err: errMelted, starts: []time.Duration{0, firstRetry}, reports: []string{"Sync failed: melted"},
		},
		"an error next to a terminal one is retried": {
			err: errors.Join(worker.NoBackoff(errMelted), errMelted), starts: []time.Duration{0, firstRetry}, reports: []string{"Sync failed: melted\nmelted"},
		},
		"a megabyte is not reported": {
			err: worker.NoBackoff(errors.New(strings.Repeat("x", 1<<20))), starts: []time.Duration{0},
			reports: []string{"Sync failed: " + strings.Repeat("x", 8<<10)},
		},
		"a retry waits as long as the API server asks": {
			err: worker.Deferred(throttled(7)), starts: []time.Duration{0, 7 * time.Second},
		},
		"a retry waits for a second if the API server has too many requests and does not say how long": {
			err: worker.Deferred(throttled(0)), starts: []time.Duration{0, time.Second},
		},
		"a webhook that asks for a month gets a minute": {
			err: worker.Deferred(throttled(30 * 24 * 60 * 60)), starts: []time.Duration{0, time.Minute},
		},
		"a conflict next to another error does not hide it": {
			err: errors.Join(conflict(), errMelted), starts: []time.Duration{0, firstRetry}, reports: []string{"Sync failed: " + conflict().Error() + "\nmelted"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				isFirst := true
				l, starts, reported := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
					if !isFirst {
						return 0, nil
					}
					isFirst = false
					return tt.after, tt.err
				})
				l.Add(vanilla)
				pass(time.Hour)
				equal(t, "starts of syncs", tt.starts, starts())
				equal(t, "reports", tt.reports, reported())
			})
		})
	}
}

func TestPanicStaysWithItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced []string
		l, _, reported := run(t, 1, func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			if name == vanilla {
				panic("poisoned")
			}
			synced = append(synced, name.Name)
			return 0, nil
		})
		l.Add(vanilla)
		l.Add(chocolate)
		pass(8 * time.Millisecond) // vanilla at 0 and 5 ms

		equal(t, "syncs", []string{"chocolate"}, synced)
		equal(t, "number of reports", 2, len(reported()))
		for _, report := range reported() {
			if !strings.HasPrefix(report, "Sync failed: panic: poisoned\n") || !strings.Contains(report, t.Name()) {
				t.Errorf("the report lacks the panic or its stack:\n%s", report)
			}
		}
		equal(t, "busy", 0, l.Busy())
	})
}

// Each object has a back-off of its own, which doubles to a minute and ends with a success.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isWell atomic.Bool
		l, starts, _ := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) {
			if isWell.Load() {
				return 0, nil
			}
			return 0, errMelted
		})
		l.Add(vanilla)
		pass(time.Hour)
		failed := starts()
		want := 5 * time.Millisecond
		for i := range len(failed) - 1 {
			equal(t, fmt.Sprintf("pause after failure %d", i+1), want, failed[i+1]-failed[i])
			want = min(2*want, time.Minute)
		}
		l.Add(chocolate)
		pass(6 * time.Millisecond)
		equal(t, "syncs of another object", 2, len(starts())-len(failed))

		isWell.Store(true)
		pass(time.Minute)
		isWell.Store(false)
		before := len(starts())
		l.Add(vanilla)
		pass(6 * time.Millisecond)
		equal(t, "syncs after a success", 2, len(starts())-before)
	})
}

// An object does not wait for thousands in another namespace.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var synced []cache.ObjectName
		l, _, _ := run(t, 1, func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
			synced = append(synced, name)
			time.Sleep(10 * time.Millisecond)
			return 0, nil
		})
		for i := range 3000 {
			l.Add(cache.NewObjectName("busy", strconv.Itoa(i)))
		}
		l.Add(vanilla)
		pass(time.Hour)
		equal(t, "number of syncs", 3001, len(synced))
		if before := slices.Index(synced, vanilla); before > 2 {
			t.Errorf("%d syncs of the other namespace come first", before)
		}
	})
}

// As in every Kubernetes controller: see the package comment.
func TestEventSyncsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, starts, _ := run(t, 1, func(context.Context, cache.ObjectName) (time.Duration, error) { return 0, throttled(7) })
		l.Add(vanilla)
		pass(time.Second)
		l.Add(vanilla)
		synctest.Wait()
		equal(t, "starts of syncs", []time.Duration{0, time.Second}, starts())
	})
}

// synctest refuses a goroutine that outlives the bubble.
func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(*testing.T) { worker.New("test", nil) })
}

// checker is done when its channel is closed.
type checker chan struct{}

func (c checker) Name() string          { return "checker" }
func (c checker) Done() <-chan struct{} { return c }

func TestNothingIsSyncedBeforeTheHandlersHaveSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := make(checker), make(checker)
		l, starts, _ := run(t, 2, func(context.Context, cache.ObjectName) (time.Duration, error) { return 0, nil }, first, second)
		l.Add(vanilla)
		close(first)
		pass(4 * time.Minute)
		close(second)
		synctest.Wait()
		equal(t, "starts of syncs", []time.Duration{4 * time.Minute}, starts())
	})
}

// One cache is never filled: its informer was not started, or may not list. Or Run is told to stop before.
func TestRunEndsIfACacheIsNeverFilled(t *testing.T) {
	for want, after := range map[string]time.Duration{
		"not filled within 5m0s: checker; its informer was not started, cannot list or watch, or a proxy drops the bookmark that ends a streaming list (if so, set KUBE_FEATURE_WatchListClient=false in the environment)": 5 * time.Minute,
		"stopped before the caches were filled: melted": time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, filled := time.Now(), make(checker)
			close(filled)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if after < 5*time.Minute {
				time.AfterFunc(after, func() { cancel(errMelted) })
			}
			l := worker.New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
				t.Error("it syncs")
				return 0, nil
			})
			l.WaitFor(filled, make(checker))
			l.Add(vanilla)
			equal(t, "error", want, fmt.Sprint(l.Run(ctx, 2)))
			equal(t, "duration of Run", after, time.Since(begin))
		})
	}
}

// It delays what follows, such as the release of the Lease, by seconds.
func TestRunDoesNotWaitForASyncThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := worker.New("test", func(context.Context, cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Hour)
			return 0, nil
		})
		var reported []string
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), reports{}, &reported))
		l.Add(vanilla)
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		equal(t, "Run", nil, l.Run(ctx, 2))
		equal(t, "duration of Run", 7*time.Second, time.Since(begin))
		equal(t, "reports", []string{"Stopped without waiting for a sync that ignores the end of its context: still syncing [default/vanilla]"}, reported)
		time.Sleep(time.Hour) // until it ends
	})
}

// A request that is cut off can be carried out nevertheless, when another process leads.
func TestRunWaitsForRunningSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			begin = time.Now()
			mu    sync.Mutex
			ends  = map[string]time.Duration{}
		)
		l := worker.New("test", func(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
			answered := 4 * time.Second
			if name == chocolate {
				answered = time.Minute
			}
			select {
			case <-time.After(answered):
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			ends[name.Name] = time.Since(begin)
			return time.Second, ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() {
			l.Add(cache.NewObjectName("default", "too late"))
			cancel()
		})
		l.Add(vanilla)
		l.Add(chocolate)
		equal(t, "Run", nil, l.Run(ctx, 2))
		equal(t, "duration of Run", 6*time.Second, time.Since(begin))
		l.Add(vanilla)
		l.AddAfter(vanilla, time.Second)
		pass(time.Hour)
		equal(t, "ends of syncs", map[string]time.Duration{"vanilla": 4 * time.Second, "chocolate": 6 * time.Second}, ends)
	})
}

func TestUnansweredSyncEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, starts, reported := run(t, 1, func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		l.Add(vanilla)
		pass(3 * time.Minute)
		equal(t, "starts of syncs", []time.Duration{0, 2*time.Minute + 5*time.Millisecond}, starts())
		equal(t, "reports", []string{"Sync failed: context deadline exceeded"}, reported())
	})
}

func TestBusyIsTheLongestRunningSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := run(t, 2, func(context.Context, cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Minute)
			return 0, nil
		})
		equal(t, "idle", 0, l.Busy())
		l.Add(vanilla)
		pass(20 * time.Second)
		l.Add(chocolate)
		pass(30 * time.Second)
		equal(t, "both running", 50*time.Second, l.Busy())
		pass(20 * time.Second)
		equal(t, "the younger running", 50*time.Second, l.Busy())
		pass(time.Hour)
		equal(t, "idle again", 0, l.Busy())
	})
}
