package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/kittest/startup"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}

// A grant that was not used is taken back a minute after its end, which is a Warning. The agent was down, so the
// node waits while others have their turns.
func TestGrantIsTakenBack(t *testing.T) { inCluster(t, nil, testGrantIsTakenBack) }

func testGrantIsTakenBack(t *testing.T, s *scripted) {
	grants := metric(t, "nodereboot_grants_total")[""]
	s.Set(node("a", asked))
	s.Set(node("b"))
	s.run("b")
	time.Sleep(time.Second)
	chosen := *s.node("a").Grant
	s.change("a", recorded(request.Record{BootID: "boot", ID: chosen.ID})) // its last words
	granted := s.node("a")
	if granted.Stage() != request.MayReboot || granted.Grant.ID != chosen.ID || time.Until(granted.Grant.Until).Round(time.Minute) != request.GrantFor {
		t.Fatalf("not granted: %v", granted.Annotations)
	}
	if n := metric(t, "nodereboot_grants_total")[""]; n != grants+1 {
		t.Errorf("%g grants are counted", n-grants)
	}
	s.change("b", asked)
	time.Sleep(time.Until(granted.Grant.Until.Add(request.ClockSkew)) - time.Second)
	if n := s.node("a"); n.Stage() != request.MayReboot {
		t.Errorf("taken back too early: %v", n.Annotations)
	}
	time.Sleep(2 * time.Second)
	if n := s.node("a"); n.Stage() == request.MayReboot || n.Grant.LastGranted.IsZero() {
		t.Errorf("not taken back: %v", n.Annotations)
	}
	time.Sleep(2 * time.Second)
	if granted := s.inStage(request.MayReboot); !slices.Equal(granted, []string{"b"}) {
		t.Errorf("then %v may reboot", granted)
	}
	want := []string{
		"Normal RebootGranted Reboot granted: at most 1 of 2 nodes may be unavailable",
		"Normal RebootWaiting Waiting to reboot (BudgetIsUsedUp): of 2 nodes at most 1 may be unavailable, and 1 other is: a (Granted)",
		"Warning RebootTakenBack The grant until " + granted.Grant.Until.Format(time.RFC3339) + " was taken back: it was not used in time, cannot be used, or is no longer wanted",
		"Normal RebootWaiting Waiting to reboot (AgentSilent): its agent has not begun the reboot that was granted at " + granted.Grant.LastGranted.Format(time.RFC3339),
		"Normal RebootGranted Reboot granted: at most 1 of 2 nodes may be unavailable",
	}
	if diff := cmp.Diff(want, s.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A chosen node whose agent is silent uses up the budget for a minute at a time, ever more rarely.
func TestSilentAgent(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.Set(node("a", asked))
		s.run()
		s.ForgetRequests()
		time.Sleep(24 * time.Hour)
		if n := s.node("a"); n.Grant.Unanswered < 8 || n.Grant.Unanswered > 12 || s.Requests("patch nodes") > 60 {
			t.Errorf("after a day, %d patches, and it has %v", s.Requests("patch nodes"), n.Annotations)
		}
		s.change("a", recorded(request.Record{BootID: "boot", ID: s.node("a").Grant.ID}))
		if n := s.node("a"); n.Stage() == request.NoGrant || n.Grant.Unanswered > 0 {
			t.Errorf("after a late answer, it has %v", n.Annotations)
		}
	})
}

