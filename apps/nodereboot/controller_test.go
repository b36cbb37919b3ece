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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

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

// report returns an agent's Lease.
func report(node string, at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: node}, Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(at))}}
}

// annotate makes these the only annotations of a node: pairs of a name and a value.
func (s *scripted) annotate(name string, pairs ...string) {
	script.Edit(s.Cluster, "", name, func(n *corev1.Node) {
		n.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			n.Annotations[pairs[i]] = pairs[i+1]
		}
	})
	time.Sleep(time.Second)
}

// Why a node waits is recorded once for each reason; the metrics always say it.
func TestWaitingIsRecordedOnce(t *testing.T) { inCluster(t, nil, testWaitingIsRecordedOnce) }

func testWaitingIsRecordedOnce(t *testing.T, s *scripted) {
	requireEvents := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, s.events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	s.Set(node("a", needed))
	s.Set(node("b", with(request.Now, "")))
	s.run("a", "b")
	time.Sleep(time.Second)
	requireEvents("Normal RebootWaiting Waiting to reboot (BudgetIsUsedUp): of 2 nodes at most 1 may be unavailable, and 1 other is: b (Granted)")
	requireGauge := func(name string, reasons []string, the string) {
		t.Helper()
		want := map[string]float64{}
		for _, reason := range reasons {
			want[reason] = 0
		}
		want[the] = 1
		if diff := cmp.Diff(want, gauge(t, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	requireGauge("nodereboot_budget_nodes", nil, "")
	requireGauge("nodereboot_unavailable_nodes", Unavailabilities, Granted)
	requireGauge("nodereboot_waiting_nodes", Reasons, BudgetIsUsedUp)
	s.annotate("b", request.InProgress, "x")
	requireEvents()
	s.annotate("a", request.Needed, "2000-01-01T01:00:00Z")
	requireEvents("Normal RebootWaiting Waiting to reboot (NotBefore): the reboot was requested for 2000-01-01T01:00:00Z or later")

	s.annotate("b")
	s.annotate("a", request.Needed, "")
	requireEvents("Normal RebootGranted Reboot granted: at most 1 of 2 nodes may be unavailable, and 0 others are")
	granted := s.node("a")
	if until, err := request.Until(granted); err != nil || time.Until(until).Round(time.Minute) != request.GrantFor || request.IsNeeded(granted) {
		t.Errorf("annotations %v", granted.Annotations)
	}
}

// A grant that is over is taken back while the agent is down, which is a Warning. The node
// has asked already, and no longer uses up the budget.
func TestGrantIsTakenBack(t *testing.T) { inCluster(t, nil, testGrantIsTakenBack) }

func testGrantIsTakenBack(t *testing.T, s *scripted) {
	s.Set(node("a", needed))
	s.Set(node("b"))
	s.begin("a")
	time.Sleep(time.Second)
	granted := s.node("a")
	until, err := request.Until(granted)
	if err != nil || !request.IsGranted(granted) || time.Until(until).Round(time.Minute) != request.GrantFor {
		t.Fatalf("granted until %s: %v, %v", until, granted.Annotations, err)
	}
	time.Sleep(time.Until(until.Add(request.ClockSkew)) - time.Second)
	if n := s.node("a"); !request.IsGranted(n) {
		t.Errorf("taken back too early: %v", n.Annotations)
	}
	time.Sleep(2 * time.Second)
	if n := s.node("a"); request.IsGranted(n) || !request.IsNeeded(n) || request.LastGranted(n).IsZero() {
		t.Errorf("not taken back: %v", n.Annotations)
	}
	s.report("b")
	s.annotate("b", request.Needed, "")
	if n := s.node("b"); !request.IsGranted(n) {
		t.Errorf("b is not granted its reboot: %v", n.Annotations)
	}
	if told := strings.Join(s.events(), "\n"); !strings.Contains(told, "Warning RebootTakenBack The grant expired at "+granted.Annotations[request.Now]+" before the agent started the reboot; the node is queued again") {
		t.Errorf("there is no Warning in %s", told)
	}
}

// A node that cannot be written is passed over for some minutes, and the others have their turns. It
// still counts as it did, and its reason says so until it is granted its reboot.
func TestNodeThatCannotBeWritten(t *testing.T) {
	const words = "ValidatingAdmissionPolicy 'protected' with binding 'protected' denied request: hands off"
	denied := apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New(words))
	busy := apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("the object has been modified"))
	byWebhook := apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
	byWebhook.ErrStatus.Message = `admission webhook "nodes.example.com" denied the request: hands off`
	all := func(*corev1.Node) bool { return true }
	for name, tt := range map[string]struct {
		budget      string
		node        *corev1.Node
		with        error
		refuses     func(after *corev1.Node) bool
		wantGranted []string // besides the node
		wantUsed    bool     // whether the node keeps its part of the budget
	}{
		"a policy refuses all":         {"3", node("a", needed), denied, all, []string{"b", "c"}, false},
		"a webhook denies all, by 409": {"3", node("a", needed), byWebhook, all, []string{"b", "c"}, false},
		"each write conflicts":         {"3", node("a", needed), busy, all, []string{"b", "c"}, false},
		"a policy refuses grants":      {"3", node("a", needed), denied, request.IsGranted, []string{"b", "c"}, false},
		"it stays chosen":              {"2", node("a", needed, next), denied, all, []string{"b"}, true},
		"it stays chosen for nothing":  {"2", node("a", next), denied, all, []string{"b"}, true},
		"a grant stays that is over":   {"2", node("a", with(request.Now, "2000-01-01T00:00:00Z")), denied, all, []string{"b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, []string{"-max-unavailable=" + tt.budget}, func(t *testing.T, s *scripted) {
				s.Set(tt.node)
				s.Set(node("b", needed))
				s.Set(node("c", needed))
				var tries atomic.Int64
				s.Admit(func(a apiserver.Admission) error {
					after, isNode := a.Object.(*corev1.Node)
					if !isNode || after.Name != "a" || !tt.refuses(after) {
						return nil
					}
					if after.Annotations["kubelet"] != a.Old.GetAnnotations()["kubelet"] {
						return nil
					}
					tries.Add(1)
					return tt.with
				})
				s.run("a", "b", "c")
				for range 9 {
					time.Sleep(time.Minute)
					script.Edit(s.Cluster, "", "a", with("kubelet", time.Now().String()))
				}
				var granted []string
				for _, name := range []string{"b", "c"} {
					if request.IsGranted(s.node(name)) {
						granted = append(granted, name)
					}
				}
				isUsed := usedBy(s.node("a")) != ""
				if !slices.Equal(granted, tt.wantGranted) || isUsed != tt.wantUsed || tries.Load() < 2 || tries.Load() > 6 {
					t.Errorf("granted %v, and the node itself counts as unavailable: %t, after %d tries", granted, isUsed, tries.Load())
				}
				told := slices.DeleteFunc(s.events(), func(event string) bool { return !strings.Contains(event, "(Refused)") })
				if len(told) != 1 || !strings.HasSuffix(told[0], tt.with.Error()) {
					t.Errorf("events %q", told)
				}
				if n := gauge(t, "nodereboot_waiting_nodes")[Refused]; n != 1 {
					t.Errorf("%g nodes wait because of that", n)
				}
				s.Admit(nil)
				time.Sleep(20 * time.Minute)
				if n := gauge(t, "nodereboot_waiting_nodes")[Refused]; n != 0 {
					t.Errorf("when it can be written, it has %v, and %g nodes wait because of that", s.node("a").Annotations, n)
				}
			})
		})
	}
}

