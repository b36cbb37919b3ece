package barrier_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kit/barrier"
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

// pass lets time pass and everything settle.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func equal[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAwait(t *testing.T) {
	const bookmark = time.Second
	tests := []struct {
		name         string
		before       []string // what the cache has seen
		after        []string // what has happened since
		without      func(*server)
		wantAfter    time.Duration // how long it takes if the cache misses nothing
		wantMissing  int           // changes that it waits for
		wantRequests []string
	}{{
		name:         "nothing has happened anywhere",
		before:       []string{"+a", "+b"},
		wantRequests: []string{"list 1"},
	}, {
		name:         "nothing has happened to the resource",
		before:       []string{"+a", "+b"},
		after:        []string{".", ".", "."},
		wantAfter:    bookmark,
		wantRequests: []string{"list 1", "watch 2"},
	}, {
		name:         "there is nothing",
		before:       []string{"."},
		after:        []string{".", "."},
		wantAfter:    bookmark,
		wantRequests: []string{"list 1", "watch 1"},
	}, {
		name:         "an object is missing",
		before:       []string{"+a"},
		after:        []string{"+b", "."},
		wantMissing:  1,
		wantRequests: []string{"list 1", "watch 1"},
	}, {
		name:         "the last that has happened is missing, so that no bookmark is waited for",
		before:       []string{"+a"},
		after:        []string{".", "+b"},
		wantMissing:  1,
		wantRequests: []string{"list 1", "watch 1"},
	}, {
		name:         "objects have changed",
		before:       []string{"+a", "+b"},
		after:        []string{"*a", "*b", "."},
		wantMissing:  2,
		wantRequests: []string{"list 1", "watch 2"},
	}, {
		name:         "an object is gone",
		before:       []string{"+a", "+b"},
		after:        []string{"-a", "."},
		wantMissing:  1,
		wantRequests: []string{"list 1", "watch 2"},
	}, {
		name:         "an object has come and gone",
		before:       []string{"+a"},
		after:        []string{"+b", "-b", "."},
		wantMissing:  2,
		wantRequests: []string{"list 1", "watch 1"},
	}, {
		name:         "no bookmarks, and nothing has happened to the resource",
		before:       []string{"+a", "+b"},
		after:        []string{".", "."},
		without:      func(s *server) { s.hasBookmarks = false },
		wantAfter:    15 * time.Second,
		wantRequests: []string{"list 1", "watch 2", "watch 2", "watch 2", "watch 2", "watch 2", "list"},
	}, {
		name:         "no bookmarks, and objects have changed",
		before:       []string{"+a", "+b", "+c"},
		after:        []string{"*a", "-c", "."},
		without:      func(s *server) { s.hasBookmarks = false },
		wantMissing:  2,
		wantRequests: []string{"list 1", "watch 3", "watch 5", "watch 5", "watch 5", "watch 5", "list"},
	}, {
		name:         "no bookmarks, and all objects are gone",
		before:       []string{"+a", "+b"},
		after:        []string{"-a", "-b", "."},
		without:      func(s *server) { s.hasBookmarks = false },
		wantMissing:  2,
		wantRequests: []string{"list 1", "watch 2", "watch 4", "watch 4", "watch 4", "watch 4", "list"},
	}, {
		name:         "the changes were too long ago to be repeated",
		before:       []string{"+a", "+b", "+c"},
		after:        []string{"*a", "-c", "."},
		without:      func(s *server) { s.oldest = 5 },
		wantMissing:  2,
		wantRequests: []string{"list 1", "watch 3", "list"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{hasBookmarks: true}
				s.do(tt.before...)
				f := s.follow(t, s.revision())
				s.do(tt.after...)
				if tt.without != nil {
					tt.without(s)
				}
				isOver := await(t.Context(), t, s, f)
				if tt.wantMissing > 0 {
					pass(time.Hour)
				} else if tt.wantAfter > 0 {
					pass(tt.wantAfter - time.Millisecond)
					equal(t, "over at once", false, isOver())
					pass(100 * time.Millisecond)
				}
				for i := range tt.wantMissing {
					if isOver() {
						t.Fatalf("went on without %d changes", tt.wantMissing-i)
					}
					if err := f.next(); err != nil {
						t.Fatal(err)
					}
					pass(time.Second)
				}
				equal(t, "over", true, isOver())
				equal(t, "requests", tt.wantRequests, s.requests)
			})
		})
	}
}

func TestEveryCacheIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{hasBookmarks: true}
		s.do("+a")
		behind := s.follow(t, 1)
		s.do("*a")
		isOver := await(t.Context(), t, s, s.follow(t, 2), behind)
		pass(time.Hour)
		equal(t, "over with one of two", false, isOver())
		if err := behind.next(); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		equal(t, "over with both", true, isOver())
		equal(t, "requests", []string{"list 1", "list 1", "watch 1"}, slices.Sorted(slices.Values(s.requests)))
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
		pass(2*time.Second - time.Millisecond)
		equal(t, "log within two seconds", "", log.String())
		pass(time.Hour)
		equal(t, "log", "INFO Waiting for the cache to catch up with the API server resource=\"gadgets.example.com\" namespace=\"\" cacheAt=\"1\"\n", log.String())
		if err := f.next(); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		equal(t, "over", true, isOver())
	})
}

func TestRetryAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0), ktesting.BufferLogs(true)))
		s := &server{hasBookmarks: true, failure: errors.New("melted")}
		s.do("+a")
		isOver := await(klog.NewContext(t.Context(), logger), t, s, s.follow(t, 1))
		pass(time.Minute)
		equal(t, "over", false, isOver())
		s.fail(nil)
		pass(time.Second)
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
				pass(500 * time.Millisecond)
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
			pass(20 * time.Second) // enough for all that it can ask
			for ; misses(); pass(time.Second) {
				if isOver() && (s.hasBookmarks || differs()) {
					rt.Fatalf("went on at revision %d of %d, although changes are missing", f.at, known)
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
