package record

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// Objects come and go for as long as the process lives.
func TestNothingIsRememberedOfWhatIsOver(t *testing.T) {
	events := schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	terminating := apierrors.NewForbidden(events, "", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := []struct {
		name   string
		answer func(asked int) error
		want   int // of those told and remembered, two minutes later
	}{{
		name:   "told",
		answer: func(int) error { return nil },
		want:   2,
	}, {
		name:   "refused",
		answer: func(int) error { return apierrors.NewForbidden(events, "", nil) },
	}, {
		name:   "in a namespace that ends",
		answer: func(int) error { return terminating },
	}, {
		name: "tried again and told",
		answer: func(asked int) error {
			if asked < 3 {
				return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "post", events, "", "", 0, true)
			}
			return nil
		},
		want: 2,
	}, {
		name: "told, and refused when told again",
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
				r := New(client.EventsV1(), scheme.Scheme, clock.RealClock{})
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
				told := 0
				for _, of := range r.told {
					told += len(of)
				}
				if told != tt.want || (tt.want == 0) != (len(r.told) == 0) {
					t.Errorf("%d events of %d objects told, want %d", told, len(r.told), tt.want)
				}
				r.mu.Unlock()

				time.Sleep(12 * time.Minute)
				synctest.Wait()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				for what, left := range map[string]int{"pending": len(r.pending), "told": len(r.told)} {
					if left != 0 {
						t.Errorf("%d left in %s", left, what)
					}
				}
			})
		})
	}
}

// What goes on is not forgotten before its time.
func TestASeriesIsRememberedForAsLongAsItMayGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		r := New(client.EventsV1(), scheme.Scheme, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx, 1) }()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "vanilla"}}
		for range 5 {
			r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "again")
			r.For("test").Eventf(pod, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "at %s", time.Now())
			time.Sleep(5 * time.Minute)
			synctest.Wait()
		}
		r.mu.Lock()
		var told []string
		for _, of := range r.told {
			for _, event := range of {
				told = append(told, event.Note)
			}
		}
		r.mu.Unlock()
		if !slices.Contains(told, "again") || len(told) == 6 {
			t.Errorf("remembered are %q, want the series and not all of the others", told)
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
