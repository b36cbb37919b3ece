package events_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
	kitevents "nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a
	// synctest bubble's clock is decades away from the one outside.
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{reports.Handle}
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// reports are the errors that were reported since they were last taken.
var reports kittest.Errors

// running is a running recorder and the server that it writes to.
type running struct {
	*server
	*kitevents.Recorder
	events.EventRecorder // of the controller that the tests are
	stop                 func() error
}

// run starts a recorder in the current bubble; it stops with the test.
func run(t *testing.T, workers int, opts ...worker.Option) *running {
	t.Helper()
	reports.Take()
	s := newServer()
	recorder := kitevents.New(s.client(t).Events, scheme.Scheme, clock.RealClock{}, opts...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- recorder.Run(ctx, workers) }()
	stop := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return &running{s, recorder, recorder.For("gadget-controller"), stop}
}

func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	difftest.Equal(t, what, want, got)
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-pod", ResourceVersion: "7"}}
}

// tell records an event about the Pod with that note.
func (r *running) tell(name, note string) {
	r.Eventf(pod(name), nil, corev1.EventTypeWarning, "Melting", "Cool", "%s", note)
}

func TestEventIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fridge", UID: "cold", ResourceVersion: "8"}}
		r.Eventf(pod("vanilla"), node, corev1.EventTypeNormal, "Scooped", "Scoop", "%d scoops of %s", 2, "vanilla")
		synctest.Wait()

		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		want := []eventsv1.Event{{
			TypeMeta:            metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
			ObjectMeta:          metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("vanilla.%x", bubble.UnixNano())},
			EventTime:           metav1.NewMicroTime(bubble),
			ReportingController: "gadget-controller",
			ReportingInstance:   "gadget-controller-" + host,
			Action:              "Scoop",
			Reason:              "Scooped",
			Regarding:           corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: "vanilla", UID: "uid-of-pod", ResourceVersion: "7"},
			Related:             &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "fridge", UID: "cold", ResourceVersion: "8"},
			Note:                "2 scoops of vanilla",
			Type:                corev1.EventTypeNormal,
		}}
		equal(t, "events", want, r.all())
		equal(t, "reports", nil, reports.Take())
	})
}