// A node that cannot be written is passed over for some minutes, and the others have their turns. It
// still counts as it did, and its reason says so until it is granted its reboot.
func TestNodeThatCannotBeWritten(t *testing.T) {
	const words = "ValidatingAdmissionPolicy 'protected' with binding 'protected' denied request: hands off"
	denied := apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New(words))
	busy := apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("the object has been modified"))
	byWebhook := apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
	byWebhook.ErrStatus.Message = `admission webhook "nodes.example.com" denied the request: hands off`
	all := func(request.Node) bool { return true }
	isChosen := grant(request.Grant{ID: 1, BootID: "boot", Chosen: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
	isOver := grant(request.Grant{ID: 1, BootID: "boot", Until: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)})
	for name, tt := range map[string]struct {
		args        string
		node        *corev1.Node
		with        error
		refuses     func(after request.Node) bool
		wantGranted []string // besides the node
		wantUsed    bool     // whether the node keeps its part of the budget
	}{
		"a policy refuses all":         {"-max-unavailable=3", node("a", asked), denied, all, []string{"b", "c"}, false},
		"a webhook denies all, by 409": {"-max-unavailable=3", node("a", asked), byWebhook, all, []string{"b", "c"}, false},
		"each write conflicts":         {"-max-unavailable=3", node("a", asked), busy, all, []string{"b", "c"}, false},
		"a policy refuses grants":      {"-max-unavailable=1", node("a", asked), denied, func(n request.Node) bool { return n.Stage() == request.MayReboot }, []string{"b"}, false},
		"it stays chosen":              {"-max-unavailable=2", node("a", asked, isChosen), denied, all, []string{"b"}, true},
		"it stays chosen, by turns":    {"-min-interval=1ns", node("a", asked, isChosen, cordoned), denied, all, nil, true},
		"it stays chosen for nothing":  {"-max-unavailable=2", node("a", isChosen), denied, all, []string{"b"}, true},
		"a grant stays that is over":   {"-max-unavailable=2", node("a", asked, isOver), denied, all, []string{"b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, strings.Fields(tt.args), func(t *testing.T, s *scripted) {
				s.Set(tt.node)
				s.Set(node("b", asked))
				s.Set(node("c", asked))
				var tries atomic.Int64
				s.Admit(func(a apiserver.Admission) error {
					after, isNode := a.Object.(*corev1.Node)
					if !isNode || after.Name != "a" || after.Annotations[request.Granted] == a.Old.GetAnnotations()[request.Granted] || !tt.refuses(request.Read(after)) {
						return nil
					}
					tries.Add(1)
					return tt.with
				})
				s.run("a", "b", "c")
				isTold := 0
				for range 9 {
					time.Sleep(time.Minute)
					s.change("a", with("kubelet", time.Now().String()))
					if metric(t, "nodereboot_needed_seconds")["a Refused"] == 0 && hasKey(metric(t, "nodereboot_needed_seconds"), "a Refused") {
						isTold++
					}
				}
				if isTold < 9 {
					t.Errorf("the metric says so %d times of 9: %v", isTold, metric(t, "nodereboot_needed_seconds"))
				}
				granted := s.inStage(request.MayReboot)
				granted = slices.DeleteFunc(granted, func(name string) bool { return name == "a" })
				isUsed := s.node("a").Stage() != request.NoGrant
				if !slices.Equal(granted, tt.wantGranted) || isUsed != tt.wantUsed || tries.Load() < 2 || tries.Load() > 8 {
					t.Errorf("granted %v, and the node itself counts as unavailable: %t, after %d tries", granted, isUsed, tries.Load())
				}
				told := slices.DeleteFunc(s.events(), func(event string) bool { return !strings.Contains(event, "(Refused)") })
				if len(told) != 1 || !strings.HasSuffix(told[0], tt.with.Error()) {
					t.Errorf("events %q", told)
				}
				s.Admit(nil)
				time.Sleep(2 * time.Hour)
				if hasKey(metric(t, "nodereboot_needed_seconds"), "a Refused") {
					t.Errorf("when it can be written, it has %v", s.node("a").Annotations)
				}
			})
		})
	}
}

func hasKey(m map[string]float64, key string) bool {
	_, isThere := m[key]
	return isThere
}

// Nodes that are always refused do not have the first turns again and again, although there are so many of them
// that it is time to try the first one again when the last one was tried. They are forgotten when they are gone.
func TestManyNodesThatCannotBeWritten(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.onList = func(url.Values) { time.Sleep(11 * time.Second) } // there are thousands
		s.Admit(func(a apiserver.Admission) error {
			if strings.HasPrefix(a.Key.Name, "protected-") {
				return apierrors.NewForbidden(corev1.Resource("nodes"), a.Key.Name, errors.New("hands off"))
			}
			return nil
		})
		for i := range 30 {
			s.Set(node(fmt.Sprintf("protected-%02d", i), asked))
		}
		s.Set(node("worker", asked))
		s.run("worker")
		time.Sleep(time.Hour)
		if n := s.node("worker"); n.Grant == nil || n.Grant.LastGranted.IsZero() {
			t.Errorf("the node that can be written has %v", n.Annotations)
		}
		if n := len(s.observe().Refusals); n != 30 {
			t.Errorf("%d refusals are known", n)
		}
		s.Admit(nil)
		for i := range 30 {
			name := fmt.Sprintf("protected-%02d", i)
			if i%2 == 0 {
				script.Delete[corev1.Node](s.Cluster, "", name, metav1.DeletePropagationBackground)
			} else {
				script.Edit(s.Cluster, "", name, without(request.Needed))
			}
		}
		time.Sleep(time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.refusals); n != 0 {
			t.Errorf("%d refusals are known of nodes that are gone or need nothing", n)
		}
	})
}

