package nodereboot

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// rig is a controller with an API server that has two nodes which need a reboot.
type rig struct {
	*Controller
	kube  *fake.Clientset
	clock *clocktesting.FakeClock
	nodes interface{ Add(any) error }
}

func newRig(t *testing.T, args ...string) *rig {
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
	r := &rig{kube: fake.NewClientset(node("a", needed), node("b", needed)), clock: clocktesting.NewFakeClock(noon)}
	factory := kubeinformers.NewSharedInformerFactory(r.kube, 0)
	nodes := factory.Core().V1().Nodes()
	c, err := NewController(config, r.kube.CoreV1().Nodes(), r.kube.CoreV1().Pods(metav1.NamespaceAll), informer.Of[*corev1.Node](nodes.Informer()), informer.Of[*coordinationv1.Lease](factory.Coordination().V1().Leases().Informer()), events.NewFakeRecorder(100), r.clock)
	if err != nil {
		t.Fatal(err)
	}
	r.Controller, r.nodes = c, nodes.Informer().GetStore()
	return r
}

// settle syncs with fresh caches and agents that report until there is nothing to do. It
// returns which nodes may reboot, and when the next sync is due.
func (r *rig) settle(t *testing.T) (granted []string, requeueAfter time.Duration) {
	t.Helper()
	for range 10 {
		live, err := r.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		granted = nil
		for _, n := range live.Items {
			r.trackAgent(nil, report(n.Name, r.clock.Now()), func() {})
			if err := r.nodes.Add(n.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			if request.IsGranted(&n) {
				granted = append(granted, n.Name)
			}
		}
		if requeueAfter, err = r.sync(t.Context(), allNodes); err != nil {
			t.Fatal(err)
		}
		if requeueAfter != batchPeriod {
			return granted, requeueAfter
		}
	}
	t.Fatal("there is always another step")
	return nil, 0
}

// reason returns why a node waits, as recorded last.
func (r *rig) reason(node string) string {
	return r.waiting.Last(types.UID(node))
}

// While one of the named alerts is firing, or Prometheus does not answer, all nodes wait.
// Prometheus is asked once a minute, however often nodes change.
func TestAlerts(t *testing.T) {
	answer, status, asked := "", http.StatusOK, 0
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if query := r.FormValue("query"); r.URL.Path != "/prometheus/api/v1/query" || query != `ALERTS{alertstate="firing",alertname=~"Etcd.*|Disk\\\\d"}` {
			t.Errorf("asked %s for %s", r.URL.Path, query)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, answer)
	}))
	defer prometheus.Close()
	r := newRig(t, "-nodereboot-prometheus-url="+prometheus.URL+"/prometheus", `-nodereboot-alerts=Etcd.*|Disk\\d`)
	alert := func(name string) string {
		return fmt.Sprintf(`{"metric":{"__name__":"ALERTS","alertname":%q,"alertstate":"firing","severity":"critical"},"value":[1782907200,"1"]}`, name)
	}

	answer = alert("EtcdNoLeader") + "," + alert("Disk1") + "," + alert("Disk1")
	granted, requeueAfter := r.settle(t)
	if len(granted) > 0 || requeueAfter != holdPeriod || r.reason("a") != AlertFires || r.reason("b") != AlertFires {
		t.Errorf("granted %q while alerts fire, requeue after %s; a waits because of %s, b because of %s", granted, requeueAfter, r.reason("a"), r.reason("b"))
	}
	if want := "these alerts are firing: Disk1, EtcdNoLeader"; r.hold.Note != want {
		t.Errorf("the note is %q, want %q", r.hold.Note, want)
	}
	for range 10 {
		r.settle(t)
	}
	if asked != 1 {
		t.Errorf("asked %d times within a minute", asked)
	}

	r.clock.Step(holdPeriod)
	answer, status = "", http.StatusServiceUnavailable
	if granted, _ := r.settle(t); len(granted) > 0 || r.reason("a") != AlertsUnknown {
		t.Errorf("granted %q although Prometheus did not answer; a waits because of %s", granted, r.reason("a"))
	}

	r.clock.Step(holdPeriod)
	status = http.StatusOK
	if granted, _ := r.settle(t); len(granted) != 1 || asked != 4 { // once to choose a node, once to grant its reboot
		t.Errorf("granted %q when no alert fires, asked %d times", granted, asked)
	}
}

// If an alert begins to fire between the two steps of a grant, the chosen node is passed
// over.
func TestAlertBetweenChooseAndGrant(t *testing.T) {
	r := newRig(t)
	asked := 0
	r.firingAlerts = func(context.Context, time.Time) ([]string, error) {
		if asked++; asked == 2 {
			return []string{"EtcdNoLeader"}, nil
		}
		return nil, nil
	}
	if granted, _ := r.settle(t); len(granted) > 0 || asked != 2 {
		t.Errorf("granted %q, asked %d times", granted, asked)
	}
	live, err := r.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range live.Items {
		if request.IsNext(&n) || !request.IsNeeded(&n) {
			t.Errorf("%s is left with %v", n.Name, n.Annotations)
		}
	}
}

// A node with a Pod that must not be disturbed waits, and another node takes its turn.
func TestBlockingPods(t *testing.T) {
	r := newRig(t, "-nodereboot-blocking-pods=job=training; app in (ci)")
	var selectors []string
	runs := true
	r.kube.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).ListOptions
		selectors = append(selectors, options.LabelSelector+" "+options.FieldSelector)
		pods := &corev1.PodList{}
		if runs && strings.HasPrefix(options.LabelSelector, "job") {
			pods.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "training", Labels: map[string]string{"job": "training"}}, Spec: corev1.PodSpec{NodeName: "a"}}}
		}
		return true, pods, nil
	})
	granted, requeueAfter := r.settle(t)
	if diff := cmp.Diff([]string{"b"}, granted); diff != "" || r.reason("a") != PodRuns || requeueAfter != holdPeriod {
		t.Errorf("a waits because of %s, requeue after %s; granted (-want +got):\n%s", r.reason("a"), requeueAfter, diff)
	}
	const running = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	if diff := cmp.Diff([]string{"job=training " + running, "app in (ci) " + running}, selectors[:2]); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	runs = false
	r.clock.Step(holdPeriod)
	if _, err := r.kube.CoreV1().Nodes().Update(t.Context(), node("b"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if granted, _ := r.settle(t); len(granted) != 1 || granted[0] != "a" {
		t.Errorf("granted %q when the Pod has ended", granted)
	}
}
