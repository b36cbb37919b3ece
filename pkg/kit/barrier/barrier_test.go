package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/barrier"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// await begins a term, and returns a function that reports whether the barrier is open.
func await(ctx context.Context, t testing.TB, s *server, stores ...cache.Store) (isOver func() bool) {
	t.Helper()
	var caches []barrier.Cache
	for _, store := range stores {
		caches = append(caches, barrier.Cache{GroupVersionResource: resource, Store: store})
	}
	over := make(chan error, 1)
	client := s.client(t)
	go func() { over <- barrier.Await(ctx, client, clock.RealClock{}, caches...) }()
	synctest.Wait()
	return func() bool {
		select {
		case err := <-over:
			if !errors.Is(err, context.Cause(ctx)) {
				t.Errorf("Await: %v, want %v", err, context.Cause(ctx))
			}
			over <- err
			return true
		default:
			return false
		}
	}
}

func equal[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestAwait plays the stories in testdata/await.txt. Each line gives the changes that the
// cache has seen, those that came since, and what the API server cannot do. "+a" creates an
// object, "*a" changes it, "-a" deletes it, and "." changes another resource. The output
// has the barrier's requests, and when it opens: after some time, or after some of the
// changes have reached the cache.
func TestAwait(t *testing.T) {
	datadriven.RunTest(t, "testdata/await.txt", func(t *testing.T, d *datadriven.TestData) string {
		var seen, since string
		d.ScanArgs(t, "seen", &seen)
		if d.HasArg("since") {
			d.ScanArgs(t, "since", &since)
		}
		s := &server{hasBookmarks: !d.HasArg("no-bookmarks")}
		var out strings.Builder
		synctest.Test(t, func(t *testing.T) {
			s.do(strings.Split(seen, ",")...)
			f := s.follow(t, s.revision())
			if since != "" {
				s.do(strings.Split(since, ",")...)
			}
			if d.HasArg("no-history") {
				s.oldest = s.revision()
			}
			opens := opening(t, f, await(t.Context(), t, s, f))
			for _, request := range s.requests {
				fmt.Fprintln(&out, request)
			}
			fmt.Fprintln(&out, opens)
		})
		return out.String()
	})
}

// opening waits until the barrier is open, and returns when that was.
func opening(t *testing.T, f *follower, isOver func() bool) string {
	t.Helper()
	const step = 100 * time.Millisecond
	for began := time.Now(); time.Since(began) < time.Hour; kittest.Pass(step) {
		if isOver() {
			return "opens after " + time.Since(began).String()
		}
	}
	missing := 0
	for ; !isOver(); missing++ {
		if err := f.next(); err != nil {
			t.Fatal(err)
		}
		kittest.Pass(time.Second)
	}
	return fmt.Sprintf("opens when the cache has seen %d more", missing)
}

func TestEveryCacheIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{hasBookmarks: true}
		s.do("+a")
		behind := s.follow(t, 1)
		s.do("*a")
		isOver := await(t.Context(), t, s, s.follow(t, 2), behind)
		kittest.Pass(time.Hour)
		equal(t, "over with one of two", false, isOver())
		if err := behind.next(); err != nil {
			t.Fatal(err)
		}
		kittest.Pass(time.Second)
		equal(t, "over with both", true, isOver())
		equal(t, "requests", []string{"list 1", "list 1", "watch 1"}, slices.Sorted(slices.Values(s.requests)))
	})
}

