package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// newPod returns a Pod of a ReplicaSet that runs on node-1.
func newPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pod.Spec = corev1.PodSpec{NodeName: "node-1", TerminationGracePeriodSeconds: ptr.To[int64](30), Containers: []corev1.Container{{Name: "c", Image: "image"}}}
	pod.Status.Phase = corev1.PodRunning
	ownedBy("apps/v1", "ReplicaSet")(pod)
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func ownedBy(apiVersion, kind string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner", Controller: ptr.To(true)}}
	}
}

func withPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// drainer is an agent whose node is drained.
type drainer struct {
	*scripted
	t *testing.T
}

// inDrain runs a test in a bubble, with an agent that has this configuration.
func inDrain(t *testing.T, config Config, test func(*testing.T, *drainer)) {
	t.Helper()
	inCluster(t, node(nil), func(t *testing.T, c *scripted) {
		config.NodeName = "node-1"
		c.config = config
		test(t, &drainer{c, t})
	})
}

// drains makes one attempt to drain the node, which leaves these Pods and says that.
func (d *drainer) drains(when, saying string, left ...string) {
	d.t.Helper()
	d.drainErr = nil
	after, err := d.drain(d.t.Context(), node(map[string]string{"x": ""}), time.Minute)
	if err != nil || (after != nil) != (saying == "") {
		d.t.Errorf("%s: drained: %t, error %v, because %v", when, after != nil, err, d.drainErr)
	}
	if saying != "" && (d.drainErr == nil || d.drainErr.Error() != saying) {
		d.t.Errorf("%s: it says %v, want %s", when, d.drainErr, saying)
	}
	var stay []string
	for _, pod := range script.All[corev1.Pod](d.Cluster) {
		if pod.DeletionTimestamp == nil {
			stay = append(stay, pod.Name)
		}
	}
	if diff := cmp.Diff(left, stay); diff != "" {
		d.t.Errorf("%s: Pods that stay (-want +got):\n%s", when, diff)
	}
}

// What has to leave leaves, whatever else is there. What does not is named, and stays.
func TestDrain(t *testing.T) {
	inDrain(t, Config{DeleteEmptyDirData: true}, func(_ *testing.T, d *drainer) {
		for _, pod := range []*corev1.Pod{
			newPod("a"), newPod("b"),
			newPod("daemon", ownedBy("apps/v1", "DaemonSet")),
			newPod("done", withPhase(corev1.PodSucceeded)), newPod("dead", withPhase(corev1.PodFailed)),
			newPod("elsewhere", func(pod *corev1.Pod) { pod.Spec.NodeName = "node-2" }),
			newPod("mirror", func(pod *corev1.Pod) {
				pod.OwnerReferences, pod.Annotations = nil, map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			}),
			newPod("scratch", func(pod *corev1.Pod) {
				pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			}),
			newPod("their-daemon", ownedBy("example.com/v1", "DaemonSet")),
			newPod("bare", func(pod *corev1.Pod) { pod.OwnerReferences = nil }),
		} {
			d.Set(pod)
		}
		d.config.DeleteEmptyDirData = false
		d.drains("it begins", "default/bare has no controller that would create it again (-drain-force evicts it); "+
			"default/scratch has an emptyDir, whose content would be lost (-drain-delete-emptydir-data evicts it); "+
			"default/a is being evicted; default/b is being evicted; default/their-daemon is being evicted",
			"bare", "daemon", "dead", "done", "elsewhere", "mirror", "scratch")
		d.config.DeleteEmptyDirData, d.config.Force = true, true
		d.drains("all may be evicted", "default/a may take until 2000-01-01T00:00:30Z to end; "+
			"default/b may take until 2000-01-01T00:00:30Z to end; default/bare is being evicted; default/scratch is being evicted; "+
			"default/their-daemon may take until 2000-01-01T00:00:30Z to end",
			"daemon", "dead", "done", "elsewhere", "mirror")
		for _, name := range []string{"a", "bare", "scratch", "their-daemon"} {
			script.Delete[corev1.Pod](d.Cluster, "default", name, metav1.DeletePropagationBackground)
		}
		time.Sleep(80 * time.Second)
		d.drains("one is late", "default/b may take until 2000-01-01T00:00:30Z to end", "daemon", "dead", "done", "elsewhere", "mirror")
		time.Sleep(20 * time.Second)
		d.drains("its deletion hangs", "", "daemon", "dead", "done", "elsewhere", "mirror")
	})
}