// A refused step is not repeated although kubelets keep reporting that nothing has changed. Once a write has
// conflicted, that is normal: it is tried again at once.
func TestOneConflictIsNormal(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.Fail("patch nodes", apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("the object has been modified")))
		s.Set(node("a", asked))
		s.run("a")
		time.Sleep(3 * time.Second)
		if n := s.node("a"); n.Stage() != request.MayReboot {
			t.Errorf("after one conflict, it has %v", n.Annotations)
		}
	})
}

// A wave of nodes costs two lists, not two for each node, and two writes for each node. Lists are read page by page.
func TestWaveCostsTwoLists(t *testing.T) {
	inCluster(t, []string{"-max-unavailable=20"}, func(t *testing.T, s *scripted) {
		var agents, limits []string
		for i := range 30 {
			agents = append(agents, fmt.Sprintf("node-%02d", i))
			s.Set(node(agents[i]))
		}
		s.run(agents...)
		s.onList = func(query url.Values) { limits = append(limits, query.Get("limit")) }
		for _, name := range agents {
			script.Edit(s.Cluster, "", name, asked)
		}
		s.ForgetRequests()
		time.Sleep(10 * time.Second)
		if granted := s.inStage(request.MayReboot); len(granted) != 20 || !slices.Equal(limits, []string{"500", "500"}) || s.Requests("patch nodes") != 40 {
			t.Errorf("%d nodes may reboot after %d patches, and lists of at most %v nodes", len(granted), s.Requests("patch nodes"), limits)
		}
	})
}

// While an alert fires, or Prometheus does not answer, all nodes wait. Prometheus is asked
// once a minute, however often nodes change, and nobody lists nodes.
func TestAlerts(t *testing.T) { inCluster(t, nil, testAlerts) }

func testAlerts(t *testing.T, s *scripted) {
	prometheus := s.prometheus(func(n int64) ([]string, error) {
		switch n {
		case 1, 2:
			return []string{"Disk1", "EtcdNoLeader"}, nil
		case 3:
			return nil, errors.New("no answer")
		default:
			return nil, nil
		}
	})
	requireWaiting := func(want int64, reason string) {
		t.Helper()
		told := s.events()
		if len(told) != 2 || !strings.HasPrefix(told[0], "Normal RebootWaiting Waiting to reboot ("+reason) || !strings.HasPrefix(told[1], "Normal RebootWaiting Waiting to reboot ("+reason) {
			t.Errorf("events %q, want %s", told, reason)
		}
		if n := s.node("a"); n.Stage() != request.NoGrant || prometheus.Load() != want {
			t.Errorf("asked %d times, it goes on with %v", prometheus.Load(), n.Annotations)
		}
	}
	s.Set(node("a", asked))
	s.Set(node("b", asked))
	s.run("a", "b")
	time.Sleep(time.Second)
	s.ForgetRequests()
	for range 10 {
		s.change("b", labeled("time", time.Now().Format("150405")))
	}
	requireWaiting(1, "AlertFires): -prometheus-query returns Disk1, EtcdNoLeader")
	time.Sleep(2 * holdPeriod)
	requireWaiting(3, "AlertsUnknown): -prometheus-query failed: no answer")
	if lists := s.Requests("list nodes"); lists > 0 {
		t.Errorf("nodes are listed %d times", lists)
	}
	time.Sleep(holdPeriod)
	if n := s.node("a"); n.Stage() != request.MayReboot || prometheus.Load() != 6 { // whether it still holds, then to choose a node, then to allow its reboot
		t.Errorf("asked %d times when no alert fires, and it has %v", prometheus.Load(), n.Annotations)
	}
}

