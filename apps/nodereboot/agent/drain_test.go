package agent

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// newPod returns a Pod of a ReplicaSet that runs on node-1.
func newPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pod.Spec = corev1.PodSpec{NodeName: "node-1", TerminationGracePeriodSeconds: new(int64(30)), Containers: []corev1.Container{{Name: "c", Image: "image"}}}
	pod.Status.Phase = corev1.PodRunning
	ownedBy("apps/v1", "ReplicaSet")(pod)
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func ownedBy(apiVersion, kind string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}}
	}
}

func bare(pod *corev1.Pod) { pod.OwnerReferences = nil }

func withEmptyDir(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func withGrace(seconds int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
}

// refuseEvictions is a PodDisruptionBudget that allows none.
func refuseEvictions(request string) error {
	if request == "create pods eviction" {
		return apierrors.NewTooManyRequests("budget", 0)
	}
	return nil
}

// drainer is an agent at work, whose attempts to drain the node the test makes.
type drainer struct {
	*script.Cluster
	*Agent
	t *testing.T
}

// inDrain runs a test in a bubble, with an agent that has this configuration.
func inDrain(t *testing.T, config Config, test func(*testing.T, *drainer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, kube := newKube(t)
		config.NodeName, config.Drain, config.Limits = "node-1", true, limits
		n := newNode("old")
		n.Spec.Unschedulable = true
		n.Annotations[request.Needed] = ""
		n.Annotations[request.Agent] = *request.Encode(request.Record{BootID: "old", ID: 1, Work: &request.Work{Since: time.Now(), IsCordoned: true}})
		cluster.Set(n)
		test(t, &drainer{cluster, &Agent{kube: kube, config: config}, t})
	})
}

// attempt makes one attempt to drain the node, and returns the next step.
func (d *drainer) attempt() Decision {
	d.t.Helper()
	n := script.Get[corev1.Node](d.Cluster, "", "node-1")
	blocked := d.drainNode(d.t.Context(), n)
	return Decide(Observed{Now: time.Now(), Node: request.Read(n), BootID: "old", Blocked: blocked, Drain: d.drain.Drained, Limits: limits})
}

// drains makes one attempt, after which the next one follows. It leaves these Pods, and says that.
func (d *drainer) drains(saying string, left ...string) {
	d.t.Helper()
	if next := d.attempt(); next.Step != Drain || d.drain.Obstacle != saying {
		d.t.Errorf("the next step is %s, because %s; want %s", next.Step, d.drain.Obstacle, saying)
	}
	d.stay(left...)
}

// ends makes the last attempt. It leaves these Pods.
func (d *drainer) ends(with Step, left ...string) (why string) {
	d.t.Helper()
	next := d.attempt()
	if next.Step != with {
		d.t.Errorf("the next step is %s, because %s; want %s", next.Step, d.drain.Obstacle, with)
	}
	d.stay(left...)
	return next.Why
}

// stay requires that these are the Pods that are not being deleted.
func (d *drainer) stay(want ...string) {
	d.t.Helper()
	var stay []string
	for _, pod := range script.All[corev1.Pod](d.Cluster) {
		if pod.DeletionTimestamp == nil {
			stay = append(stay, pod.Name)
		}
	}
	if diff := cmp.Diff(want, stay); diff != "" {
		d.t.Errorf("Pods that stay (-want +got):\n%s", diff)
	}
}

// kill has Pods end.
func (d *drainer) kill(names ...string) {
	for _, name := range names {
		script.Delete[corev1.Pod](d.Cluster, "default", name, metav1.DeletePropagationBackground)
	}
}