// A PodDisruptionBudget is obeyed, and named.
func TestDrainObeysBudgets(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("a"))
		d.Set(newPod("b"))
		refusal := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		refusal.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget", Message: "The disruption budget kept needs 2 healthy pods and has 2 currently"}}
		d.Refuse(func(request string) error {
			if request == "create pods eviction" {
				return refusal
			}
			return nil
		})
		const said = " is not evicted: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget kept needs 2 healthy pods and has 2 currently"
		d.drains("nobody may leave", "default/a"+said+"; default/b"+said, "a", "b")

		// The last attempt, which has no time, does not hide that.
		if _, err := d.drain(t.Context(), node(nil), 0); err != nil || !strings.Contains(d.drainErr.Error(), said) {
			t.Errorf("error %v, and it says %v", err, d.drainErr)
		}
		d.Refuse(nil)
		d.drains("all may leave", "default/a is being evicted; default/b is being evicted")
	})
}

// A Pod that has come back under its name, perhaps on another node, is not the one to evict.
func TestDrainEvictsNoOtherPod(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("web-0"))
		gone := script.Get[corev1.Pod](d.Cluster, "default", "web-0")
		script.Delete[corev1.Pod](d.Cluster, "default", "web-0", metav1.DeletePropagationBackground)
		d.Set(newPod("web-0", func(pod *corev1.Pod) { pod.Spec.NodeName = "node-2" }))
		if why, isLeaving := d.evictPod(t.Context(), gone); !isLeaving {
			t.Errorf("the Pod that is gone %s", why)
		}
		d.drains("the other one runs elsewhere", "", "web-0")
	})
}

// A webhook can deny an eviction with any code. The Pod is still there.
func TestDrainObeysWebhooks(t *testing.T) {
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonConflict, metav1.StatusReasonNotFound, metav1.StatusReasonForbidden} {
		t.Run(string(reason), func(t *testing.T) {
			inDrain(t, Config{}, func(_ *testing.T, d *drainer) {
				d.Set(newPod("kafka-0"))
				d.Fail("create pods eviction", byWebhook(reason))
				d.drains("the webhook says no", "default/kafka-0 is not evicted: "+byWebhook(reason).Error(), "kafka-0")
				d.drains("it says nothing", "default/kafka-0 is being evicted")
			})
		})
	}
}

// Pods that come to a node after its cordon want to be there. They are not evicted, because they
// would come again, and are no obstacle, until the node was schedulable again.
func TestDrainLeavesLateComers(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("early"))
		d.Fail("list pods", apierrors.NewInternalError(errors.New("etcd is down")))
		d.drains("nobody knows the Pods", "the node's Pods cannot be listed: Internal error occurred: etcd is down", "early")
		d.Fail("create pods eviction", apierrors.NewTooManyRequests("budget", 0))
		d.drains("it must wait", "default/early is not evicted: budget", "early")
		d.Set(newPod("late"))
		d.Set(newPod("late-and-bare", func(pod *corev1.Pod) { pod.OwnerReferences = nil }))
		d.drains("it may go", "default/early is being evicted", "late", "late-and-bare")
		script.Delete[corev1.Pod](d.Cluster, "default", "early", metav1.DeletePropagationBackground)
		time.Sleep(30 * time.Second)
		d.Set(newPod("early"))
		d.drains("another one has its name", "", "early", "late", "late-and-bare")
		for _, name := range []string{"early", "late", "late-and-bare"} {
			script.Delete[corev1.Pod](d.Cluster, "default", name, metav1.DeletePropagationBackground)
		}
		time.Sleep(30 * time.Second)
		conflict := apierrors.NewConflict(corev1.Resource("nodes"), "node-1", errors.New("changed"))
		for name, response := range map[string]error{"agent-cordons": nil, "nobody-knows": script.ErrLost, "node-has-changed": conflict} {
			d.Fail("patch nodes", response)
			_, _ = d.act(t.Context(), d.node(), Decision{Step: Cordon, Unschedulable: ptr.To(true)})
			d.Set(newPod(name))
			d.drains(name, "default/"+name+" is being evicted")
			script.Delete[corev1.Pod](d.Cluster, "default", name, metav1.DeletePropagationBackground)
			time.Sleep(30 * time.Second)
		}
	})
}

// A dry run evicts nobody, and says who would be in the way.
func TestDryDrain(t *testing.T) {
	inDrain(t, Config{DryRun: true}, func(_ *testing.T, d *drainer) {
		d.Set(newPod("a"))
		d.drains("all could leave", "", "a")
		d.Fail("create pods eviction", apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("no permission")))
		d.drains("nobody could", `default/a is not evicted: pods "a" is forbidden: no permission`, "a")
	})
}
