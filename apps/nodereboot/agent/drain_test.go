package agent

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// The stories of apps/nodereboot (testdata/stories there) tell the rest.

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// inDrain runs a test in a bubble, with an agent whose requests go through that, on a node with these Pods.
func inDrain(t *testing.T, through func(http.RoundTripper) http.RoundTripper, pods []string, test func(*testing.T, *script.Cluster, *Agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := script.New(t, apiserver.Nodes(), apiserver.Pods(), apiserver.EventObjects())
		kube := kubernetes.NewForConfigOrDie(&rest.Config{Transport: through(cluster), QPS: -1})
		n := newNode("old")
		n.Annotations[request.Agent] = *request.Encode(request.Record{BootID: "old", ID: 1, Work: &request.Work{Since: time.Now()}})
		cluster.Set(n)
		for _, name := range pods {
			cluster.Set(newPod(name, "node-1"))
		}
		test(t, cluster, &Agent{kube: kube, config: Config{NodeName: "node-1", Drain: true, Force: true, Limits: limits}})
	})
}

// newPod returns a Pod that runs on a node.
func newPod(name, node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "image"}}}
	pod.Status.Phase = corev1.PodRunning
	return pod
}

// A Pod that has come back under its name, perhaps on another node, is not the one to evict.
func TestDrainEvictsNoOtherPod(t *testing.T) {
	inDrain(t, func(to http.RoundTripper) http.RoundTripper { return to }, []string{"web-0"}, func(t *testing.T, cluster *script.Cluster, a *Agent) {
		gone := script.Get[corev1.Pod](cluster, "default", "web-0")
		script.Delete[corev1.Pod](cluster, "default", "web-0", metav1.DeletePropagationBackground)
		for _, comesBack := range []bool{false, true} {
			if comesBack {
				cluster.Set(newPod("web-0", "node-2"))
			}
			if why, until := a.evictPod(t.Context(), gone); until.IsZero() {
				t.Errorf("the Pod that is gone %s", why)
			}
		}
		if pods := script.All[corev1.Pod](cluster); len(pods) != 1 || pods[0].DeletionTimestamp != nil {
			t.Errorf("the other one is evicted: %v", pods)
		}
	})
}

// hanging is an API server that never answers an eviction.
type hanging struct{ http.RoundTripper }

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/eviction") {
		<-r.Context().Done()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return h.RoundTripper.RoundTrip(r)
}

// A webhook uses up all the time of an attempt. An event says so all the same, and not more than anybody reads.
func TestDrainSaysWhatHangs(t *testing.T) {
	var pods []string
	for i := range 20 {
		pods = append(pods, fmt.Sprint(strings.Repeat("long-", 20), i))
	}
	inDrain(t, func(to http.RoundTripper) http.RoundTripper { return hanging{to} }, pods, func(t *testing.T, cluster *script.Cluster, a *Agent) {
		for range 4 {
			a.drainNode(t.Context(), script.Get[corev1.Node](cluster, "", "node-1"))
		}
		events := script.All[corev1.Event](cluster)
		if len(events) != 1 || !strings.Contains(events[0].Message, "is not evicted") || len(events[0].Message) > maxMessage || len(a.drain.Obstacle) > maxMessage {
			t.Errorf("events %v, and it waits for %s", events, a.drain.Obstacle)
		}
	})
}