// bubble is the time at which a synctest bubble begins.
var bubble = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Each case records events at several times, and no request fails.
func TestWhatIsTheSameEvent(t *testing.T) {
	type step struct {
		after time.Duration // since the step before
		do    func(*running)
	}
	say := func(after time.Duration, note string) step {
		return step{after, func(r *running) { r.tell("vanilla", note) }}
	}
	says := func(after time.Duration, regarding, related runtime.Object, what ...string) step {
		return step{after, func(r *running) { r.Eventf(regarding, related, what[0], what[1], what[2], "melts") }}
	}
	changed := func() *corev1.Pod {
		p := pod("vanilla")
		p.ResourceVersion = "8"
		return p
	}
	another := func() *corev1.Pod {
		p := pod("vanilla")
		p.UID = "born again"
		return p
	}
	usual := []string{corev1.EventTypeWarning, "Melting", "Cool"}
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{{
		name:  "what is recorded once",
		steps: []step{say(0, "melts")},
		want:  []string{"melts ×1"},
	}, {
		name:  "what is recorded again is counted",
		steps: []step{say(0, "melts"), say(time.Minute, "melts"), say(time.Minute, "melts")},
		want:  []string{"melts ×3"},
	}, {
		name:  "what is recorded again at once is counted",
		steps: []step{say(0, "melts"), say(0, "melts"), say(0, "melts")},
		want:  []string{"melts ×3"},
	}, {
		name:  "just within six minutes",
		steps: []step{say(0, "melts"), say(6*time.Minute-1, "melts")},
		want:  []string{"melts ×2"},
	}, {
		name:  "after six minutes it is a new event",
		steps: []step{say(0, "melts"), say(6*time.Minute, "melts"), say(time.Minute, "melts")},
		want:  []string{"melts ×1", "melts ×2"},
	}, {
		name:  "the six minutes begin again with each one",
		steps: []step{say(0, "melts"), say(5*time.Minute, "melts"), say(5*time.Minute, "melts"), say(5*time.Minute, "melts"), say(6*time.Minute, "melts")},
		want:  []string{"melts ×4", "melts ×1"},
	}, {
		name:  "another note is another event",
		steps: []step{say(0, "1 of 3 melts"), say(time.Second, "2 of 3 melt")},
		want:  []string{"1 of 3 melts ×1", "2 of 3 melt ×1"},
	}, {
		name:  "events may take turns",
		steps: []step{say(0, "melts"), say(time.Second, "freezes"), say(time.Second, "melts"), say(time.Second, "freezes"), say(time.Second, "melts")},
		want:  []string{"melts ×3", "freezes ×2"},
	}, {
		name:  "another type, reason or action is another event",
		steps: []step{says(0, pod("vanilla"), nil, usual...), says(0, pod("vanilla"), nil, "Normal", "Melting", "Cool"), says(0, pod("vanilla"), nil, "Warning", "Melted", "Cool"), says(0, pod("vanilla"), nil, "Warning", "Melting", "Eat")},
		want:  []string{"melts ×1", "melts ×1", "melts ×1", "melts ×1"},
	}, {
		name:  "another object is another event",
		steps: []step{says(0, pod("vanilla"), nil, usual...), says(0, pod("chocolate"), nil, usual...)},
		want:  []string{"melts ×1", "melts ×1"},
	}, {
		name:  "an object made anew under the same name is another one",
		steps: []step{says(0, pod("vanilla"), nil, usual...), says(0, another(), nil, usual...)},
		want:  []string{"melts ×1", "melts ×1"},
	}, {
		name:  "an object that has changed is the same",
		steps: []step{says(0, pod("vanilla"), nil, usual...), says(0, changed(), nil, usual...)},
		want:  []string{"melts ×2"},
	}, {
		name:  "another related object is another event",
		steps: []step{says(0, pod("vanilla"), nil, usual...), says(0, pod("vanilla"), pod("chocolate"), usual...), says(0, pod("vanilla"), pod("lemon"), usual...)},
		want:  []string{"melts ×1", "melts ×1", "melts ×1"},
	}, {
		name:  "a related object that has changed is the same",
		steps: []step{says(0, pod("lemon"), pod("vanilla"), usual...), says(0, pod("lemon"), changed(), usual...)},
		want:  []string{"melts ×2"},
	}, {
		name: "what another controller tells is another event",
		steps: []step{say(0, "melts"), {0, func(r *running) {
			r.For("waiter").Eventf(pod("vanilla"), nil, corev1.EventTypeWarning, "Melting", "Cool", "melts")
		}}},
		want: []string{"melts ×1", "melts ×1"},
	}, {
		name:  "an event that the API server has forgotten is made anew",
		steps: []step{say(0, "melts"), say(time.Minute, "melts"), {0, func(r *running) { r.expire() }}, say(time.Minute, "melts"), say(time.Minute, "melts")},
		want:  []string{"melts ×2"},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, 2)
				for _, s := range tt.steps {
					kittest.Pass(s.after)
					s.do(r)
				}
				kittest.Pass(6 * time.Minute)
				equal(t, "events", tt.want, r.recorded())
				equal(t, "reports", nil, reports.Take())
			})
		})
	}
}

// Repetitions are counted in memory. The count is written when it reaches 2, 4, 8 and so
// on, and when there are no more repetitions.
func TestRepetitionsCostFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		for range 1000 {
			r.tell("vanilla", "melts")
			kittest.Pass(time.Second)
		}
		last := time.Now().Add(-time.Second)
		equal(t, "events while they go on", []string{"melts ×512"}, r.recorded())
		equal(t, "requests while they go on", 1+9, r.requests())
		kittest.Pass(6 * time.Minute)
		equal(t, "events", []string{"melts ×1000"}, r.recorded())
		equal(t, "requests", 1+9+1, r.requests())
		equal(t, "last seen", last, r.all()[0].Series.LastObservedTime.Time)
		kittest.Pass(time.Hour)
		equal(t, "requests when nothing happens", 1+9+1, r.requests())
	})
}

