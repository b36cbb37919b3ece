package podtimestamp

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kittest"
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

func stamps(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "podtimestamp_stamps_total" {
			return family.Metric[0].GetCounter().GetValue()
		}
	}
	return 0
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

// A patch is for the Pod as it was observed: what the cache does not show yet is not
// overwritten.
func TestAStaleCacheStampsNothing(t *testing.T) {
	for name, meanwhile := range map[string]func(s *server){
		"someone has stamped it": func(s *server) { s.annotate("sundae", AnnotationTimestamp, "tomorrow") },
		"it no longer asks":      func(s *server) { s.edit("sundae", withdraw) },
		"it is being deleted":    func(s *server) { s.end("sundae") },
		"it is another Pod":      func(s *server) { s.create("sundae") },
		"another Pod that asks":  func(s *server) { s.create("sundae", "addtime", "") },
		"it is gone":             func(s *server) { s.remove("sundae") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *server) {
				s.run()
				s.Fail("patch pods", errDenied, errDenied)
				s.create("sundae", "addtime", "")
				kittest.Pass(time.Second)
				s.Hold("pods")
				meanwhile(s)
				kittest.Pass(time.Minute)
				if s.patches() < 4 {
					t.Errorf("%d patches", s.patches())
				}
				equal(t, "accepted patches", map[types.UID]int{}, s.accepted)
			})
		})
	}
}

func TestRefusalIsReportedOnceAndRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		s.run()
		s.Fail("patch pods", slices.Repeat([]error{errDenied}, 5)...)
		s.create("sundae", "addtime", "")
		kittest.Pass(time.Hour)
		want := []string{
			`Warning StampRefused: Retrying: setting annotation timestamp: pods "sundae" is forbidden: not on Sundays`,
			"Normal Stamped: Set annotation timestamp",
		}
		equal(t, "patches", 6, s.patches())
		equal(t, "events", want, brief(s.events))

		s.Fail("patch pods", errDenied, errDenied)
		s.create("sundae", "addtime", "")
		kittest.Pass(time.Hour)
		equal(t, "events of another Pod of that name", want, brief(s.events[2:]))

		s.Fail("patch pods", apierrors.NewTimeoutError("etcd", 0), apierrors.NewTooManyRequests("later", 2), errors.New("no route"))
		s.create("cone", "addtime", "")
		kittest.Pass(time.Hour)
		equal(t, "events about errors that have nothing to do with the Pod", []string{"Normal Stamped: Set annotation timestamp to 2000-01-01T02:00:02Z"}, s.events[4:])
	})
}

// A webhook can deny with any code, and the API server can fail to reach it.
func TestADenialWithAnyCode(t *testing.T) {
	for name, err := range map[string]error{
		"AlreadyExists": apierrors.NewAlreadyExists(Resource.GroupResource(), ""),
		"Conflict":      apierrors.NewConflict(Resource.GroupResource(), "", errors.New("no")),
		"NotFound":      apierrors.NewNotFound(Resource.GroupResource(), ""),
		"InternalError": apierrors.NewInternalError(errors.New("failed calling webhook")),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *server) {
				s.Refuse(func(request string) error {
					if request == "patch pods" {
						return err
					}
					return nil
				})
				before := reports.Load()
				s.run()
				s.create("sundae", "addtime", "")
				kittest.Pass(10 * time.Minute)
				s.ForgetRequests()
				kittest.Pass(time.Hour)
				if n := s.patches(); n < 10 || n > 12 {
					t.Errorf("%d patches in the second hour, want one in five minutes", n)
				}
				equal(t, "how many events", 1, len(s.events))
				if n := reports.Load() - before; n < 15 {
					t.Errorf("the log has %d attempts", n)
				}
			})
		})
	}
}

// brief leaves out the timestamps.
func brief(events []string) (all []string) {
	for _, event := range events {
		event, _, _ = strings.Cut(event, " to ")
		all = append(all, event)
	}
	return all
}

// The memory of a Pod ends with it, so that it does not grow for ever.
func TestPodsAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		c, _ := s.run()
		s.Fail("patch pods", errDenied)
		s.create("sundae", "addtime", "")
		kittest.Pass(10 * time.Millisecond)
		equal(t, "how many events", 1, len(s.events))
		pod, err := c.pods.Namespace(nameOf("sundae").Namespace).Get("sundae")
		if err != nil {
			t.Fatal(err)
		}
		s.remove("sundae")
		kittest.Pass(time.Hour)
		equal(t, "remembered", false, c.ledger.Of(nameOf("sundae"), pod.UID).IsKnown())
	})
}

// Who takes the timestamp away again and again gets it back later and later.
func TestATimestampThatIsTakenAway(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		s.create("sundae", "addtime", "")
		s.run()
		for range 6000 {
			s.edit("sundae", func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationTimestamp) })
			kittest.Pass(10 * time.Millisecond)
		}
		if s.patches() < 5 || s.patches() > 8 {
			t.Errorf("%d patches in a minute, want a few", s.patches())
		}
	})
}

// A webhook may drop the annotation, with or without another change, although the API
// server reports success.
func TestATimestampThatIsDropped(t *testing.T) {
	changes := 0
	for name, alter := range map[string]func(pod *corev1.Pod){
		"without another change": func(pod *corev1.Pod) { delete(pod.Annotations, AnnotationTimestamp) },
		"with another change": func(pod *corev1.Pod) {
			changes++
			delete(pod.Annotations, AnnotationTimestamp)
			pod.Annotations["changes"] = fmt.Sprint(changes)
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := stamps(t)
			inBubble(t, func(t *testing.T, s *server) {
				s.alters(alter)
				s.create("sundae", "addtime", "")
				_, stop := s.run()
				kittest.Pass(time.Hour)
				if s.patches() < 15 || s.patches() > 25 { // with back-off up to five minutes
					t.Errorf("%d attempts in an hour, want 15 to 25", s.patches())
				}
				equal(t, "metric", before, stamps(t))
				equal(t, "events", []string{"Warning StampDropped: Retrying: the API server accepted the annotation timestamp but an admission policy or webhook kept it from being stored"}, s.events)

				s.alters(nil)
				kittest.Pass(6 * time.Minute)
				equal(t, "how many timestamps", 1, len(s.timestamps()))
				equal(t, "metric", before+1, stamps(t))
				equal(t, "how many events", 2, len(s.events))
				stop()
			})
		})
	}
}

// The event has the timestamp that was stored, not the one that was requested.
func TestChangedTimestamp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *server) {
		s.alters(func(pod *corev1.Pod) { pod.Annotations[AnnotationTimestamp] = "midnight" })
		s.create("sundae", "addtime", "")
		s.run()
		kittest.Pass(time.Hour)
		equal(t, "patches", 1, s.patches())
		equal(t, "events", []string{"Normal Stamped: Set annotation timestamp to midnight"}, s.events)
	})
}
