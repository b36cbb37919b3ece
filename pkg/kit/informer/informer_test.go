package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	// The other one sleeps until the time at which this process started, which in a
	// bubble is decades away.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}

var (
	pods = preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
		Namespace:            "shop",
		Selector:             "flavor=vanilla",
		Fields:               "metadata.name=cone",
		Define:               "kubectl apply -f crd.yaml",
		Permit:               "kubectl apply -f rbac.yaml",
	}

	errMelted = errors.New("melted")
	undefined = apierrors.NewGenericServerResponse(http.StatusNotFound, "list", pods.GroupResource(), "", "404 page not found", 0, true)
	forbidden = apierrors.NewForbidden(pods.GroupResource(), "", errMelted)
	broken    = apierrors.NewInternalError(errMelted)
	refused   = apierrors.NewServiceUnavailable("not yet")
	expired   = apierrors.NewResourceExpired("too old resource version")
)

// server is an API server that has one Pod to show, and what became of asking it.
type server struct {
	t         *testing.T
	isOldtime bool // and does not stream lists

	mu       sync.Mutex
	toList   error // what it answers to a list; nil for the Pod
	toWatch  error
	events   *watch.FakeWatcher // the last watch
	caches   *informer.Caches
	listed   []time.Time
	asked    []metav1.ListOptions
	heard    time.Time
	recorded []string
	log      []string
}

func (s *server) List(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, options)
	s.listed = append(s.listed, time.Now())
	if s.toList != nil {
		return nil, s.toList
	}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Pod{*pod("7")}}, ctx.Err()
}

func (s *server) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, options)
	if s.toWatch != nil {
		return nil, s.toWatch
	}
	s.events = watch.NewFakeWithChanSize(100, false)
	if options.SendInitialEvents != nil {
		s.events.Add(pod("7"))
		s.events.Action(watch.Bookmark, bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	return s.events, nil
}

// IsWatchListSemanticsUnSupported is how a client says that it does not stream lists.
func (s *server) IsWatchListSemanticsUnSupported() bool { return s.isOldtime }

func pod(resourceVersion string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cone", ResourceVersion: resourceVersion}}
}

func bookmark(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8", Annotations: annotations}}
}

// becomes has the server answer like that from now on, and ends its watch.
func (s *server) becomes(toList, toWatch error) {
	s.mu.Lock()
	s.toList, s.toWatch = toList, toWatch
	events := s.events
	s.events = nil
	s.mu.Unlock()
	if events != nil {
		events.Stop()
	}
	synctest.Wait()
}

// sends has something happen in the watch.
func (s *server) sends(action watch.EventType, obj *corev1.Pod) {
	s.events.Action(action, obj)
	synctest.Wait()
}

// note keeps a line of the log, without what the reflector's jitter makes differ.
func (s *server) note(_, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, regexp.MustCompile(`"level"=0 |"since"="2m\d*s" | "after"=.*| "reflector"=.*`).ReplaceAllString(line, ""))
}

func (s *server) hear(resource, selector string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = at
	s.recorded = append(s.recorded, resource+" "+selector)
}

// start starts an informer of what the server has, until the test ends.
func (s *server) start() cache.SharedIndexInformer {
	s.caches = informer.New(s.hear, clock.RealClock{})
	informer := informer.NewCache[*corev1.Pod](s.caches, pods, s, &corev1.Pod{}, 0)
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), funcr.New(s.note, funcr.Options{})))
	s.caches.StartWithContext(ctx)
	s.t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	synctest.Wait()
	return informer
}

func (s *server) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// lists are when it was asked for one.
func (s *server) lists() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.listed)
}

func (s *server) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	waiting  = `"msg"="Waiting" "for"="pods" "namespace"="shop" "selector"="flavor=vanilla" "because"=`
	unknown  = waiting + `"the cluster does not know this resource" "remedy"="kubectl apply -f crd.yaml" "err"="the server could not find the requested resource (list pods)"`
	goingOn  = `"msg"="Going on" "with"="pods"`
	unlisted = waiting + `"permission is missing" "remedy"="kubectl apply -f rbac.yaml" "err"="pods is forbidden: melted"`
)

// Both ways of filling a cache: a streamed list, and a list followed by a watch.
func bothWays(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	for _, isOldtime := range []bool{false, true} {
		t.Run(fmt.Sprintf("streaming=%t", !isOldtime), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, &server{t: t, isOldtime: isOldtime}) })
		})
	}
}

// A streamed list is consistent, and a plain one may be stale.
func TestMaybeStale(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		s.start()
		equal(t, "may be stale", s.isOldtime, len(s.caches.MaybeStale()) == 1)
		equal(t, "all", 1, len(s.caches.All()))
	})
	t.Run("the API server refuses to stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &server{t: t, toWatch: apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)}
			equal(t, "synced", true, s.start().HasSynced())
			equal(t, "may be stale", 1, len(s.caches.MaybeStale()))
		})
	})
}