// An event that keeps being repeated does not expire, and its count stays up to date.
func TestLongSeriesIsRefreshed(t *testing.T) {
	for _, every := range []time.Duration{time.Second, time.Minute, 5*time.Minute + 59*time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, 1)
				const while = 90 * time.Minute
				count := 0
				for range while / every {
					r.tell("vanilla", "melts")
					count++
					synctest.Wait()
					if e := r.all()[0]; e.Series != nil && time.Since(e.Series.LastObservedTime.Time) > 15*time.Minute+every {
						t.Fatalf("after %s it was last seen %s ago", time.Since(bubble), time.Since(e.Series.LastObservedTime.Time))
					}
					kittest.Pass(every)
				}
				if r.requests() > 1+12+90/15 {
					t.Errorf("%d requests in %s", r.requests(), while)
				}
				kittest.Pass(6 * time.Minute)
				equal(t, "events", []string{fmt.Sprintf("melts ×%d", count)}, r.recorded())
			})
		})
	}
}

// A flood of other events about an object does not keep a series from being refreshed.
func TestSeriesIsRefreshedDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		for i := range 2040 { // in 34 minutes
			r.tell("vanilla", "melts")
			r.note("vanilla", fmt.Sprint("scoop ", i))
			kittest.Pass(time.Second)
		}
		melts := r.all()[0]
		if since := time.Since(melts.Series.LastObservedTime.Time); melts.Note != "melts" || since > 3*time.Minute {
			t.Errorf("%q was last seen %s ago", melts.Note, since) // the 1,024th was written 17 minutes ago
		}
		kittest.Pass(time.Hour)
		equal(t, "the series", "melts ×2040", r.recorded()[0])
	})
}

// note records that something harmless has happened to the Pod.
func (r *running) note(name, note string) {
	r.Eventf(pod(name), nil, corev1.EventTypeNormal, "Scooped", "Scoop", "%s", note)
}

// A caller that records a different event each time causes 25 writes at once, and then one
// each minute, of the latest event.
func TestFloodOfDifferentEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		var want []string
		for i := range 3000 { // in three minutes
			r.note("vanilla", fmt.Sprint("scoop ", i))
			if i < 25 {
				want = append(want, fmt.Sprintf("scoop %d ×1", i))
			}
			kittest.Pass(60 * time.Millisecond)
		}
		got := r.recorded()
		equal(t, "the first events", want, got[:25])
		if len(got) > 25+3 || r.requests() > 25+3 {
			t.Errorf("%d events took %d requests", len(got), r.requests())
		}
		r.tell("chocolate", "melts")
		kittest.Pass(time.Minute)
		equal(t, "events about another", []string{"melts ×1"}, r.recordedOf()["chocolate"])
		got = r.recordedOf()["vanilla"]
		equal(t, "the last event", "scoop 2999 ×1", got[len(got)-1])
		if !slices.IsSortedFunc(got, func(a, b string) int { return number(a) - number(b) }) {
			t.Errorf("they are out of order: %q", got)
		}

		kittest.Pass(time.Hour)
		equal(t, "events when nothing happens", len(got)+1, len(r.recorded()))
		for i := range 25 {
			r.note("vanilla", fmt.Sprint("bite ", i))
		}
		synctest.Wait()
		equal(t, "events about one that was left alone for long", len(got)+1+25, len(r.recorded()))
	})
}

// number is the one in the note "scoop 7 ×1".
func number(recorded string) (n int) {
	if _, err := fmt.Sscanf(recorded, "scoop %d", &n); err != nil {
		return -1
	}
	return n
}