// Nodes that are always refused do not have the first turns again and again, although there are
// more of them than the back-off lets pass before the first one is tried again. The reason of
// each lasts while it is tried.
func TestManyNodesThatCannotBeWritten(t *testing.T) {
	inCluster(t, []string{"-max-unavailable=2"}, func(t *testing.T, s *scripted) {
		s.Admit(func(a apiserver.Admission) error {
			if strings.HasPrefix(a.Key.Name, "protected-") && a.Key.Resource.Resource == "nodes" {
				return apierrors.NewForbidden(corev1.Resource("nodes"), a.Key.Name, errors.New("hands off"))
			}
			return nil
		})
		agents := []string{"worker"}
		for i := range 20 {
			agents = append(agents, fmt.Sprintf("protected-%02d", i))
		}
		for _, name := range agents {
			s.Set(node(name, needed))
		}
		var isLater atomic.Bool
		s.onList = func(url.Values) {
			if !isLater.Load() {
				return
			}
			if n := gauge(t, "nodereboot_waiting_nodes")[Refused]; n != 20 {
				t.Errorf("while one is tried, %g nodes wait because of that", n)
			}
		}
		s.run(agents...)
		time.Sleep(40 * time.Minute)
		isLater.Store(true)
		if n := s.node("worker"); request.LastGranted(n).IsZero() {
			t.Errorf("the node that can be written has %v", n.Annotations)
		}
		time.Sleep(10 * time.Minute)
	})
}