// What others have changed, outside of what the cache holds, must not be waited for.
func TestRequestsAskForWhatTheCacheHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.do("+a", "*a")
		f := s.follow(t, 1)
		s.oldest = 2 // so that all objects are listed, too
		held := barrier.Cache{GroupVersionResource: resource, Namespace: "default", Selector: "app=one", Fields: "metadata.name=a", Store: f}
		go func() { _ = barrier.Await(t.Context(), s.client(t), clock.RealClock{}, held) }()
		kittest.Pass(time.Minute)
		equal(t, "requests", []string{"list 1", "watch 1", "list"}, s.requests)
		const all = "/apis/example.com/v1alpha1/namespaces/default/gadgets app=one metadata.name=a"
		equal(t, "what they ask for", []string{all, all, all}, s.selected)
		if err := f.next(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLogNamesTheCacheThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0), ktesting.BufferLogs(true)))
		s := &server{hasBookmarks: true}
		s.do("+a")
		f := s.follow(t, 1)
		s.do("*a")
		isOver := await(klog.NewContext(t.Context(), logger), t, s, f, s.follow(t, 2))
		log := logger.GetSink().(ktesting.Underlier).GetBuffer()
		kittest.Pass(2*time.Second - time.Millisecond)
		equal(t, "log within two seconds", "", log.String())
		kittest.Pass(time.Hour)
		equal(t, "log", "INFO Waiting for the cache to catch up with the API server resource=\"gadgets.example.com\" namespace=\"\" cacheAt=\"1\"\n", log.String())
		if err := f.next(); err != nil {
			t.Fatal(err)
		}
		kittest.Pass(time.Second)
		equal(t, "over", true, isOver())
	})
}

func TestRetryAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0), ktesting.BufferLogs(true)))
		s := &server{hasBookmarks: true, failure: errors.New("melted")}
		s.do("+a")
		isOver := await(klog.NewContext(t.Context(), logger), t, s, s.follow(t, 1))
		kittest.Pass(time.Minute)
		equal(t, "over", false, isOver())
		s.fail(nil)
		kittest.Pass(time.Second)
		equal(t, "over once it answers", true, isOver())
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		equal(t, "complaints", 1, strings.Count(log, "Cannot find out what the API server has"))
	})
}

func TestWaitEndsWithTheTerm(t *testing.T) {
	for name, changes := range map[string][]string{
		"for a cache":        {"*a"},
		"for a bookmark":     {"."},
		"for the API server": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.do("+a")
				f := s.follow(t, 1)
				s.do(changes...)
				s.do(".")
				if changes == nil {
					s.failure = errors.New("melted")
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				isOver := await(ctx, t, s, f)
				kittest.Pass(500 * time.Millisecond)
				equal(t, "over", false, isOver())
				cancel(errors.New("the lease is lost"))
				synctest.Wait()
				equal(t, "over with the term", true, isOver())
			})
		})
	}
}

// Whatever happened before, and whatever happens meanwhile, the barrier opens when the
// cache lacks nothing of what was stored before, and not earlier.
func TestOpensExactlyWhenTheCacheIsUpToDate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "."}), 1, 30).Draw(rt, "changes of")
		isGone := rapid.SliceOfN(rapid.Bool(), len(names), len(names)).Draw(rt, "is gone")
		known := rapid.IntRange(1, len(names)).Draw(rt, "of which happen before")
		seen := rapid.IntRange(1, known).Draw(rt, "of which the cache has seen")
		s := &server{hasBookmarks: rapid.Bool().Draw(rt, "has bookmarks")}

		var changes []string
		exists := map[string]bool{}
		for i, name := range names {
			kind := "*"
			switch {
			case name == ".":
				kind, name = ".", ""
			case !exists[name]:
				kind, exists[name] = "+", true
			case isGone[i]:
				kind, exists[name] = "-", false
			}
			changes = append(changes, kind+name)
		}

		synctest.Test(t, func(t *testing.T) {
			s.do(changes[:known]...)
			f := s.follow(t, seen)
			misses := func() bool {
				return f.at < known && slices.ContainsFunc(changes[f.at:known], func(c string) bool { return c != "." })
			}
			// Without bookmarks, the barrier cannot know more.
			differs := func() bool { return !cmp.Equal(s.objects(min(f.at, known)), s.objects(known)) }
			isOver := await(t.Context(), t, s, f)
			s.do(changes[known:]...)
			kittest.Pass(20 * time.Second) // enough for all that it can ask
			for ; misses(); kittest.Pass(time.Second) {
				switch {
				case !isOver():
				case s.hasBookmarks || differs():
					rt.Fatalf("went on at revision %d of %d, although changes are missing", f.at, known)
				default:
					return // at a state that was the same before, and will be again
				}
				if err := f.next(); err != nil {
					t.Fatal(err)
				}
			}
			if !isOver() {
				rt.Fatalf("still waits at revision %d of %d, although nothing is missing", f.at, known)
			}
		})
	})
}