// If there are too many events, normal ones are dropped before warnings, and the order stays.
func TestWarningsHaveRoomInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		for i := range 1000 {
			r.note("vanilla", fmt.Sprint("scoop ", i))
			synctest.Wait()
		}
		for i := range 12 {
			r.tell("vanilla", fmt.Sprint("melts ", i))
			r.note("vanilla", fmt.Sprint("freezes ", i))
			synctest.Wait()
		}
		want := []string{}
		for i := range 25 {
			want = append(want, fmt.Sprintf("scoop %d ×1", i))
		}
		for i := range 10 {
			want = append(want, fmt.Sprintf("melts %d ×1", i))
		}
		equal(t, "events at once", want, r.recorded())
		kittest.Pass(time.Minute)
		equal(t, "events a minute later", append(want, "melts 11 ×1"), r.recorded())
		kittest.Pass(30 * time.Minute)
		equal(t, "events in the end", append(want, "melts 11 ×1", "freezes 11 ×1"), r.recorded())
	})
}

// A re-created object has a budget of its own.
func TestBudgetIsPerUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		for life := range 3 {
			p := pod("vanilla")
			p.UID = types.UID(fmt.Sprint("life ", life))
			for i := range 100 {
				r.Eventf(p, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "scoop %d", i)
				synctest.Wait()
			}
		}
		equal(t, "number of events", 3*25, len(r.recorded()))
	})
}

// Events about a former object of the same name do not delay those about the new one.
func TestEventsOfAFormerObjectDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		for i := range 100 {
			r.note("vanilla", fmt.Sprint("scoop ", i))
			synctest.Wait()
		}
		anew := pod("vanilla")
		anew.UID = "anew"
		r.Eventf(anew, nil, corev1.EventTypeWarning, "Melting", "Melt", "melts")
		r.Eventf(anew, nil, corev1.EventTypeNormal, "Freezing", "Freeze", "freezes")
		synctest.Wait()
		recorded := r.recorded()
		equal(t, "events about the new one", []string{"melts ×1", "freezes ×1"}, recorded[25:])
	})
}

// A refused event has cost a request, too.
func TestRefusedEventsCountForTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		r.setFail(always(forbidden))
		for i := range 100 {
			r.note("vanilla", fmt.Sprint("scoop ", i))
			synctest.Wait()
		}
		equal(t, "requests", 25, r.requests())
	})
}

func TestSeriesSaysWhenItWasLastSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		r.tell("vanilla", "melts")
		kittest.Pass(time.Minute)
		r.tell("vanilla", "melts")
		synctest.Wait()
		want := &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Now())}
		equal(t, "series", want, r.all()[0].Series)
		equal(t, "first seen", metav1.NewMicroTime(time.Now().Add(-time.Minute)), r.all()[0].EventTime)
	})
}

// In each case, vanilla melts, melts again a minute later, and is then eaten. A temporary
// failure causes no event to be lost or recorded twice, and a refused event delays no
// other.
func TestFailures(t *testing.T) {
	all := []string{"melts ×2", "is eaten ×1"}
	const url = "http://server/apis/events.k8s.io/v1/namespaces/shop/events"
	tests := []struct {
		name        string
		fail        func(asked int) failure
		want        []string
		wantReports []string
		wantAsked   int
	}{{
		name:      "no failure",
		want:      all,
		wantAsked: 3,
	}, {
		name:        "the API server is away",
		fail:        first(slices.Repeat([]failure{away}, 3)...),
		want:        all,
		wantReports: slices.Repeat([]string{`Sync failed: Post "` + url + `": connect: connection refused`}, 3),
		wantAsked:   6,
	}, {
		name:        "the answer is lost after the event was created",
		fail:        first(lost),
		want:        all,
		wantReports: []string{`Sync failed: Post "` + url + `": unexpected EOF`},
		wantAsked:   4,
	}, {
		name:      "the API server is broken",
		fail:      first(broken, unavailable, tooLate),
		want:      all,
		wantAsked: 6,
		wantReports: []string{
			"Sync failed: no", "Sync failed: no", "Sync failed: no",
		},
	}, {
		name:        "the API server asks for patience",
		fail:        first(slices.Repeat([]failure{throttled}, 2)...),
		want:        all,
		wantReports: []string{"Sync failed: no", "Sync failed: no"},
		wantAsked:   5,
	}, {
		name:        "creating it is forbidden",
		fail:        first(forbidden),
		want:        []string{"melts ×1", "is eaten ×1"},
		wantReports: []string{"Gave up for now: event Melting of shop/vanilla dropped: no"},
		wantAsked:   3,
	}, {
		name:        "it is not valid",
		fail:        first(invalid),
		want:        []string{"melts ×1", "is eaten ×1"},
		wantReports: []string{"Gave up for now: event Melting of shop/vanilla dropped: no"},
		wantAsked:   3,
	}, {
		name:        "patching it is forbidden",
		fail:        first(nil, forbidden),
		want:        []string{"melts ×1", "is eaten ×1"},
		wantReports: []string{"Gave up until the next change: event Melting of shop/vanilla dropped: no"},
		wantAsked:   3,
	}, {
		name:        "the answer is lost after the event was patched",
		fail:        first(nil, lost),
		want:        all,
		wantAsked:   4,
		wantReports: []string{fmt.Sprintf(`Sync failed: Patch "%s/vanilla.%x": unexpected EOF`, url, bubble.UnixNano())},
	}, {
		name:      "the namespace ends",
		fail:      always(terminating),
		wantAsked: 3,
	}, {
		name:      "the namespace has ended",
		fail:      always(gone),
		wantAsked: 3,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, 2)
				r.setFail(tt.fail)
				r.tell("vanilla", "melts")
				kittest.Pass(time.Minute)
				r.tell("vanilla", "melts")
				r.tell("vanilla", "is eaten")
				kittest.Pass(10 * time.Second)
				equal(t, "events", tt.want, r.recorded())
				equal(t, "requests", tt.wantAsked, r.requests())
				equal(t, "reports", tt.wantReports, reports.Take())
			})
		})
	}
}

