package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestMain(m *testing.M) {
	// The default handlers also delay errors by the time since the last one, and the
	// clock of a synctest bubble is decades away from the one outside.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{func(context.Context, error, string, ...any) { reports.Add(1) }}
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// reports counts the errors that loops have reported.
var reports atomic.Int64

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// inBubble runs a test with a clock that begins at midnight of 2000-01-01.
func inBubble(t *testing.T, test func(t *testing.T, s *server)) {
	synctest.Test(t, func(t *testing.T) { test(t, newServer(t)) })
}

var errDenied = apierrors.NewForbidden(Resource.GroupResource(), "sundae", errors.New("not on Sundays"))

func TestPodsAreStampedOnce(t *testing.T) {
	before := stamps(t)
	inBubble(t, func(t *testing.T, s *server) {
		s.create("early", "addtime", "true")
		s.create("silent")
		s.create("others", "addtime", "", "timestamp", "tomorrow")
		_, stop := s.run()
		kittest.Pass(time.Hour)
		s.create("late", "addtime", "")
		s.annotate("silent", "addtime", "now")
		kittest.Pass(time.Hour)
		stop()
		s.run()
		kittest.Pass(24 * time.Hour)
		equal(t, "timestamps", map[string]string{
			"early": "2000-01-01T00:00:00Z", "late": "2000-01-01T01:00:00Z", "silent": "2000-01-01T01:00:00Z", "others": "tomorrow",
		}, s.timestamps())
		equal(t, "patches", 3, s.patches())
		equal(t, "events", []string{
			"Normal Stamped: Set annotation timestamp to 2000-01-01T00:00:00Z",
			"Normal Stamped: Set annotation timestamp to 2000-01-01T01:00:00Z",
			"Normal Stamped: Set annotation timestamp to 2000-01-01T01:00:00Z",
		}, s.events)
	})
	equal(t, "metric", before+3, stamps(t))
}

// stamps returns how many timestamps the metric counts.
func stamps(t *testing.T) int64 {
	t.Helper()
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	scraped := testutil.NewMetrics()
	if err := testutil.ParseMetrics(answer.Body.String(), &scraped); err != nil {
		t.Fatal(err)
	}
	return testutil.GetMetricValuesForLabel(scraped, "podtimestamp_stamps_total", "")[""]
}

// While the cache does not show the timestamp yet, no event makes the controller patch the
// Pod a second time.
func TestOwnWritesAreWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		s.create("sundae", "addtime", "")
		s.Hold("pods")
		c, _ := s.run()
		kittest.Pass(time.Second)
		equal(t, "timestamps", map[string]string{"sundae": "2000-01-01T00:00:00Z"}, s.timestamps())
		c.Add(nameOf("sundae"))
		kittest.Pass(time.Hour)
		equal(t, "patches", 1, s.patches())
	})
}

// A conflict and a Pod that is gone are what a stale cache leads to: neither is reported.
func TestStaleCacheIsNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		before := reports.Load()
		s.Fail("patch pods", apierrors.NewNotFound(Resource.GroupResource(), "sundae"), apierrors.NewConflict(Resource.GroupResource(), "sundae", errors.New("a precondition failed")))
		s.run()
		s.create("sundae", "addtime", "")
		kittest.Pass(time.Hour)
		equal(t, "patches", 3, s.patches())
		equal(t, "reports", before, reports.Load())
		equal(t, "events", []string{"Normal Stamped: Set annotation timestamp to 2000-01-01T00:00:00Z"}, s.events)
	})
}