func TestHeard(t *testing.T) {
	tests := []struct {
		name    string
		happens func(s *server)
		isHeard bool
	}{
		{"an object is added", func(s *server) { s.sends(watch.Added, pod("9")) }, true},
		{"an object is modified", func(s *server) { s.sends(watch.Modified, pod("9")) }, true},
		{"an object is deleted", func(s *server) { s.sends(watch.Deleted, pod("9")) }, true},
		{"a bookmark", func(s *server) { s.sends(watch.Bookmark, bookmark(nil)) }, true},
		{"nothing", func(*server) {}, false},
		{"an error in the watch", func(s *server) {
			s.mu.Lock()
			s.toList, s.toWatch = broken, broken
			s.mu.Unlock()
			s.events.Error(&broken.ErrStatus)
			synctest.Wait()
		}, false},
		{"a watch that ends", func(s *server) { s.becomes(broken, broken) }, false},
		{"a watch that is refused", func(s *server) { s.becomes(broken, refused) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, s *server) {
				informer := s.start()
				equal(t, "synced", true, informer.HasSynced())
				filled := time.Now()
				equal(t, "heard when the cache was filled", filled, s.lastHeard())
				kittest.Pass(time.Minute)
				equal(t, "heard after a minute without anything", filled, s.lastHeard())
				tt.happens(s)
				want := filled
				if tt.isHeard {
					want = time.Now()
				}
				equal(t, "heard after that", want, s.lastHeard())
				equal(t, "which cache", []string{"pods flavor=vanilla"}, slices.Compact(s.recorded))
			})
		})
	}
}

// A cache whose API server has never answered is as old as the process.
func TestCacheThatNeverHeardAnything(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		begin := time.Now()
		s.becomes(broken, broken)
		informer := s.start()
		kittest.Pass(time.Hour)
		equal(t, "synced", false, informer.HasSynced())
		equal(t, "heard", begin, s.lastHeard())
	})
}

// The reflector's own intervals become a minute; here it takes a second.
func TestFixedObstacleIsNoticedWithinASecond(t *testing.T) {
	tests := []struct {
		name string
		is   []*apierrors.StatusError // one after the other, for ten minutes each
		want []string
	}{
		{"the definition is deleted", []*apierrors.StatusError{undefined}, []string{unknown, goingOn}},
		{"the permission is revoked", []*apierrors.StatusError{forbidden}, []string{unlisted, goingOn}},
		{"both", []*apierrors.StatusError{undefined, forbidden}, []string{unknown, unlisted, goingOn}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, s *server) {
				informer := s.start()
				for _, is := range tt.is {
					s.becomes(is, is)
					kittest.Pass(10 * time.Minute)
				}
				lists := s.lists()
				if len(lists) < 61 {
					t.Fatalf("%d lists in all", len(lists))
				}
				last := lists[len(lists)-61:]
				for i, at := range last[1:] {
					equal(t, "from one request to the next", preflight.Interval, at.Sub(last[i]))
				}
				mended := time.Now()
				s.becomes(nil, nil)
				kittest.Pass(preflight.Interval)
				equal(t, "further lists", 1, len(s.lists())-len(lists))
				if waited := s.lastHeard().Sub(mended); waited < 0 || waited > preflight.Interval {
					t.Errorf("heard %s after it was mended", waited)
				}
				s.sends(watch.Modified, pod("9"))
				obj, _, err := informer.GetStore().GetByKey("shop/cone")
				if err != nil || obj.(*corev1.Pod).ResourceVersion != "9" {
					t.Errorf("the cache has %v, %v", obj, err)
				}
				equal(t, "log", tt.want, slices.DeleteFunc(s.lines(), isOfClientGo))
			})
		})
	}
}

// An API server that is started again finds everybody waiting at its door.
func TestReturnOfTheAPIServerIsNoticedWithinASecond(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		informer := s.start()
		away := &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
		for range 3 {
			s.becomes(away, away)
			kittest.Pass(time.Hour)
			s.becomes(nil, nil)
			kittest.Pass(3 * preflight.Interval) // the reflector waits as well, before its first try
			if s.events == nil {
				t.Fatal("the reflector does not watch")
			}
			s.sends(watch.Modified, pod("9"))
			obj, _, err := informer.GetStore().GetByKey("shop/cone")
			if err != nil || obj.(*corev1.Pod).ResourceVersion != "9" {
				t.Errorf("the cache has %v, %v", obj, err)
			}
		}
	})
}

// isOfClientGo is true of what client-go has to say.
func isOfClientGo(line string) bool {
	return !regexp.MustCompile(`^"msg"="(Waiting|Going on)"`).MatchString(line)
}

// What is not a question of a definition or a permission is left to the reflector,
// which asks an API server that has difficulties less and less often.
func TestOtherErrorsAreRetriedByTheReflector(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		s.start()
		s.becomes(broken, broken)
		kittest.Pass(10 * time.Minute)
		lists := len(s.lists())
		kittest.Pass(10 * time.Minute)
		if more := len(s.lists()) - lists; more < 10 || more > 60 {
			t.Errorf("%d lists in ten minutes", more)
		}
	})
}