// The events of an object are recorded in their order, whatever fails; those of
// others do not wait for them.
func TestEventsOfAnObjectKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 8)
		isAway := map[int]bool{1: true, 2: true, 4: true, 7: true, 8: true, 9: true}
		r.setFail(func(asked int) failure {
			return func(q *http.Request, act func() *http.Response) (*http.Response, error) {
				time.Sleep(time.Duration(1+asked%3) * time.Second) // no two take the same time
				if isAway[asked] {
					return away(q, act)
				}
				return act(), nil
			}
		})
		want := map[string][]string{}
		for i := range 10 {
			for _, name := range []string{"vanilla", "chocolate", "lemon"} {
				r.tell(name, fmt.Sprint("scoop ", i))
				want[name] = append(want[name], fmt.Sprintf("scoop %d ×1", i))
			}
		}
		kittest.Pass(5 * time.Minute)
		equal(t, "events", want, r.recordedOf())
	})
}

func TestOneObjectDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		r.setFail(first(hang))
		r.tell("vanilla", "melts")
		synctest.Wait()
		r.tell("vanilla", "is eaten")
		r.tell("chocolate", "melts")
		r.tell("lemon", "melts")
		kittest.Pass(time.Minute)
		equal(t, "events", []string{"chocolate", "lemon"}, r.objects())
		equal(t, "busy", time.Minute, r.Busy())
	})
}

// The memory for events of one object is limited, and the last events are kept, because they
// matter most.
func TestLastOfTooManyEventsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		r.setFail(always(away))
		for i := range 100 {
			r.tell("vanilla", fmt.Sprint("scoop ", i))
		}
		r.tell("chocolate", "melts")
		kittest.Pass(time.Minute)
		r.setFail(nil)
		kittest.Pass(2 * time.Minute)
		var want []string
		for i := range 32 {
			want = append(want, fmt.Sprintf("scoop %d ×1", 68+i))
		}
		equal(t, "events", map[string][]string{"vanilla": want, "chocolate": {"melts ×1"}}, r.recordedOf())
	})
}

// If there are too many events, normal ones are dropped before warnings.
func TestWarningsAmongTooManyEventsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2)
		r.setFail(always(away))
		r.tell("vanilla", "melts")
		for i := range 100 {
			r.Eventf(pod("vanilla"), nil, corev1.EventTypeNormal, "Scooped", "Scoop", "scoop %d", i)
		}
		kittest.Pass(time.Minute)
		r.setFail(nil)
		kittest.Pass(2 * time.Minute)
		want := []string{"melts ×1"}
		for i := range 24 { // of the 31 that were kept
			want = append(want, fmt.Sprintf("scoop %d ×1", 69+i))
		}
		equal(t, "events", append(want, "scoop 99 ×1"), r.recorded())
	})
}