// If an alert begins to fire between the two steps, the chosen node is passed over. Its agent was not silent.
func TestAlertBetweenTheSteps(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		prometheus := s.prometheus(func(n int64) ([]string, error) {
			if n == 2 {
				return etcdIsDown(n)
			}
			return nil, nil
		})
		s.Set(node("a", asked))
		s.run("a")
		time.Sleep(holdPeriod / 2)
		if n := s.node("a"); prometheus.Load() != 2 || s.Requests("patch nodes") != 2 || n.Stage() != request.NoGrant || !n.IsNeeded() || n.Grant.Unanswered > 0 {
			t.Errorf("asked %d times, and written %d times; it has %v", prometheus.Load(), s.Requests("patch nodes"), n.Annotations)
		}
	})
}

// An answer counts for the whole sync in which it was asked for, however long that takes.
func TestHoldOutlastsASlowList(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.onList = func(url.Values) { time.Sleep(70 * time.Second) }
		s.prometheus(etcdIsDown)
		s.Set(node("a", asked))
		s.run("a")
		time.Sleep(10 * time.Minute)
		if n := s.node("a"); n.Stage() != request.NoGrant {
			t.Errorf("it goes on with %v while an alert fires", n.Annotations)
		}
	})
}

// A decision by a stale cache that has nothing to do with alerts does not skip the question.
func TestAlertsAreAskedAfterTheLiveDecision(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		prometheus := s.prometheus(etcdIsDown)
		s.Set(node("a", asked, grant(request.Grant{ID: 1, BootID: "boot", Chosen: time.Now()}), recorded(request.Record{BootID: "boot", ID: 1})))
		s.Set(node("b", ready(corev1.ConditionUnknown)))
		s.Hold("nodes")
		s.run() // its first list shows b as it was
		script.Edit(s.Cluster, "", "b", ready(corev1.ConditionTrue))
		time.Sleep(5 * time.Second)
		if n := s.node("a"); n.Stage() == request.MayReboot || prometheus.Load() == 0 {
			t.Errorf("asked %d times, and it goes on with %v", prometheus.Load(), n.Annotations)
		}
	})
}

// A node with a Pod that must not be disturbed waits, and another node takes its turn. A Pod that
// has ended, that has no node yet, or that no selector selects holds back nobody. What is not known holds back all.
func TestBlockingPods(t *testing.T) {
	inCluster(t, []string{"-blocking-pods=job=training; app in (ci)"}, testBlockingPods)
}

func testBlockingPods(t *testing.T, s *scripted) {
	pod := func(name, node, key, value string, phase corev1.PodPhase) {
		s.Set(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, Labels: map[string]string{key: value}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			Status:     corev1.PodStatus{Phase: phase},
		})
	}
	pod("training", "a", "job", "training", corev1.PodRunning)
	pod("built", "b", "app", "ci", corev1.PodSucceeded)
	pod("failed", "b", "job", "training", corev1.PodFailed)
	pod("other", "b", "job", "cleaning", corev1.PodRunning)
	pod("pending", "", "app", "ci", corev1.PodPending)
	s.Fail("list pods", apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no permission")))
	s.Set(node("a", asked))
	s.Set(node("b", asked))
	s.run("a", "b")
	time.Sleep(10 * time.Second)
	if told := s.events(); len(told) != 2 || !strings.Contains(told[0], "Waiting to reboot (PodsUnknown): it is not known which Pods run") {
		t.Errorf("events %s", told)
	}
	time.Sleep(holdPeriod)
	if granted := s.inStage(request.MayReboot); !slices.Equal(granted, []string{"b"}) {
		t.Errorf("%v may reboot", granted)
	}
	if told := strings.Join(s.events(), "\n"); !strings.Contains(told, "Waiting to reboot (PodRuns): the Pod ml/training runs on the node and must not be disturbed") {
		t.Errorf("events %s", told)
	}
	script.Delete[corev1.Pod](s.Cluster, "ml", "training", metav1.DeletePropagationBackground)
	s.change("b", without(request.Needed))
	time.Sleep(holdPeriod)
	if n := s.node("a"); n.Stage() != request.MayReboot {
		t.Errorf("it has %v when the Pod has ended", n.Annotations)
	}
}