// What is known about refusals ends with the need for a reboot, and with the node.
func TestRefusalsAreForgotten(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		asks, is := node("a", needed), node("a")
		chosen := node("a", next)
		denied := apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New("hands off"))
		require := func(when string, want int) {
			t.Helper()
			if got := len(s.refusals); got != want {
				t.Errorf("%s: %d refusals are known, want %d", when, got, want)
			}
		}
		s.trackRefusal(Decision{Step: Choose, Node: asks}, errors.New("the connection was lost"))
		require("nobody has refused it", 0)
		s.trackRefusal(Decision{Step: Choose, Node: asks}, denied)
		s.trackNode(asks, chosen)
		s.trackRefusal(Decision{Step: PassOver, Node: asks}, nil)
		require("it is not granted", 1)
		s.trackNode(chosen, is)
		require("it needs no reboot", 0)
		s.trackRefusal(Decision{Step: Choose, Node: asks}, denied)
		s.trackRefusal(Decision{Step: Grant, Node: asks}, nil)
		require("it is granted", 0)
		s.trackRefusal(Decision{Step: Choose, Node: asks}, denied)
		s.trackNode(asks, nil)
		require("it is gone", 0)
	})
}

// A refused step is tried again after some minutes, although kubelets keep reporting that nothing
// has changed. Once a write has conflicted, that is normal: it is tried again at once.
func TestRefusedStepIsRepeatedLater(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.Fail("patch nodes", apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("the object has been modified")))
		s.Set(node("a", needed))
		s.Set(node("b"))
		s.run("a")
		time.Sleep(time.Second)
		if n := s.node("a"); !request.IsGranted(n) {
			t.Errorf("after one conflict, it has %v", n.Annotations)
		}
		s.Refuse(func(request string) error {
			if request == "patch nodes" {
				return apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New("a policy denies it"))
			}
			return nil
		})
		s.annotate("a", request.Needed, "")
		s.ForgetRequests()
		for i := range 600 {
			time.Sleep(time.Second)
			script.Edit(s.Cluster, "", "b", func(n *corev1.Node) {
				n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
				n.Status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprint(i)}}}
			})
		}
		if repeated := s.Requests("patch nodes"); repeated != 2 {
			t.Errorf("the step was repeated %d times within ten minutes", repeated)
		}
	})
}

// A live list of all nodes is read page by page, and what is not needed is not kept.
func TestListsArePaged(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		s.Set(node("a", func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}} }))
		var limits []string
		s.onList = func(query url.Values) { limits = append(limits, query.Get("limit")) }
		fresh, err := s.recheckLive(t.Context())
		if err != nil || len(fresh.Nodes) != 1 || fresh.Nodes[0].Status.Images != nil || !slices.Equal(limits, []string{"500"}) {
			t.Errorf("%v by lists of at most %v nodes: %v", fresh.Nodes, limits, err)
		}
	})
}