// The event is being written when it is dropped from the pending ones.
func TestEventThatIsBeingWrittenIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		r.setFail(first(func(_ *http.Request, act func() *http.Response) (*http.Response, error) {
			time.Sleep(time.Minute)
			return act(), nil
		}))
		r.tell("vanilla", "melts")
		synctest.Wait()
		want := []string{"melts ×1"}
		for i := range 32 {
			r.tell("vanilla", fmt.Sprint("scoop ", i))
			want = append(want, fmt.Sprintf("scoop %d ×1", i))
		}
		kittest.Pass(2 * time.Minute)
		equal(t, "events", want, r.recorded())
	})
}

func TestEventsOfObjectsWithoutANamespaceAreInDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		for range 2 {
			r.Eventf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fridge"}}, nil, corev1.EventTypeWarning, "Warm", "Cool", "is warm")
		}
		synctest.Wait()
		equal(t, "events", []string{"is warm ×2"}, r.recorded())
		equal(t, "namespace", "default", r.all()[0].Namespace)
		equal(t, "namespace of what it regards", "", r.all()[0].Regarding.Namespace)
		equal(t, "reports", nil, reports.Take())
	})
}

// The server of these tests refuses invalid events.
func TestLongTextsAreClipped(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	tests := []struct {
		name     string
		object   string
		note     string
		wantName string // up to its last dot
		wantNote string
	}{{
		name: "nothing is too long", object: a(230), note: a(1024),
		wantName: a(230), wantNote: a(1024),
	}, {
		name: "a byte is left", object: a(229), note: a(1023),
		wantName: a(229), wantNote: a(1023),
	}, {
		name: "one byte is too much", object: a(231), note: a(1025),
		wantName: a(230), wantNote: a(1024),
	}, {
		name: "as long as names get", object: a(253), note: a(100_000),
		wantName: a(230), wantNote: a(1024),
	}, {
		name: "the name would end in a dot", object: a(229) + ".example.com", note: "melts",
		wantName: a(229), wantNote: "melts",
	}, {
		name: "the name would end in dashes", object: a(227) + "---b", note: "melts",
		wantName: a(227), wantNote: "melts",
	}, {
		name: "a letter of several bytes is cut", object: "vanilla", note: a(1023) + "äöü",
		wantName: "vanilla", wantNote: a(1023),
	}, {
		name: "a letter of several bytes just fits", object: "vanilla", note: a(1022) + "äöü",
		wantName: "vanilla", wantNote: a(1022) + "ä",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, 1)
				r.tell(tt.object, tt.note)
				synctest.Wait()
				equal(t, "reports", nil, reports.Take())
				all := r.all()
				if len(all) != 1 {
					t.Fatalf("%d events", len(all))
				}
				equal(t, "name", tt.wantName, all[0].Name[:strings.LastIndex(all[0].Name, ".")])
				equal(t, "note", tt.wantNote, all[0].Note)
				equal(t, "object", tt.object, all[0].Regarding.Name)
			})
		})
	}
}

func TestLongInstanceIsClipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		controller := strings.Repeat("a.", 64) + "example.com/waiter"
		r.For(controller).Eventf(pod("vanilla"), nil, corev1.EventTypeNormal, "Long", "Clip", "is long")
		synctest.Wait()
		equal(t, "events", []string{"is long ×1"}, r.recorded())
		equal(t, "controller", controller, r.all()[0].ReportingController)
		equal(t, "instance", controller[:128], r.all()[0].ReportingInstance)
	})
}

func TestEventsOfTheSameMomentHaveNamesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 4)
		waiter := r.For("waiter")
		var telling sync.WaitGroup
		for i := range 10 {
			telling.Go(func() {
				r.tell("vanilla", fmt.Sprint("scoop ", i))
				waiter.Eventf(pod("vanilla"), nil, corev1.EventTypeNormal, "Served", "Serve", "scoop %d", i)
			})
		}
		telling.Wait()
		synctest.Wait()
		equal(t, "number of events", 20, len(r.recorded()))
		for _, recorded := range r.recorded() {
			if !strings.HasSuffix(recorded, "×1") {
				t.Errorf("recorded more than once: %s", recorded)
			}
		}
	})
}

func TestObjectsWithoutAReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		r.Eventf(nil, nil, corev1.EventTypeNormal, "Scooped", "Scoop", "is nothing")
		synctest.Wait()
		equal(t, "events about nothing", nil, r.recorded())
		equal(t, "reports", []string{"recording event Scooped: can't reference a nil object"}, reports.Take())

		r.Eventf(pod("vanilla"), &unregistered{}, corev1.EventTypeNormal, "Scooped", "Scoop", "has an odd friend")
		synctest.Wait()
		equal(t, "events", []string{"has an odd friend ×1"}, r.recorded())
		got := reports.Take()
		if len(got) != 1 || !strings.HasPrefix(got[0], "recording event Scooped: no kind is registered") {
			t.Errorf("reports: %q", got)
		}
	})
}

// unregistered is an object that no scheme knows.
type unregistered struct{ corev1.Pod }

func TestStopping(t *testing.T) {
	type of = map[string][]string
	tests := []struct {
		name        string
		before      func(asked int) failure // until the recorder is told to stop
		after       func(asked int) failure
		want        of
		wantTook    time.Duration
		wantReports []string
	}{{
		name:     "what is left is written, also what was on its way",
		before:   always(hang),
		want:     of{"vanilla": {"melts ×2", "is eaten ×1"}, "chocolate": {"melts ×1"}},
		wantTook: 5 * time.Second,
	}, {
		name:   "what could not be written before",
		before: always(away),
		want:   of{"vanilla": {"melts ×2", "is eaten ×1"}, "chocolate": {"melts ×1"}},
	}, {
		name:     "a server that hangs is not waited for",
		before:   always(hang),
		after:    always(hang),
		want:     of{},
		wantTook: 10 * time.Second,
		wantReports: []string{
			"Event lost: context deadline exceeded",
			"Event lost: context deadline exceeded",
		},
	}, {
		name:   "a server that is away is asked once for each object",
		before: always(away),
		after:  always(away),
		want:   of{},
		wantReports: []string{
			"Event lost: connection refused",
			"Event lost: connection refused",
		},
	}, {
		name:   "what is refused is in nobody's way",
		before: always(away),
		after: func(int) failure {
			return func(r *http.Request, act func() *http.Response) (*http.Response, error) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				if strings.Contains(string(body), "melts") {
					return forbidden(r, act)
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				return act(), nil
			}
		},
		want: of{"vanilla": {"is eaten ×1"}},
		wantReports: []string{
			"Event lost: event Melting of shop/chocolate dropped: no",
			"Event lost: event Melting of shop/vanilla dropped: no",
		},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, 1)
				r.setFail(tt.before)
				r.tell("vanilla", "melts")
				r.tell("vanilla", "melts")
				r.tell("vanilla", "is eaten")
				r.tell("chocolate", "melts")
				kittest.Pass(time.Second)
				reports.Take()
				r.setFail(tt.after)
				begin := time.Now()
				equal(t, "Run", nil, r.stop())
				equal(t, "time taken", tt.wantTook, time.Since(begin))
				equal(t, "events", tt.want, r.recordedOf())
				got := reports.Take()
				for i := range got {
					if msg, cause, ok := strings.Cut(got[i], "http://server"); ok {
						msg, _, _ = strings.Cut(msg, ":")
						got[i] = msg + cause[strings.LastIndex(cause, ": "):]
					}
				}
				slices.Sort(got)
				equal(t, "reports", tt.wantReports, got)
			})
		})
	}
}

// A recorder that stops leaves correct counts behind.
func TestCountsAreWrittenWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		for range 7 {
			r.tell("vanilla", "melts")
			r.tell("chocolate", "melts")
			kittest.Pass(time.Second)
		}
		equal(t, "events before", []string{"melts ×4", "melts ×4"}, r.recorded())
		equal(t, "Run", nil, r.stop())
		equal(t, "events", []string{"melts ×7", "melts ×7"}, r.recorded())
		equal(t, "last seen", time.Now().Add(-time.Second), r.all()[0].Series.LastObservedTime.Time)
	})
}

