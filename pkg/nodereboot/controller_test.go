package nodereboot

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// rig is a controller with an API server that has these nodes. Its informers run only after
// start: until then, a test fills the cache and calls sync.
type rig struct {
	*Controller
	kube      *fake.Clientset
	informers kubeinformers.SharedInformerFactory
	cache     cache.Store
	events    chan string
	hasRun    bool
}

func newRig(t *testing.T, args []string, nodes ...*corev1.Node) *rig {
	t.Helper()
	var config Config
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	addFlags(flags, &config)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &rig{kube: fake.NewClientset(), events: make(chan string, 100)}
	for _, n := range nodes {
		if _, err := r.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.informers = kubeinformers.NewSharedInformerFactory(r.kube, 0)
	c, err := NewController(config, r.kube, &record.FakeRecorder{Events: r.events}, r.informers, r.informers)
	if err != nil {
		t.Fatal(err)
	}
	r.Controller, r.cache = c, r.informers.Core().V1().Nodes().Informer().GetStore()
	t.Cleanup(func() {
		if !r.hasRun {
			stop(c)
		}
	})
	return r
}

// stop ends the goroutines of the queue of a controller that has not run.
func stop(c *Controller) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Run(ctx, 1)
}

// start runs the informers and the controller until the test ends.
func (r *rig) start(t *testing.T) {
	r.hasRun = true
	ctx, cancel := context.WithCancel(t.Context())
	r.informers.StartWithContext(ctx)
	ended := make(chan error)
	go func() { ended <- r.Run(ctx, 1) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.informers.Shutdown()
	})
}

// show adds nodes to the cache.
func (r *rig) show(t *testing.T, nodes ...*corev1.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := r.cache.Add(n); err != nil {
			t.Fatal(err)
		}
	}
}

