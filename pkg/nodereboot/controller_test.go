package nodereboot

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
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

	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
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

// A step that the API server refuses is retried with back-off, although kubelets keep
// reporting that nothing has changed.
func TestRefusedStepBacksOff(t *testing.T) { inCluster(t, nil, testRefusedStepBacksOff) }

func testRefusedStepBacksOff(t *testing.T, s *scripted) {
	s.Refuse(func(request string) error {
		if request == "patch nodes" {
			return apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New("a policy denies it"))
		}
		return nil
	})
	s.Set(node("a", needed))
	s.Set(node("b"))
	s.run("a")
	time.Sleep(time.Minute)
	s.ForgetRequests()
	for i := range 60 {
		time.Sleep(time.Second)
		script.Edit(s.Cluster, "", "b", func(n *corev1.Node) {
			n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
			n.Status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprint(i)}}}
		})
	}
	if repeated := s.Requests("patch nodes"); repeated == 0 || repeated > 3 {
		t.Errorf("the step was repeated %d times within a minute", repeated)
	}
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
