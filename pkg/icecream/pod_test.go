package icecream

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// newPod is a Pod of the plain Icecream that has been ready for an hour, as edited.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	ice := newIcecream()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "parlour",
			Name:              "sundae-1",
			UID:               "uid-of-sundae-1",
			ResourceVersion:   "9",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels:            selector(ice, "sundae"),
			Annotations:       map[string]string{AnnotationSpecHash: specHash(ice.Spec)},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "sundae-7c8b", UID: "uid-of-a-replica-set", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))},
			},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: containerName, Ready: true, Image: ice.Spec.Image,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// notReady makes a Pod one that has not been ready for that long.
func notReady(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		ready := podCondition(pod, corev1.PodReady)
		ready.Status = corev1.ConditionFalse
		ready.LastTransitionTime = metav1.NewTime(now.Add(-age))
		pod.Status.ContainerStatuses[0].Ready = false
	}
}

// waits has the Pod's container wait for a reason.
func waits(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
}

// ended has the Pod's container have ended once.
func ended(code int32, reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
		}
	}
}

// endsNow has the Pod's container end now.
func endsNow(code int32, reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
}

// unschedulable has found no node for the Pod for that long.
func unschedulable(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = ""
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = nil
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/3 nodes are available", LastTransitionTime: metav1.NewTime(now.Add(-age)),
		}}
	}
}

// seen is a Pod as PodOf reads it.
func seen(edits ...func(*corev1.Pod)) Pod {
	p, _ := PodOf(newPod(edits...))
	return p
}

// waiting is a Pod whose container has waited for that long.
func waiting(reason string, age time.Duration) Pod {
	return seen(notReady(age), waits(reason, "out of cream"))
}