func TestSilenceIsLogged(t *testing.T) {
	const silent = waiting + `"the API server has sent nothing, not even a bookmark" "err"=`
	tests := []struct {
		name    string
		happens func(s *server) // after which there is silence for an hour
		want    []string
	}{
		{"and knows no reason", func(*server) {}, []string{silent + `null`}},
		{"and that the API server is broken", func(s *server) { s.becomes(broken, broken) }, []string{silent + `"Internal error occurred: melted"`}},
		{"and that it does not let it in", func(s *server) { s.becomes(refused, refused) }, []string{silent + `"not yet"`}},
		{"but not of an expired resource version", func(s *server) { s.events.Error(&expired.ErrStatus) }, []string{silent + `null`}},
		{"but only of the reason, if that was told", func(s *server) { s.becomes(undefined, undefined) }, []string{unknown}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, s *server) {
				s.start()
				tt.happens(s)
				kittest.Pass(2 * time.Minute)
				if early := slices.DeleteFunc(s.lines(), isOfClientGo); len(early) > 0 {
					equal(t, "log at first", tt.want, early)
				}
				kittest.Pass(time.Hour)
				equal(t, "log", tt.want, slices.DeleteFunc(s.lines(), isOfClientGo))

				s.becomes(nil, nil)
				kittest.Pass(2 * time.Minute) // by then the reflector has tried again
				s.sends(watch.Bookmark, bookmark(nil))
				equal(t, "heard", time.Now(), s.lastHeard())
				equal(t, "log after the silence", append(tt.want, goingOn), slices.DeleteFunc(s.lines(), isOfClientGo))
			})
		})
	}
}

// Bookmarks come about once a minute.
func TestIdleCacheIsNotSilent(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		s.start()
		for range 60 {
			kittest.Pass(65 * time.Second)
			s.sends(watch.Bookmark, bookmark(nil))
		}
		equal(t, "log", nil, s.lines())
	})
}

// client-go has a line for each attempt. One is enough until a watch works again.
func TestFailingWatchIsLoggedOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		s.start()
		told := 0
		fails := func() {
			lists := len(s.lists())
			s.becomes(nil, forbidden) // the role has list, and not watch
			kittest.Pass(time.Hour)
			told++
			is := slices.DeleteFunc(s.lines(), func(line string) bool { return !strings.HasPrefix(line, `"msg"="Failed to watch"`) })
			equal(t, "times that it was told", told, len(is))
			if more := len(s.lists()) - lists; more < 60 {
				t.Errorf("%d lists in an hour: the cache gets old", more)
			}
		}
		fails()
		s.becomes(nil, nil)
		kittest.Pass(2 * time.Minute)
		s.sends(watch.Bookmark, bookmark(nil))
		fails()
	})
}

func TestSelectorsAreApplied(t *testing.T) {
	bothWays(t, func(t *testing.T, s *server) {
		s.start()
		if len(s.asked) == 0 {
			t.Error("nothing was asked")
		}
		for _, options := range s.asked {
			equal(t, "label selector", pods.Selector, options.LabelSelector)
			equal(t, "field selector", pods.Fields, options.FieldSelector)
		}
	})
}

// Whoever stops a watch need not read what it still has to say.
func TestWatchStoppedWhileItDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, isOldtime: true}
		ctx, cancel := context.WithCancel(t.Context())
		informer := informer.NewCache[*corev1.Pod](informer.New(s.hear, clock.RealClock{}), pods, s, &corev1.Pod{}, 0)
		go informer.RunWithContext(ctx)
		synctest.Wait()
		events := s.events
		for range 50 {
			events.Modify(pod("9"))
		}
		cancel()
		synctest.Wait()
		equal(t, "stopped", true, events.IsStopped())
	})
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		caches := informer.New(s.hear, clock.RealClock{})
		cached := informer.NewCache[*corev1.Pod](caches, pods, s, &corev1.Pod{}, 0)
		if err := cached.AddIndexers(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		caches.StartWithContext(ctx)
		defer synctest.Wait()
		defer cancel()
		synctest.Wait()
		if found := cached.Get("shop", "cone"); found == nil || found.ResourceVersion != "7" {
			t.Errorf("got %v", found)
		}
		if found := cached.Get("shop", "waffle"); found != nil {
			t.Errorf("got %v, which does not exist", found)
		}
		if all := slices.Collect(cached.All()); len(all) != 1 || all[0] != cached.Get("shop", "cone") {
			t.Errorf("all are %v", all)
		}
		if here, elsewhere := cached.By(cache.NamespaceIndex, "shop"), cached.By(cache.NamespaceIndex, "parlor"); len(here) != 1 || len(elsewhere) != 0 {
			t.Errorf("%v in the namespace, and %v in another", here, elsewhere)
		}
	})
}