// What has to leave leaves. A Pod whose deletion hangs a minute after its grace is not waited for.
func TestDrain(t *testing.T) {
	inDrain(t, Config{}, func(_ *testing.T, d *drainer) {
		for _, pod := range []*corev1.Pod{
			newPod("a"), newPod("b"),
			newPod("daemon", ownedBy("apps/v1", "DaemonSet")),
			newPod("dead", withPhase(corev1.PodFailed)), newPod("done", withPhase(corev1.PodSucceeded)),
			newPod("elsewhere", bare, func(pod *corev1.Pod) { pod.Spec.NodeName = "node-2" }),
			newPod("mirror", bare, func(pod *corev1.Pod) { pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
			newPod("their-daemon", ownedBy("example.com/v1", "DaemonSet")),
		} {
			d.Set(pod)
		}
		stay := []string{"daemon", "dead", "done", "elsewhere", "mirror"}
		d.drains("default/a is being evicted; default/b is being evicted; default/their-daemon is being evicted", stay...)
		d.kill("a", "their-daemon")
		time.Sleep(90 * time.Second)
		d.drains("default/b may take until 2000-01-01T00:00:30Z to end", stay...)
		time.Sleep(time.Second)
		d.ends(Reboot, stay...)
	})
}

func withPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// If one Pod must not be evicted, none is.
func TestDrainLooksFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		config Config
		pod    func(*corev1.Pod)
		want   string // empty if it may be
	}{
		"no controller": {Config{}, bare, "the Pod default/b has no controller that would create it again (-drain-force evicts it)"},
		"forced":        {Config{Force: true}, bare, ""},
		"an emptyDir":   {Config{}, withEmptyDir, "the Pod default/b has an emptyDir, whose content would be lost (-drain-delete-emptydir-data evicts it)"},
		"to be lost":    {Config{DeleteEmptyDirData: true}, withEmptyDir, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inDrain(t, tt.config, func(t *testing.T, d *drainer) {
				d.Set(newPod("a"))
				d.Set(newPod("b", tt.pod))
				if blocked, err := d.look(t.Context()); err != nil || *blocked != tt.want {
					t.Errorf("it is blocked: %v, %v", blocked, err)
				}
				if tt.want == "" {
					d.drains("default/a is being evicted; default/b is being evicted")
				} else if why := d.ends(GiveUp, "a", "b"); why != tt.want {
					t.Errorf("given up because %s", why)
				}
			})
		})
	}
}

// A PodDisruptionBudget is obeyed, and named, also by an event after a minute.
func TestDrainObeysBudgets(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("a"))
		d.Set(newPod("b"))
		refusal := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		refusal.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DisruptionBudget", Message: "The disruption budget kept needs 2 healthy pods and has 2 currently"}}
		d.Refuse(func(r string) error {
			if r == "create pods eviction" {
				return refusal
			}
			return nil
		})
		const said = " is not evicted: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget kept needs 2 healthy pods and has 2 currently"
		d.drains("default/a"+said+"; default/b"+said, "a", "b")
		if events := script.All[corev1.Event](d.Cluster); len(events) > 0 {
			t.Errorf("events %v", events)
		}
		time.Sleep(61 * time.Second)
		d.attempt()
		if events := script.All[corev1.Event](d.Cluster); len(events) != 1 || events[0].Reason != ReasonDrainWaits || !strings.Contains(events[0].Message, said) {
			t.Errorf("events %v", events)
		}
		d.Refuse(nil)
		d.drains("default/a is being evicted; default/b is being evicted")
	})
}

// A webhook can deny an eviction with any code. The Pod is still there.
func TestDrainObeysWebhooks(t *testing.T) {
	for reason, code := range map[metav1.StatusReason]int32{
		metav1.StatusReasonConflict:  http.StatusConflict,
		metav1.StatusReasonNotFound:  http.StatusNotFound,
		metav1.StatusReasonForbidden: http.StatusForbidden,
	} {
		t.Run(string(reason), func(t *testing.T) {
			inDrain(t, Config{}, func(_ *testing.T, d *drainer) {
				d.Set(newPod("kafka-0"))
				const denial = `admission webhook "drain.example.com" denied the request: partitions are being moved`
				details := &metav1.StatusDetails{Kind: "pods", Name: "kafka-0"}
				d.Fail("create pods eviction", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: denial, Details: details}})
				d.drains("default/kafka-0 is not evicted: "+denial, "kafka-0")
				d.drains("default/kafka-0 is being evicted")
			})
		})
	}
}

// Pods that come to a node after its cordon want to be there. They are not evicted, because they would
// come again, and are no obstacle. Nor is one with the name of one that is gone.
func TestDrainLeavesLateComers(t *testing.T) {
	inDrain(t, Config{}, func(_ *testing.T, d *drainer) {
		d.Set(newPod("early"))
		d.Fail("list pods", apierrors.NewInternalError(errors.New("etcd is down")))
		d.drains("listing the node's Pods: Internal error occurred: etcd is down", "early")
		d.Fail("create pods eviction", apierrors.NewTooManyRequests("budget", 0))
		d.drains("default/early is not evicted: budget", "early")
		d.Set(newPod("late"))
		d.Set(newPod("late-and-bare", bare))
		d.drains("default/early is being evicted", "late", "late-and-bare")
		d.kill("early")
		d.Set(newPod("early"))
		d.ends(Reboot, "early", "late", "late-and-bare")
	})
}