// When an agent last reported is measured by this process's clock. The agent's own time
// counts only for a Lease that this process sees for the first time, and only if it has
// passed.
func TestAgentsAreTracked(t *testing.T) { inCluster(t, nil, testAgentsAreTracked) }

func testAgentsAreTracked(t *testing.T, r *scripted) {
	start := time.Now()
	hear := func(before, after *coordinationv1.Lease, wantSilent bool) {
		t.Helper()
		if wasSilent := r.trackAgent(before, after); wasSilent != wantSilent {
			t.Errorf("%s was silent: %t", after.Name, wasSilent)
		}
	}
	long, ahead, behind := report("long-ago", start.Add(-time.Hour)), report("ahead", start.Add(time.Hour)), report("behind", start.Add(-time.Hour))
	hear(nil, long, true)
	hear(nil, ahead, true)
	hear(nil, behind, true)
	time.Sleep(time.Minute)
	hear(long, long.DeepCopy(), false) // a resync is not a report
	hear(behind, report("behind", start.Add(-59*time.Minute)), true)
	want := map[string]time.Time{"long-ago": start.Add(-time.Hour), "ahead": start, "behind": start.Add(time.Minute)}
	if diff := cmp.Diff(want, r.lastReport); diff != "" {
		t.Errorf("last reports (-want +got):\n%s", diff)
	}
	hear(ahead, report("ahead", start.Add(2*time.Hour)), false)
	r.forgetAgent("ahead")
	if _, isKnown := r.lastReport["ahead"]; isKnown {
		t.Error("an agent whose Lease was deleted is remembered")
	}
}

// Since when a node has been available is measured by this process's clock, too.
func TestNodesAreTracked(t *testing.T) { inCluster(t, nil, testNodesAreTracked) }

func testNodesAreTracked(t *testing.T, r *scripted) {
	start := time.Now()
	since := func(at time.Time) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at) }
	}
	see := func(before, after *corev1.Node, want time.Time) {
		t.Helper()
		r.trackNode(before, after)
		if got := r.availableSince["a"]; !got.Equal(want) {
			t.Errorf("available since %s, want %s", got, want)
		}
	}
	hourAgo := node("a", since(start.Add(-time.Hour)))
	see(nil, hourAgo, start.Add(-time.Hour))
	time.Sleep(time.Minute)
	see(hourAgo, hourAgo.DeepCopy(), start.Add(-time.Hour))
	down := node("a", ready(corev1.ConditionUnknown))
	see(hourAgo, down, time.Time{})
	see(down, hourAgo, start.Add(time.Minute)) // whatever the node's clock says after the reboot
	time.Sleep(time.Minute)
	booted := func(boot string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.NodeInfo.BootID = boot }
	}
	rebooting, isUp := node("a", booted("old"), with(request.InProgress, "x")), node("a", booted("new"), with(request.InProgress, "x"))
	see(hourAgo, rebooting, start.Add(time.Minute))
	see(rebooting, node("a", booted("old")), start.Add(time.Minute)) // given up
	see(hourAgo, rebooting, start.Add(time.Minute))
	see(rebooting, isUp, start.Add(time.Minute))
	see(isUp, node("a", booted("new")), start.Add(2*time.Minute))
	see(hourAgo, nil, time.Time{})
	see(nil, node("a", since(start.Add(time.Hour))), start.Add(2*time.Minute))
	see(node("a"), node("a", func(n *corev1.Node) { n.UID = types.UID("another") }), time.Time{})
}

func TestStartup(t *testing.T) {
	startup.Test(t, func(ctx context.Context, args []string) error { return newProgram().Run(ctx, args) })
}