func TestPodOf(t *testing.T) {
	tests := []struct {
		name        string
		edits       []func(*corev1.Pod)
		wantGone    bool
		wantReady   bool
		wantReason  string
		wantMessage string
		wantSince   time.Duration // before now
	}{{
		name:      "a ready Pod",
		wantReady: true,
	}, {
		name:      "a ready Pod that crashed once is in no trouble",
		edits:     []func(*corev1.Pod){ended(1, "Error")},
		wantReady: true,
	}, {
		name:  "a Pod that has only just begun",
		edits: []func(*corev1.Pod){notReady(time.Second), waits("ContainerCreating", "")},
	}, {
		name:  "a Pod without any status",
		edits: []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} }},
	}, {
		name:     "a Pod that is being deleted does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { beingDeleted(pod) }},
		wantGone: true,
	}, {
		name:     "an evicted Pod does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
		wantGone: true,
	}, {
		name:     "a Pod that its ReplicaSet has given up does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.OwnerReferences = nil }},
		wantGone: true,
	}, {
		name:     "a Pod of somebody else that has our labels does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" }},
		wantGone: true,
	}, {
		name:     "a Pod that has ended well does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }},
		wantGone: true,
	}, {
		name:        "no node takes it",
		edits:       []func(*corev1.Pod){unschedulable(5 * time.Second)},
		wantReason:  v1alpha1.ReasonUnschedulable,
		wantMessage: `Pod "sundae-1" cannot be scheduled: 0/3 nodes are available`,
		wantSince:   5 * time.Second,
	}, {
		name: "the scheduler has not looked at it yet",
		edits: []func(*corev1.Pod){unschedulable(0), func(pod *corev1.Pod) {
			pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		}},
	}, {
		name:        "the image cannot be pulled",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("ErrImagePull", "not found")},
		wantReason:  v1alpha1.ReasonImagePullBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": not found`,
		wantSince:   time.Minute,
	}, {
		name:        "the image cannot be pulled, and the kubelet backs off",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("ImagePullBackOff", `Back-off pulling image "registry.example/vanilla:1": ErrImagePull: not found`)},
		wantReason:  v1alpha1.ReasonImagePullBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": not found`,
		wantSince:   time.Minute,
	}, {
		name:        "the kubelet backs off without saying why",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("ImagePullBackOff", `Back-off pulling image "registry.example/vanilla:1"`)},
		wantReason:  v1alpha1.ReasonImagePullBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1"`,
		wantSince:   time.Minute,
	}, {
		name:        "the image's name is nonsense",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("InvalidImageName", "couldn't parse image name")},
		wantReason:  v1alpha1.ReasonImagePullBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": couldn't parse image name`,
		wantSince:   time.Minute,
	}, {
		name:        "the container cannot be made",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("CreateContainerConfigError", "image has no user")},
		wantReason:  v1alpha1.ReasonContainerError,
		wantMessage: `Pod "sundae-1", container "icecream": image has no user`,
		wantSince:   time.Minute,
	}, {
		name:        "it has crashed and waits to be started again",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("CrashLoopBackOff", "back-off 10s"), ended(1, "Error")},
		wantReason:  v1alpha1.ReasonCrashLoopBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": has ended with exit code 1 (Error)`,
		wantSince:   time.Minute,
	}, {
		name:  "it crashed some time ago, and is slow now",
		edits: []func(*corev1.Pod){notReady(time.Minute), ended(137, "OOMKilled")},
	}, {
		name:        "it has just crashed",
		edits:       []func(*corev1.Pod){notReady(time.Minute), endsNow(137, "OOMKilled")},
		wantReason:  v1alpha1.ReasonCrashLoopBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": has ended with exit code 137 (OOMKilled)`,
		wantSince:   time.Minute,
	}, {
		name:  "it has just ended well",
		edits: []func(*corev1.Pod){notReady(time.Minute), endsNow(0, "Completed")},
	}, {
		name:        "it ends well, again and again",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("CrashLoopBackOff", "back-off 10s"), ended(0, "Completed")},
		wantReason:  v1alpha1.ReasonCrashLoopBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": has ended with exit code 0 (Completed)`,
		wantSince:   time.Minute,
	}, {
		name:        "it waits to be started again, and nobody knows why",
		edits:       []func(*corev1.Pod){notReady(time.Minute), waits("CrashLoopBackOff", "back-off 10s")},
		wantReason:  v1alpha1.ReasonCrashLoopBackOff,
		wantMessage: `Pod "sundae-1", container "icecream": has ended`,
		wantSince:   time.Minute,
	}, {
		name: "an init container that was started again has ended well",
		edits: []func(*corev1.Pod){notReady(time.Minute), waits("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "mesh", RestartCount: 1, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
			}}
		}},
	}, {
		name: "a container that was injected before ours cannot start",
		edits: []func(*corev1.Pod){notReady(time.Minute), waits("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "mesh", Image: "mesh:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}},
			}}
		}},
		wantReason:  v1alpha1.ReasonImagePullBackOff,
		wantMessage: `Pod "sundae-1", container "mesh": cannot pull image "mesh:1": denied`,
		wantSince:   time.Minute,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := newPod(tt.edits...)
			got, counts := PodOf(pod)
			if counts == tt.wantGone {
				t.Fatalf("counts = %t, want %t", counts, !tt.wantGone)
			}
			if got.Ready != tt.wantReady {
				t.Errorf("Ready = %t, want %t", got.Ready, tt.wantReady)
			}
			if got.Trouble.Reason != tt.wantReason || got.Trouble.Message != tt.wantMessage {
				t.Errorf("trouble %q: %q\nwant    %q: %q", got.Trouble.Reason, got.Trouble.Message, tt.wantReason, tt.wantMessage)
			}
			if tt.wantReason != "" && !got.Trouble.Since.Equal(now.Add(-tt.wantSince)) {
				t.Errorf("since %v, want %v", got.Trouble.Since, now.Add(-tt.wantSince))
			}
			if tt.wantGone {
				return
			}
			stripped := pod.DeepCopy()
			StripPod(stripped)
			again, _ := PodOf(stripped)
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("stripped, it reads otherwise (-whole +stripped):\n%s", diff)
			}
		})
	}
}

// While one cause lasts, a kubelet moves through several states; they all read
// the same, so that nothing is written or told about them.
func TestOneCauseReadsTheSameAllTheTime(t *testing.T) {
	age := notReady(time.Minute)
	tests := []struct {
		name   string
		phases []Pod
	}{{
		name: "an image that cannot be pulled",
		phases: []Pod{
			seen(age, waits("ErrImagePull", "rpc error: not found")),
			seen(age, waits("ImagePullBackOff", `Back-off pulling image "registry.example/vanilla:1": ErrImagePull: rpc error: not found`)),
		},
	}, {
		name: "a container that crashes",
		phases: []Pod{
			seen(age, endsNow(1, "Error")),
			seen(age, waits("CrashLoopBackOff", "back-off 10s restarting failed container"), ended(1, "Error")),
			seen(age, waits("CrashLoopBackOff", "back-off 20s restarting failed container"), ended(1, "Error")),
		},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, phase := range tt.phases[1:] {
				if diff := cmp.Diff(tt.phases[0], phase); diff != "" {
					t.Errorf("it reads otherwise (-before +after):\n%s", diff)
				}
			}
		})
	}
}
