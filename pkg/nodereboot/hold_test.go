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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

func TestNothingIsGrantedOutsideOfWindows(t *testing.T) {
	w, err := ParseWindow("Wed 22:00-23:00")
	if err != nil {
		t.Fatal(err)
	}
	o := heard(Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(1), Windows: []Window{w}}, Nodes: []*corev1.Node{node("a", needed)}})
	if d := Decide(o); d.Step != Rest || d.Again != 10*time.Hour || d.Waiting[0].Reason != WindowClosed || d.Waiting[0].Note != "the next window for reboots opens at 2026-07-01T22:00:00Z" {
		t.Errorf("step %q, again in %s, %+v", d.Step, d.Again, d.Waiting)
	}
	next(o.Nodes[0])
	if d := Decide(o); d.Step != PassOver {
		t.Errorf("a node that was chosen when the window closed: step %q", d.Step)
	}
	o.Now = noon.Add(10 * time.Hour)
	if d := Decide(heard(o)); d.Step != Grant {
		t.Errorf("in the window: step %q, %+v", d.Step, d.Waiting)
	}
}

// rig is a controller of two nodes that ask, with an API server of its own.
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
	c, err := NewController(config, r.kube, nodes, factory.Coordination().V1().Leases(), events.NewFakeRecorder(100), r.clock)
	if err != nil {
		t.Fatal(err)
	}
	r.Controller, r.nodes = c, nodes.Informer().GetStore()
	return r
}

// settle syncs, with caches that are up to date and agents that are heard, until there is
// nothing to do. It returns who may reboot, and when it will be looked again.
func (r *rig) settle(t *testing.T) (granted []string, again time.Duration) {
	t.Helper()
	for range 10 {
		live, err := r.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		granted = nil
		for _, n := range live.Items {
			r.hear(nil, report(n.Name, r.clock.Now()), func() {})
			if err := r.nodes.Add(n.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			if request.IsGranted(&n) {
				granted = append(granted, n.Name)
			}
		}
		if again, err = r.sync(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if again != burst {
			return granted, again
		}
	}
	t.Fatal("it never comes to rest")
	return nil, 0
}

func (r *rig) reason(node string) string {
	for uid, reason := range r.told {
		if string(uid) == node {
			return reason
		}
	}
	return ""
}

// While one of the named alerts fires, or Prometheus does not say, all nodes wait; and it
// is asked once a minute, however often nodes change.
func TestAlertsHoldRebootsBack(t *testing.T) {
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
	granted, again := r.settle(t)
	if len(granted) > 0 || again != holdFor || r.reason("a") != AlertFires || r.reason("b") != AlertFires {
		t.Errorf("granted %q while alerts fire, again in %s, told %v", granted, again, r.told)
	}
	if want := "these alerts fire: Disk1, EtcdNoLeader"; r.hold.Note != want {
		t.Errorf("the note is %q, want %q", r.hold.Note, want)
	}
	for range 10 {
		r.settle(t)
	}
	if asked != 1 {
		t.Errorf("asked %d times within a minute", asked)
	}

	r.clock.Step(holdFor)
	answer, status = "", http.StatusServiceUnavailable
	if granted, _ := r.settle(t); len(granted) > 0 || r.reason("a") != AlertsUnknown {
		t.Errorf("granted %q although nobody knows, told %v", granted, r.told)
	}

	r.clock.Step(holdFor)
	status = http.StatusOK
	if granted, _ := r.settle(t); len(granted) != 1 || asked != 4 { // once to choose, once to grant
		t.Errorf("granted %q when no alert fires, asked %d times", granted, asked)
	}
}

// An alert that begins to fire between the two steps of a grant takes the turn back.
func TestAnAlertTakesATurnBack(t *testing.T) {
	r := newRig(t)
	asked := 0
	r.alerts = func(context.Context, time.Time) ([]string, error) {
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

// A node with a Pod that must not be disturbed waits, and another has its turn.
func TestPodsHoldTheirNodeBack(t *testing.T) {
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
	granted, again := r.settle(t)
	if diff := cmp.Diff([]string{"b"}, granted); diff != "" || r.reason("a") != PodRuns || again != holdFor {
		t.Errorf("told %v, again in %s; granted (-want +got):\n%s", r.told, again, diff)
	}
	const running = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	if diff := cmp.Diff([]string{"job=training " + running, "app in (ci) " + running}, selectors[:2]); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	runs = false
	r.clock.Step(holdFor)
	if _, err := r.kube.CoreV1().Nodes().Update(t.Context(), node("b"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if granted, _ := r.settle(t); len(granted) != 1 || granted[0] != "a" {
		t.Errorf("granted %q when the Pod has ended", granted)
	}
}