// A record has room for one obstacle, or a few.
func TestObstaclesAreClipped(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		for i := range 20 {
			d.Set(newPod(fmt.Sprint(strings.Repeat("long-", 20), i)))
		}
		d.Refuse(refuseEvictions)
		time.Sleep(limits.Drain)
		if next := d.attempt(); next.Step != GiveUp || len(next.Record.Why) > maxMessage {
			t.Errorf("step %s, because %s", next.Step, next.Record.Why)
		}
	})
}

// A Pod that has come back under its name, perhaps on another node, is not the one to evict.
func TestDrainEvictsNoOtherPod(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("web-0"))
		gone := script.Get[corev1.Pod](d.Cluster, "default", "web-0")
		d.kill("web-0")
		for _, comesBack := range []bool{false, true} {
			if comesBack {
				d.Set(newPod("web-0", func(pod *corev1.Pod) { pod.Spec.NodeName = "node-2" }))
			}
			if why, until := d.evictPod(t.Context(), gone); until.IsZero() {
				t.Errorf("the Pod that is gone %s", why)
			}
		}
		d.ends(Reboot, "web-0")
	})
}

// Pods whose grace is longer than a drain may take are waited for, if all others have left. A request
// that fails meanwhile changes nothing.
func TestDrainWaitsForGrace(t *testing.T) {
	inDrain(t, Config{}, func(_ *testing.T, d *drainer) {
		d.Set(newPod("slow", withGrace(3600)))
		d.attempt()
		time.Sleep(time.Hour)
		d.drains("default/slow may take until 2000-01-01T01:00:00Z to end")
		d.Fail("list pods", apierrors.NewInternalError(errors.New("etcd is down")))
		d.drains("listing the node's Pods: Internal error occurred: etcd is down")
		script.Edit(d.Cluster, "", "node-1", attach("disk"))
		time.Sleep(time.Minute + time.Second)
		d.drains("the volume disk is still attached")
		time.Sleep(time.Minute)
		d.drains("the volume disk is still attached")
		time.Sleep(time.Minute)
		d.ends(Reboot)
	})
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("slow", withGrace(3600)))
		d.attempt()
		d.drain.pods = nil // as if the other one had been there
		d.Set(newPod("stuck"))
		d.Refuse(refuseEvictions)
		d.drains("default/slow may take until 2000-01-01T01:00:00Z to end; default/stuck is not evicted: budget", "stuck")
		time.Sleep(limits.Drain)
		if why := d.ends(GiveUp, "stuck"); !strings.HasSuffix(why, "default/stuck is not evicted: budget") {
			t.Errorf("given up because %s", why)
		}
	})
}

func attach(names ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.VolumesAttached = nil
		for _, name := range names {
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
		}
	}
}

// A new process looks before it gives up: all that is left may be Pods that are ending.
func TestDrainIsContinued(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.Set(newPod("slow", withGrace(3600)))
		d.attempt()
		time.Sleep(limits.Drain + time.Minute)
		d.drain = drain{}
		n := script.Get[corev1.Node](d.Cluster, "", "node-1")
		if next := Decide(Observed{Now: time.Now(), Node: request.Read(n), BootID: "old", Limits: limits}); next.Step != Drain {
			t.Errorf("the next step is %s, because %s", next.Step, next.Why)
		}
		d.drains("default/slow may take until 2000-01-01T01:00:00Z to end")
	})
}

// After the last Pod, the volumes are detached, which an event says if it takes long.
func TestDrainWaitsForVolumes(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		script.Edit(d.Cluster, "", "node-1", attach("csi/a", "csi/b"))
		d.drains("the volume csi/a is still attached; the volume csi/b is still attached")
		script.Edit(d.Cluster, "", "node-1", attach("csi/b"))
		time.Sleep(61 * time.Second)
		d.drains("the volume csi/b is still attached")
		if events := script.All[corev1.Event](d.Cluster); len(events) != 1 || events[0].Message != "The node is not drained yet: the volume csi/b is still attached" {
			t.Errorf("events %v", events)
		}
		script.Edit(d.Cluster, "", "node-1", attach())
		d.ends(Reboot)
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

// The event comes also if a webhook uses up all the time of an attempt.
func TestDrainSaysWhatHangs(t *testing.T) {
	inDrain(t, Config{}, func(t *testing.T, d *drainer) {
		d.kube = kubernetes.NewForConfigOrDie(&rest.Config{Transport: hanging{d.Cluster}, QPS: -1})
		d.Set(newPod("a"))
		time.Sleep(61 * time.Second)
		d.attempt()
		if events := script.All[corev1.Event](d.Cluster); len(events) != 1 || !strings.Contains(events[0].Message, "default/a is not evicted") {
			t.Errorf("events %v", events)
		}
	})
}
