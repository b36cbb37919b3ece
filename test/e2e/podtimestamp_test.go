package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/test/lab"
)

// timestamp is the annotation that a Pod gets.
const timestamp = "timestamp"

// newStampingLab boots a cluster in which the controllers' service account may do what
// podtimestamp needs, and nothing that is only needed for Icecreams.
func newStampingLab(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	l := NewLab(t, o)
	for _, args := range [][]string{
		{"apply", "-f", l.Path("artifacts/rbac-podtimestamp.yaml")},
		{"delete", "clusterrolebinding/" + lab.IcecreamRole, "clusterrole/" + lab.IcecreamRole},
	} {
		if _, err := l.TryKubectl(t.Context(), "", args...); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// Half of the Pods exist before the start, the others are created later, and in between
// the leader is killed. The audit log shows that no Pod is written to twice.
func TestPodtimestampOnceWhoeverLeads(t *testing.T) {
	t.Parallel()
	const half = 300
	l := newStampingLab(t, lab.Options{})
	n := l.NewNamespace(t)
	createPods(t, n, "early", half, asking)
	flags := append([]string{"-controllers=podtimestamp", "-kube-api-qps=50", "-leader-elect-resource-namespace=" + lab.SystemNamespace}, elect...)
	first := l.StartController(t, flags...)
	n.Controller = first
	eventuallyHas := func(count int) {
		t.Helper()
		n.Eventually(t, fmt.Sprintf("%d Pods are stamped", count), func(context.Context) error {
			if stamped := len(timestampsOf(t, n)); stamped < count {
				return fmt.Errorf("%d are", stamped)
			}
			return nil
		})
	}
	eventuallyHas(1)
	second := l.StartController(t, flags...)
	eventuallyReadyToLead(t, n, second)
	var users sync.WaitGroup
	users.Go(func() { createPods(t, n, "late", half, asking) })
	eventuallyHas(half / 4)
	killed := first.Agent
	first.Kill(t)
	if len(timestampsOf(t, n)) == 2*half {
		t.Error("the leader was killed too late to show anything")
	}
	n.Controller = second
	users.Wait()
	first.Start(t) // as the kubelet would
	eventuallyHas(2 * half)

	made := l.Requests(t).By(first.User).Resource("pods").Writes()
	byAgent := map[string]int{}
	for _, e := range made.Where(isAccepted) {
		byAgent[lab.AgentOf(e)]++
	}
	t.Logf("writes to Pods: %s; by process: %v", made, byAgent)
	if len(byAgent) != 2 {
		t.Errorf("%d processes wrote, want the leader and the one after it", len(byAgent))
	}
	// A request that the kill cut off may have been carried out nevertheless.
	cutOff := made.Code(http.StatusGatewayTimeout).Where(func(e *cluster.AuditEvent) bool { return lab.AgentOf(e) == killed }).ByObject()
	stamped := made.Where(isAccepted).ByObject()
	for pod := range timestampsOf(t, n) {
		if stamped[pod] != 1 && (stamped[pod] != 0 || cutOff[pod] != 1) {
			t.Errorf("Pod %q was written to %d times", pod, stamped[pod])
		}
	}
}

// The Pods that ask for it get a timestamp, and no others. In one namespace, the controller
// needs only a Role there.
func TestPodtimestamp(t *testing.T) {
	t.Parallel()
	l := newStampingLab(t, lab.Options{})
	n, other := l.NewNamespace(t), l.NewNamespace(t)
	n.Kubectl(t, "create", "rolebinding", "stamping", "--clusterrole=k8s-controller-podtimestamp", "--serviceaccount="+n.Name+":default")
	c, err := l.NewController(t.Context(), n.Name, "default", "-controllers=podtimestamp", "-namespace="+n.Name)
	if err != nil {
		t.Fatal(err)
	}
	n.Controller = c
	c.StartForTest(t)
	begin := time.Now().Truncate(time.Second)
	createPods(t, other, "elsewhere", 1, asking)
	createPods(t, n, "silent", 1)
	createPods(t, n, "others", 1, asking, annotated(timestamp, "tomorrow"))
	createPods(t, n, "mirror", 1, asking, annotated(corev1.MirrorPodAnnotationKey, "hash"), func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" })
	createPods(t, n, "late", 1)
	createPods(t, n, "asking", 1, asking)
	n.Kubectl(t, "annotate", "pod/late-0", "addtime=true")
	for _, name := range []string{"asking-0", "late-0"} {
		stamp := eventuallyStamped(t, n, name)
		if at, err := time.Parse("2006-01-02T15:04:05Z", stamp); err != nil || at.Before(begin) || at.After(time.Now()) {
			t.Errorf("%s has timestamp %q", name, stamp)
		}
		n.Eventually(t, "an event says so", func(ctx context.Context) error {
			told, err := n.TryKubectl(ctx, "", "get", "events", "--field-selector=involvedObject.name="+name)
			if err == nil && !strings.Contains(told, "Set annotation timestamp to "+stamp) {
				err = fmt.Errorf("the events are\n%s", told)
			}
			return err
		})
	}
	want := map[string]string{"asking-0": timestampOf(t, n, "asking-0"), "late-0": timestampOf(t, n, "late-0"), "others-0": "tomorrow"}
	if diff := cmp.Diff(want, timestampsOf(t, n)); diff != "" {
		t.Errorf("the timestamps differ (-want +got):\n%s", diff)
	}
	if found := timestampOf(t, other, "elsewhere-0"); found != "" {
		t.Errorf("the Pod in another namespace has %q", found)
	}

	if refused := l.Requests(t).By(c.User).Refused(); len(refused) > 0 {
		t.Errorf("requests were refused: %s", refused)
	}
}

// Filling its cache with Pods of 200 KB costs the controller no more memory than with
// small Pods: it does not even allocate more.
func TestPodtimestampMemory(t *testing.T) {
	t.Parallel()
	const pods = 200
	l := newStampingLab(t, lab.Options{Nodes: -1})
	cost := func(name string, edits ...func(*corev1.Pod)) float64 {
		n := l.NewNamespace(t)
		createPods(t, n, name, pods, edits...)
		n.Kubectl(t, "create", "rolebinding", "stamping", "--clusterrole=k8s-controller-podtimestamp", "--serviceaccount="+n.Name+":default")
		c, err := l.NewController(t.Context(), n.Name, "default", "-controllers=podtimestamp", "-namespace="+n.Name, "-insecure-bind-address=127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n.Controller = c
		c.StartForTest(t)
		n.Eventually(t, "the cache is filled", func(context.Context) error {
			if log := c.Log(); !strings.Contains(log, `"Started"`) {
				return fmt.Errorf("its log:\n%s", log)
			}
			return nil
		})
		allocated := metric(t, c, "go_memstats_alloc_bytes_total")
		t.Logf("for %d %s Pods %.1f MB were allocated; %.1f MB are in use", pods, name, allocated/1e6, metric(t, c, "go_memstats_heap_alloc_bytes")/1e6)
		return allocated
	}
	thin := cost("thin")
	fat := cost("fat", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Args = []string{strings.Repeat("x", 100_000)}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "FAT", Value: strings.Repeat("y", 100_000)}}
	})
	// All Pods together are 40 MB, and 4 MB would be noticed.
	if fat > thin+4e6 {
		t.Errorf("for thin Pods %.1f MB were allocated, for fat ones %.1f MB", thin/1e6, fat/1e6)
	}
}

// createPods creates so many Pods, which no scheduler looks at.
func createPods(t *testing.T, n *lab.Namespace, name string, count int, edits ...func(*corev1.Pod)) {
	t.Helper()
	var users sync.WaitGroup
	const atATime = 8
	for user := range atATime {
		users.Go(func() {
			for i := user; i < count; i += atATime {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)},
					Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "registry.example/c"}}, AutomountServiceAccountToken: new(bool)},
				}
				for _, edit := range edits {
					edit(pod)
				}
				if _, err := n.Pods().Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
}

func asking(pod *corev1.Pod) { annotated("addtime", "")(pod) }

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value) }
}

// timestampsOf returns the timestamps of all Pods that have one, by Pod name.
func timestampsOf(t *testing.T, n *lab.Namespace) map[string]string {
	t.Helper()
	list, err := n.Pods().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, pod := range list.Items {
		if stamp, isStamped := pod.Annotations[timestamp]; isStamped {
			found[pod.Name] = stamp
		}
	}
	return found
}

func timestampOf(t *testing.T, n *lab.Namespace, name string) string {
	t.Helper()
	return timestampsOf(t, n)[name]
}

func eventuallyStamped(t *testing.T, n *lab.Namespace, name string) (stamp string) {
	t.Helper()
	n.Eventually(t, name+" is stamped", func(context.Context) error {
		if stamp = timestampOf(t, n, name); stamp == "" {
			return fmt.Errorf("the timestamps are %v", timestampsOf(t, n))
		}
		return nil
	})
	return stamp
}

// metric returns the value of a series without labels.
func metric(t *testing.T, c *lab.Controller, name string) float64 {
	t.Helper()
	all := c.Metrics(t)
	found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(all)
	if found == nil {
		t.Fatalf("there is no %s in\n%s", name, all)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
