package events

import (
	"context"
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// Objects come and go for as long as the process lives.
func TestMemoryOfEndedSeriesIsFreed(t *testing.T) {
	events := schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	terminating := apierrors.NewForbidden(events, "", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := []struct {
		name   string
		answer func(asked int) error
		want   int // of those recorded and remembered, two minutes later
	}{{
		name:   "recorded",
		answer: func(int) error { return nil },
		want:   2,
	}, {
		name:   "refused",
		answer: func(int) error { return apierrors.NewForbidden(events, "", nil) },
	}, {
		name:   "in a namespace that ends",
		answer: func(int) error { return terminating },
	}, {
		name: "tried again and recorded",
		answer: func(asked int) error {
			if asked < 3 {
				return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "post", events, "", "", 0, true)
			}
			return nil
		},
		want: 2,
	}, {
		name: "recorded, and refused when recorded again",
		answer: func(asked int) error {
			if asked > 2 {
				return apierrors.NewForbidden(events, "", nil)
			}
			return nil
		},
		want: 1,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				asked := 0
				client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
					asked++ // under the clientset's lock
					err := tt.answer(asked)
					return err != nil, nil, err
				})
				r := New(client.EventsV1().Events, scheme.Scheme, clock.RealClock{})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.Run(ctx, 2) }()

				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vanilla"}}
				for _, note := range []string{"melts", "is eaten", "melts"} {
					r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "%s", note)
					time.Sleep(2 * time.Minute)
				}
				synctest.Wait()
				r.mu.Lock()
				if r.series.Len() != tt.want {
					t.Errorf("%d events are remembered, want %d", r.series.Len(), tt.want)
				}
				r.mu.Unlock()

				kittest.Pass(12 * time.Minute)
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if len(r.objects) != 0 || r.series.Len() != 0 {
					t.Errorf("%d objects and %d events are remembered in the end", len(r.objects), r.series.Len())
				}
			})
		})
	}
}

// What goes on is not forgotten before its time.
func TestSeriesIsRememberedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		r := New(client.EventsV1().Events, scheme.Scheme, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx, 1) }()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vanilla"}}
		for range 5 {
			r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "again")
			r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "at %s", time.Now())
			kittest.Pass(5 * time.Minute)
		}
		r.mu.Lock()
		var counts []int32
		for _, s := range r.objects[cache.NewObjectName("shop", "vanilla")].series {
			counts = append(counts, s.count)
		}
		r.mu.Unlock()
		if !slices.Contains(counts, 5) || len(counts) == 6 {
			t.Errorf("remembered are events with the counts %d, want the series and not all of the others", counts)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		list, err := client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 6 {
			t.Errorf("%d events, want one series and 5 others", len(list.Items))
		}
	})
}

// discard is an API server that accepts every event and keeps none.
type discard struct{}

func (discard) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
}

// quick starts a recorder whose events are accepted at once.
func quick(t *testing.T) *Recorder {
	t.Helper()
	config := &rest.Config{Host: "http://server", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: discard{}})
	if err != nil {
		t.Fatal(err)
	}
	r := New(client.EventsV1().Events, scheme.Scheme, clock.RealClock{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, 2) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// A large cluster has tens of thousands of objects with a problem each.
func TestMemoryPerEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := quick(t)
		const objects = 500
		inUse := func() uint64 {
			synctest.Wait()
			goruntime.GC()
			goruntime.GC()
			var stats goruntime.MemStats
			goruntime.ReadMemStats(&stats)
			return stats.HeapAlloc
		}
		record := func(i int) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("gadget-%05d", i)}}
			r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "%s", strings.Repeat("long ", 200))
		}
		record(0)
		before := inUse()
		for i := range objects {
			record(i)
		}
		perEvent := (inUse() - before) / objects
		t.Logf("%d bytes for each event", perEvent)
		if perEvent > 800 {
			t.Errorf("each event takes %d bytes of memory, want at most 800", perEvent)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.series.Len() != objects {
			t.Errorf("%d events are remembered, want %d", r.series.Len(), objects)
		}
	})
}

// Of too many, those are forgotten that were not seen for longest.
func TestMemoryForEventsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := quick(t)
		r.maxSeries = 10
		record := func(name string) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
			r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "again")
			synctest.Wait()
		}
		for i := range 100 {
			record("vanilla")
			record(fmt.Sprint("gadget-", i))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.series.Len() != 10 {
			t.Errorf("%d events are remembered, want 10", r.series.Len())
		}
		for _, name := range []string{"vanilla", "gadget-99", "gadget-91"} {
			if o := r.objects[cache.NewObjectName("shop", name)]; o == nil || len(o.series) != 1 {
				t.Errorf("the event of %s is forgotten", name)
			}
		}
		total := 0
		for _, o := range r.objects {
			total += len(o.series)
		}
		if total != 10 {
			t.Errorf("objects have %d events, want 10", total)
		}
	})
}
