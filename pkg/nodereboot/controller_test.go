package nodereboot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Why a node waits is recorded once for each reason; the metrics always say it.
func TestWaitingIsRecordedOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	kube := fake.NewClientset(node("a", needed), node("b", with(request.Now, "")))
	factory := kubeinformers.NewSharedInformerFactory(kube, 0)
	nodes := factory.Core().V1().Nodes()
	c, err := NewController(Config{MaxUnavailable: intstr.FromInt32(1)}, kube.CoreV1().Nodes(), kube.CoreV1().Pods(metav1.NamespaceAll), informer.Of[*corev1.Node](nodes.Informer()), informer.Of[*coordinationv1.Lease](factory.Coordination().V1().Leases().Informer()), recorder, clocktesting.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	c.trackAgent(nil, report("a", noon), func() {})
	show := func(all ...*corev1.Node) {
		for _, n := range all {
			if err := nodes.Informer().GetStore().Add(n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.sync(t.Context(), cache.ObjectName{Name: "nodes"}); err != nil {
			t.Fatal(err)
		}
	}
	requireEvents := func(want ...string) {
		t.Helper()
		for _, event := range want {
			select {
			case got := <-recorder.Events:
				if got != event {
					t.Errorf("recorded %q, want %q", got, event)
				}
			default:
				t.Errorf("not recorded: %q", event)
			}
		}
		if len(recorder.Events) > 0 {
			t.Errorf("also recorded: %q", <-recorder.Events)
		}
	}
	show(node("a", needed), node("b", with(request.Now, "")))
	requireEvents("Normal RebootWaiting Waiting to reboot (BudgetIsUsedUp): of 2 nodes at most 1 may be unavailable, and 1 other is: b (Granted)")
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP nodereboot_budget_nodes [ALPHA] How many nodes may be unavailable.
# TYPE nodereboot_budget_nodes gauge
nodereboot_budget_nodes 1
# HELP nodereboot_unavailable_nodes [ALPHA] Nodes that count as unavailable, by reason.
# TYPE nodereboot_unavailable_nodes gauge
nodereboot_unavailable_nodes{reason="Chosen"} 0
nodereboot_unavailable_nodes{reason="Cordoned"} 0
nodereboot_unavailable_nodes{reason="Granted"} 1
nodereboot_unavailable_nodes{reason="NotReady"} 0
nodereboot_unavailable_nodes{reason="Rebooting"} 0
nodereboot_unavailable_nodes{reason="Settling"} 0
# HELP nodereboot_waiting_nodes [ALPHA] Nodes that need a reboot and may not have it yet, by reason.
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
nodereboot_waiting_nodes{reason="StillRebooting"} 0
nodereboot_waiting_nodes{reason="TooSoon"} 0
nodereboot_waiting_nodes{reason="WindowClosed"} 0
`), "nodereboot_budget_nodes", "nodereboot_unavailable_nodes", "nodereboot_waiting_nodes"); err != nil {
		t.Error(err)
	}
	show(node("b", with(request.InProgress, "x")))
	requireEvents()
	show(node("a", with(request.Needed, noon.Add(time.Hour).Format(time.RFC3339))))
	requireEvents("Normal RebootWaiting Waiting to reboot (NotBefore): the reboot was requested for 2026-07-01T13:00:00Z or later")

	live := node("b")
	if _, err := kube.CoreV1().Nodes().Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	show(node("a", needed), live)
	requireEvents()
	show()
	requireEvents("Normal RebootGranted May reboot now: 1 of 2 nodes may be unavailable, and 0 others are")
	granted, err := kube.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || granted.Annotations[request.Now] != "2026-07-01T12:00:00Z" || request.IsNeeded(granted) {
		t.Errorf("annotations %v, error %v", granted.Annotations, err)
	}
}

// A live list of all nodes is read page by page, and what is not needed is not kept.
func TestListsArePaged(t *testing.T) {
	var pages []int64
	kube := &fake.Clientset{}
	kube.AddReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
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
	factory := kubeinformers.NewSharedInformerFactory(kube, 0)
	c, err := NewController(Config{MaxUnavailable: intstr.FromInt32(1)}, kube.CoreV1().Nodes(), kube.CoreV1().Pods(metav1.NamespaceAll), informer.Of[*corev1.Node](factory.Core().V1().Nodes().Informer()), informer.Of[*coordinationv1.Lease](factory.Coordination().V1().Leases().Informer()), &events.FakeRecorder{}, clocktesting.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := c.recheckLive(t.Context())
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

// report returns an agent's Lease.
func report(node string, at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(at))}}
}

// When an agent last reported is measured by this process's clock. The agent's own time
// counts only for a Lease that this process sees for the first time, and only if it has
// passed.
func TestAgentsAreTracked(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	kube := &fake.Clientset{}
	factory := kubeinformers.NewSharedInformerFactory(kube, 0)
	c, err := NewController(Config{}, kube.CoreV1().Nodes(), kube.CoreV1().Pods(metav1.NamespaceAll), informer.Of[*corev1.Node](factory.Core().V1().Nodes().Informer()), informer.Of[*coordinationv1.Lease](factory.Coordination().V1().Leases().Informer()), &events.FakeRecorder{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	hear := func(before, after *coordinationv1.Lease) { c.trackAgent(before, after, func() { looks++ }) }
	long, ahead, behind := report("long-ago", noon.Add(-time.Hour)), report("ahead", noon.Add(time.Hour)), report("behind", noon.Add(-time.Hour))
	hear(nil, long)
	hear(nil, ahead)
	hear(nil, behind)
	if looks != 3 {
		t.Errorf("%d syncs after 3 new agents, want 3", looks)
	}
	clock.Step(time.Minute)
	hear(long, long.DeepCopy()) // a resync is not a report
	hear(behind, report("behind", noon.Add(-59*time.Minute)))
	want := map[string]time.Time{"long-ago": noon.Add(-time.Hour), "ahead": noon, "behind": noon.Add(time.Minute)}
	if diff := cmp.Diff(want, c.lastReport); diff != "" {
		t.Errorf("last reports (-want +got):\n%s", diff)
	}
	hear(ahead, report("ahead", noon.Add(2*time.Hour)))
	if looks != 4 {
		t.Errorf("%d syncs, want one more for the agent that was silent, and none for the other", looks)
	}
	c.forgetAgent("ahead")
	if _, isKnown := c.lastReport["ahead"]; isKnown {
		t.Error("a node that was deleted is remembered")
	}
}

// Since when a node has been available is measured by this process's clock, too.
func TestNodesAreTracked(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	kube := &fake.Clientset{}
	factory := kubeinformers.NewSharedInformerFactory(kube, 0)
	c, err := NewController(Config{}, kube.CoreV1().Nodes(), kube.CoreV1().Pods(metav1.NamespaceAll), informer.Of[*corev1.Node](factory.Core().V1().Nodes().Informer()), informer.Of[*coordinationv1.Lease](factory.Coordination().V1().Leases().Informer()), &events.FakeRecorder{}, clock)
	if err != nil {
		t.Fatal(err)
	}
	since := func(at time.Time) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at) }
	}
	see := func(before, after *corev1.Node, want time.Time) {
		t.Helper()
		c.trackNode(before, after)
		if got := c.availableSince["a"]; !got.Equal(want) {
			t.Errorf("available since %s, want %s", got, want)
		}
	}
	hourAgo := node("a", since(noon.Add(-time.Hour)))
	see(nil, hourAgo, noon.Add(-time.Hour))
	clock.Step(time.Minute)
	see(hourAgo, hourAgo.DeepCopy(), noon.Add(-time.Hour))
	down := node("a", ready(corev1.ConditionUnknown))
	see(hourAgo, down, time.Time{})
	see(down, hourAgo, noon.Add(time.Minute)) // whatever the node's clock says after the reboot
	clock.Step(time.Minute)
	rebooting := node("a", with(request.InProgress, "x"))
	see(hourAgo, rebooting, time.Time{})
	see(rebooting, hourAgo, noon.Add(2*time.Minute))
	see(hourAgo, nil, time.Time{})
	see(nil, node("a", since(noon.Add(time.Hour))), noon.Add(2*time.Minute))
}