// get returns a node as stored.
func (r *rig) get(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node, err := r.kube.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// update changes a node as stored.
func (r *rig) update(t *testing.T, n *corev1.Node) {
	t.Helper()
	if _, err := r.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// renew creates or renews an agent's Lease.
func (r *rig) renew(t *testing.T, name string) {
	t.Helper()
	leases := r.kube.CoordinationV1().Leases("agents")
	_, err := leases.Create(t.Context(), report(name, time.Now()), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = leases.Update(t.Context(), report(name, time.Now()), metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// agentsReport makes the agents of all nodes report now.
func (r *rig) agentsReport(names ...string) {
	for _, name := range names {
		r.trackAgent(nil, report(name, time.Now()))
	}
}

// report returns an agent's Lease.
func report(node string, at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: node}, Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(at))}}
}

// Why a node waits is recorded once for each reason; the metrics always say it.
func TestWaitingIsRecordedOnce(t *testing.T) { synctest.Test(t, testWaitingIsRecordedOnce) }

func testWaitingIsRecordedOnce(t *testing.T) {
	rebooting := node("b", with(request.Now, ""))
	r := newRig(t, nil, node("a", needed), rebooting)
	r.agentsReport("a")
	sync := func(cached ...*corev1.Node) {
		t.Helper()
		r.show(t, cached...)
		if _, err := r.sync(t.Context(), allNodes); err != nil {
			t.Fatal(err)
		}
	}
	requireEvents := func(want ...string) {
		t.Helper()
		var got []string
		for len(r.events) > 0 {
			got = append(got, <-r.events)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	}
	sync(node("a", needed), rebooting)
	requireEvents("Normal RebootWaiting Waiting to reboot (BudgetIsUsedUp): of 2 nodes at most 1 may be unavailable, and 1 other is: b (Granted)")
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP nodereboot_budget_nodes How many nodes may be unavailable.
# TYPE nodereboot_budget_nodes gauge
nodereboot_budget_nodes 1
# HELP nodereboot_unavailable_nodes Nodes that count as unavailable, by reason.
# TYPE nodereboot_unavailable_nodes gauge
nodereboot_unavailable_nodes{reason="Chosen"} 0
nodereboot_unavailable_nodes{reason="Cordoned"} 0
nodereboot_unavailable_nodes{reason="Granted"} 1
nodereboot_unavailable_nodes{reason="NotReady"} 0
nodereboot_unavailable_nodes{reason="Rebooting"} 0
nodereboot_unavailable_nodes{reason="Settling"} 0
# HELP nodereboot_waiting_nodes Nodes that need a reboot and may not have it yet, by reason.
# TYPE nodereboot_waiting_nodes gauge
nodereboot_waiting_nodes{reason="AgentSilent"} 0
nodereboot_waiting_nodes{reason="AlertFires"} 0
nodereboot_waiting_nodes{reason="AlertsUnknown"} 0
nodereboot_waiting_nodes{reason="BadTime"} 0
nodereboot_waiting_nodes{reason="BudgetIsUsedUp"} 1
nodereboot_waiting_nodes{reason="BudgetIsZero"} 0
nodereboot_waiting_nodes{reason="InLine"} 0
nodereboot_waiting_nodes{reason="NotBefore"} 0
nodereboot_waiting_nodes{reason="PodRuns"} 0
nodereboot_waiting_nodes{reason="PodsUnknown"} 0
nodereboot_waiting_nodes{reason="RebootFailed"} 0
nodereboot_waiting_nodes{reason="StillRebooting"} 0
nodereboot_waiting_nodes{reason="TooSoon"} 0
nodereboot_waiting_nodes{reason="WindowClosed"} 0
`), "nodereboot_budget_nodes", "nodereboot_unavailable_nodes", "nodereboot_waiting_nodes"); err != nil {
		t.Error(err)
	}
	sync(node("b", with(request.InProgress, "x")))
	requireEvents()
	sync(node("a", with(request.Needed, "2000-01-01T01:00:00Z")))
	requireEvents("Normal RebootWaiting Waiting to reboot (NotBefore): the reboot was requested for 2000-01-01T01:00:00Z or later")

	back := node("b")
	r.update(t, back)
	sync(node("a", needed), back) // chooses a
	requireEvents()
	sync()
	requireEvents("Normal RebootGranted May reboot now: 1 of 2 nodes may be unavailable, and 0 others are")
	if granted := r.get(t, "a"); granted.Annotations[request.Now] != "2000-01-01T00:10:00Z" || request.IsNeeded(granted) {
		t.Errorf("annotations %v", granted.Annotations)
	}
}

// A grant that is over is taken back while the agent is down, which is a Warning. The node
// has asked already, and no longer uses up the budget.
func TestGrantIsTakenBack(t *testing.T) { synctest.Test(t, testGrantIsTakenBack) }

func testGrantIsTakenBack(t *testing.T) {
	r := newRig(t, nil, node("a", needed), node("b"))
	r.renew(t, "a")
	r.start(t)
	time.Sleep(time.Second)
	granted := r.get(t, "a")
	until, err := request.Until(granted)
	if err != nil || !request.IsGranted(granted) || time.Until(until).Round(time.Minute) != request.GrantFor {
		t.Fatalf("granted until %s: %v, %v", until, granted.Annotations, err)
	}
	time.Sleep(time.Until(until.Add(request.ClockSkew)) - time.Second)
	if n := r.get(t, "a"); !request.IsGranted(n) {
		t.Errorf("taken back too early: %v", n.Annotations)
	}
	time.Sleep(2 * time.Second)
	if n := r.get(t, "a"); request.IsGranted(n) || !request.IsNeeded(n) || request.LastGranted(n).IsZero() {
		t.Errorf("not taken back: %v", n.Annotations)
	}
	r.update(t, node("b", needed))
	r.renew(t, "b")
	time.Sleep(time.Second)
	if n := r.get(t, "b"); !request.IsGranted(n) {
		t.Errorf("b is not granted its reboot: %v", n.Annotations)
	}
	isWarned := false
	for len(r.events) > 0 {
		isWarned = <-r.events == "Warning RebootTakenBack The agent could begin the reboot until "+granted.Annotations[request.Now]+" and has not; the node waits for another turn" || isWarned
	}
	if !isWarned {
		t.Error("there is no Warning")
	}

	// It runs again: the node has its turn after b.
	r.renew(t, "a")
	r.update(t, node("b"))
	time.Sleep(time.Second)
	if n := r.get(t, "a"); !request.IsGranted(n) {
		t.Errorf("not granted again: %v", n.Annotations)
	}
}

// A step that the API server refuses is retried with back-off, although kubelets keep
// reporting that nothing has changed.
func TestRefusedStepBacksOff(t *testing.T) { synctest.Test(t, testRefusedStepBacksOff) }

func testRefusedStepBacksOff(t *testing.T) {
	r := newRig(t, nil, node("a", needed), node("b"))
	var refused atomic.Int64
	r.kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		refused.Add(1)
		return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "a", errors.New("a policy denies it"))
	})
	r.renew(t, "a")
	r.start(t)
	time.Sleep(time.Minute)
	before := refused.Load()
	for i := range 60 {
		time.Sleep(time.Second)
		r.agentsReport("a")
		reported := r.get(t, "b")
		reported.ResourceVersion = fmt.Sprint(i)
		reported.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		reported.Status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprint(i)}}}
		if _, err := r.kube.CoreV1().Nodes().UpdateStatus(t.Context(), reported, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if repeated := refused.Load() - before; repeated == 0 || repeated > 3 {
		t.Errorf("the step was repeated %d times within a minute", repeated)
	}
}

// A live list of all nodes is read page by page, and what is not needed is not kept.
func TestListsArePaged(t *testing.T) {
	r := newRig(t, nil)
	var pages []int64
	r.kube.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		pages = append(pages, options.Limit)
		list := &corev1.NodeList{}
		for i := range min(options.Limit, 600) {
			n := node(fmt.Sprintf("node-%s-%d", options.Continue, i), needed)
			n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
			list.Items = append(list.Items, *n)
		}
		if len(pages) < 3 {
			list.Continue = fmt.Sprint("page-", len(pages))
		}
		return true, list, nil
	})
	fresh, err := r.recheckLive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := Decide(fresh)
	if diff := cmp.Diff([]int64{500, 500, 500}, pages); diff != "" || d.Nodes != 1500 {
		t.Errorf("%d nodes, by pages of (-want +got):\n%s", d.Nodes, diff)
	}
	for _, w := range d.Waiting {
		if w.Node.Status.Images != nil {
			t.Fatalf("%s is kept with its images", w.Node.Name)
		}
	}
}

// When an agent last reported is measured by this process's clock. The agent's own time
// counts only for a Lease that this process sees for the first time, and only if it has
// passed.
func TestAgentsAreTracked(t *testing.T) { synctest.Test(t, testAgentsAreTracked) }

func testAgentsAreTracked(t *testing.T) {
	r, start := newRig(t, nil), time.Now()
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
func TestNodesAreTracked(t *testing.T) { synctest.Test(t, testNodesAreTracked) }

func testNodesAreTracked(t *testing.T) {
	r, start := newRig(t, nil), time.Now()
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