// An event that has expired or was deleted is created again when it is repeated, with only
// the repetitions that it did not have.
func TestExpiredEventIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		for range 5 {
			r.tell("vanilla", "melts")
			kittest.Pass(time.Second)
		}
		equal(t, "events before", []string{"melts ×4"}, r.recorded())
		r.expire()
		for range 3 {
			r.tell("vanilla", "melts")
			kittest.Pass(time.Second)
		}
		equal(t, "events", []string{"melts ×4"}, r.recorded()) // from the fifth to the eighth
		r.tell("vanilla", "melts")
		r.expire()
		kittest.Pass(time.Hour)
		equal(t, "events that do not go on", nil, r.recorded())
		equal(t, "reports", nil, reports.Take())
		r.tell("vanilla", "melts")
		synctest.Wait()
		equal(t, "an event that comes again", []string{"melts ×1"}, r.recorded())
	})
}

// The repetition comes while the event is being written.
func TestRepetitionOfAnEventThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 1)
		r.setFail(first(func(_ *http.Request, act func() *http.Response) (*http.Response, error) {
			time.Sleep(time.Minute)
			act()
			return nil, io.ErrUnexpectedEOF
		}))
		r.tell("vanilla", "melts")
		synctest.Wait()
		for range 4 {
			r.tell("vanilla", "melts")
		}
		kittest.Pass(2 * time.Minute)
		equal(t, "events", []string{"melts ×5"}, r.recorded())
		equal(t, "requests", 3, r.requests())
	})
}

// The log says how many events were dropped, once for each event that was written instead.
func TestDroppedEventsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		recorder := kitevents.New(s.client(t).Events, scheme.Scheme, clock.RealClock{})
		var log bytes.Buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		ended := make(chan error, 1)
		go func() { ended <- recorder.Run(ctx, 1) }()
		for i := range 125 {
			recorder.For("gadget-controller").Eventf(pod("vanilla"), nil, corev1.EventTypeNormal, "Scooped", "Scoop", "scoop %d", i)
			synctest.Wait()
		}
		kittest.Pass(time.Hour)
		cancel()
		equal(t, "Run", nil, <-ended)
		equal(t, "number of events", 26, len(s.recorded()))
		if lines := strings.Count(log.String(), "Dropped events"); lines != 1 || !strings.Contains(log.String(), "dropped=99") {
			t.Errorf("%d lines about what was dropped, want one about 99 events:\n%s", lines, log.String())
		}
	})
}

func TestEventsBeforeRunAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		recorder := kitevents.New(s.client(t).Events, scheme.Scheme, clock.RealClock{})
		recorder.For("gadget-controller").Eventf(pod("vanilla"), nil, corev1.EventTypeNormal, "Scooped", "Scoop", "early")
		equal(t, "before", nil, s.recorded())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		equal(t, "Run", nil, recorder.Run(ctx, 1))
		equal(t, "afterwards", []string{"early ×1"}, s.recorded())
	})
}

func TestRunRefusesMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := kitevents.New(newServer().client(t).Events, scheme.Scheme, clock.RealClock{})
		equal(t, "no workers", "running events: 0 workers cannot sync anything", fmt.Sprint(recorder.Run(t.Context(), 0)))
	})
}

func TestOptionsOfTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var results []worker.Result
		r := run(t, 1, worker.WithObserver(func(o worker.Outcome) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, o.Result)
		}))
		r.setFail(first(away, forbidden))
		r.tell("vanilla", "melts")
		r.tell("vanilla", "is eaten")
		kittest.Pass(time.Second)
		mu.Lock()
		defer mu.Unlock()
		// The loop may look once more, for the retry that a new event has overtaken.
		equal(t, "results", []worker.Result{worker.Failed, worker.GaveUp, worker.Synced}, slices.Compact(results))
	})
}