// A webhook can deny with any code, and the API server can fail to reach it.
func TestRefusalIsReportedOnceAndRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		requireEvents := func(want ...string) {
			t.Helper()
			kittest.Pass(time.Hour)
			for i, event := range s.events {
				s.events[i], _, _ = strings.Cut(event, " to ") // without timestamps
			}
			equal(t, "events", want, s.events)
			s.events = nil
		}
		const stamped = "Normal Stamped: Set annotation timestamp"
		const refused = `Warning StampRefused: Retrying: setting annotation timestamp: pods "sundae" is forbidden: not on Sundays`
		before := reports.Load()
		webhook := func(code int32, reason metav1.StatusReason) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "w" denied the request: no`,
			}}
		}
		s.run()
		s.Fail("patch pods", errDenied, webhook(409, metav1.StatusReasonConflict), webhook(404, metav1.StatusReasonNotFound),
			webhook(503, metav1.StatusReasonServiceUnavailable), apierrors.NewInternalError(errors.New("failed calling webhook")))
		s.create("sundae", "addtime", "")
		requireEvents(refused, stamped)
		equal(t, "patches", 6, s.patches())
		equal(t, "reports in the log", before+5, reports.Load())

		s.Fail("patch pods", errDenied, errDenied)
		s.create("sundae", "addtime", "") // another Pod of that name
		requireEvents(refused, stamped)

		s.Fail("patch pods", apierrors.NewTimeoutError("etcd", 0), errors.New("no route")) // which have nothing to do with the Pod
		s.create("cone", "addtime", "")
		requireEvents(stamped)
	})
}

// The memory of a Pod ends with the Pod, so that it does not grow for ever, and when the Pod no longer asks.
func TestPodsAreForgotten(t *testing.T) {
	for name, end := range map[string]func(s *server){
		"deleted": func(s *server) { s.remove("sundae") },
		"no longer asks": func(s *server) {
			s.edit("sundae", func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationAddTime) })
		},
		"says no": func(s *server) { s.annotate("sundae", AnnotationAddTime, "no") },
	} {
		inBubble(t, func(t *testing.T, s *server) {
			c, _ := s.run()
			s.Fail("patch pods", errDenied)
			s.create("sundae", "addtime", "")
			kittest.Pass(10 * time.Millisecond)
			pod, err := c.pods.Namespace(nameOf("sundae").Namespace).Get("sundae")
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "attempts", 1, c.attempts.Last(pod).Count)
			end(s)
			kittest.Pass(time.Hour)
			equal(t, "attempts for a Pod that "+name, 0, c.attempts.Last(pod).Count)
		})
	}
}

// A refusal is past when the Pod no longer asks or somebody else has stamped it: then the next timestamp is not delayed
// by it, and another refusal is another event.
func TestPastRefusals(t *testing.T) {
	for name, test := range map[string]struct{ end, begin func(pod *corev1.Pod) }{
		"asks again": {
			end:   func(pod *corev1.Pod) { pod.Annotations[AnnotationAddTime] = "no" },
			begin: func(pod *corev1.Pod) { pod.Annotations[AnnotationAddTime] = "yes" },
		},
		"loses the timestamp of somebody else": {
			end:   func(pod *corev1.Pod) { pod.Annotations[AnnotationTimestamp] = "tomorrow" },
			begin: func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationTimestamp) },
		},
	} {
		inBubble(t, func(t *testing.T, s *server) {
			s.run()
			s.Fail("patch pods", slices.Repeat([]error{errDenied}, 10)...)
			s.create("sundae", "addtime", "")
			kittest.Pass(4 * time.Minute) // of the 256 s after the ninth refusal
			for _, refusal := range []error{errDenied, nil} {
				s.Fail("patch pods", refusal)
				for _, change := range []func(*corev1.Pod){test.end, test.begin} {
					s.edit("sundae", change)
					kittest.Pass(time.Millisecond)
				}
			}
			equal(t, "a Pod that "+name, 1, len(s.timestamps()))
			equal(t, "events", 3, len(s.events))
		})
	}
}

// Who takes the timestamp away again and again gets it back later and later.
func TestATimestampThatIsTakenAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		s.create("sundae", "addtime", "")
		s.run()
		for range 600 {
			s.edit("sundae", func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationTimestamp) })
			kittest.Pass(100 * time.Millisecond)
		}
		if s.patches() < 5 || s.patches() > 8 {
			t.Errorf("%d patches in a minute, want a few", s.patches())
		}
	})
}

// A webhook may drop the annotation, although the API server reports success: with another change
// each time, or there is nothing to store.
func TestATimestampThatIsDropped(t *testing.T) {
	before := stamps(t)
	inBubble(t, func(t *testing.T, s *server) {
		changes := 0
		s.alters(func(pod *corev1.Pod) {
			changes++
			delete(pod.Annotations, AnnotationTimestamp)
			pod.Annotations["changes"] = fmt.Sprint(changes / 2)
		})
		s.create("sundae", "addtime", "")
		s.run()
		kittest.Pass(time.Hour)
		if s.patches() < 15 || s.patches() > 25 { // with back-off up to five minutes
			t.Errorf("%d attempts in an hour, want 15 to 25", s.patches())
		}
		equal(t, "metric", before, stamps(t))
		equal(t, "events", []string{"Warning StampDropped: Retrying: the API server accepted the annotation timestamp but an admission policy or webhook kept it from being stored"}, s.events)

		// The event has the timestamp that was stored, not the one that was requested.
		s.alters(func(pod *corev1.Pod) { pod.Annotations[AnnotationTimestamp] = "midnight" })
		kittest.Pass(6 * time.Minute)
		equal(t, "timestamps", map[string]string{"sundae": "midnight"}, s.timestamps())
		equal(t, "metric", before+1, stamps(t))
		equal(t, "last event", "Normal Stamped: Set annotation timestamp to midnight", s.events[len(s.events)-1])
	})
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
