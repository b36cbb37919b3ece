package nodereboot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Each node is told why it waits, once for each reason; the metrics say it all the time.
func TestWaitingIsToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	kube := fake.NewClientset(node("a", needed), node("b", with(request.Now, "")))
	nodes := kubeinformers.NewSharedInformerFactory(kube, 0).Core().V1().Nodes()
	c, err := New(Config{MaxUnavailable: intstr.FromInt32(1)}, kube, nodes, recorder, clocktesting.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
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
	say := func(want ...string) {
		t.Helper()
		for _, event := range want {
			select {
			case got := <-recorder.Events:
				if got != event {
					t.Errorf("told %q, want %q", got, event)
				}
			default:
				t.Errorf("not told: %q", event)
			}
		}
		if len(recorder.Events) > 0 {
			t.Errorf("told more: %q", <-recorder.Events)
		}
	}
	show(node("a", needed), node("b", with(request.Now, "")))
	say("Normal RebootWaiting Waits for its reboot (BudgetIsUsedUp): of 2 nodes at most 1 may be unavailable, and 1 others are: b (Granted)")
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP nodereboot_budget_nodes [ALPHA] How many nodes may be unavailable.
# TYPE nodereboot_budget_nodes gauge
nodereboot_budget_nodes 1
# HELP nodereboot_unavailable_nodes [ALPHA] Nodes that count as unavailable, by the reason.
# TYPE nodereboot_unavailable_nodes gauge
nodereboot_unavailable_nodes{reason="Chosen"} 0
nodereboot_unavailable_nodes{reason="Cordoned"} 0
nodereboot_unavailable_nodes{reason="Granted"} 1
nodereboot_unavailable_nodes{reason="NotReady"} 0
nodereboot_unavailable_nodes{reason="Rebooting"} 0
nodereboot_unavailable_nodes{reason="Settling"} 0
# HELP nodereboot_waiting_nodes [ALPHA] Nodes that need a reboot and must not have it yet, by the reason.
# TYPE nodereboot_waiting_nodes gauge
nodereboot_waiting_nodes{reason="BadTime"} 0
nodereboot_waiting_nodes{reason="BudgetIsUsedUp"} 1
nodereboot_waiting_nodes{reason="BudgetIsZero"} 0
nodereboot_waiting_nodes{reason="InLine"} 0
nodereboot_waiting_nodes{reason="NotBefore"} 0
nodereboot_waiting_nodes{reason="StillRebooting"} 0
nodereboot_waiting_nodes{reason="TooSoon"} 0
`), "nodereboot_budget_nodes", "nodereboot_unavailable_nodes", "nodereboot_waiting_nodes"); err != nil {
		t.Error(err)
	}
	show(node("b", with(request.InProgress, "x")))
	say()
	show(node("a", with(request.Needed, noon.Add(time.Hour).Format(time.RFC3339))))
	say("Normal RebootWaiting Waits for its reboot (NotBefore): it was asked for 2026-07-01T13:00:00Z or later")

	live := node("b")
	if _, err := kube.CoreV1().Nodes().Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	show(node("a", needed), live)
	say()
	show()
	say("Normal RebootGranted May reboot now: 1 of 2 nodes may be unavailable, and 0 others are")
	granted, err := kube.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || granted.Annotations[request.Now] != "2026-07-01T12:00:00Z" || request.IsNeeded(granted) {
		t.Errorf("annotations %v, error %v", granted.Annotations, err)
	}
}

// A live list of all nodes is made of pages, and what is not read is not kept.
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
	c, err := New(Config{MaxUnavailable: intstr.FromInt32(1)}, kube, kubeinformers.NewSharedInformerFactory(kube, 0).Core().V1().Nodes(), &events.FakeRecorder{}, clocktesting.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.fresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{500, 500, 500}, pages); diff != "" || d.Nodes != 1500 {
		t.Errorf("%d nodes, by pages of (-want +got):\n%s", d.Nodes, diff)
	}
	for _, w := range d.Waiting {
		if w.Node.Status.Images != nil {
			t.Fatalf("%s is kept with its images", w.Node.Name)
		}
	}
}
