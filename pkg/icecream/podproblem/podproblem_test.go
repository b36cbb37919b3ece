package podproblem

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// now is when everything in these tests happens.
var now = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

// newPod is a Pod that has been ready for an hour, as edited.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sundae-1", CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status:     kittest.ReadyStatus("gadget", "registry.example/vanilla:1", now.Add(-time.Hour)),
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// notReady makes a Pod one that has not been ready for that long.
func notReady(age time.Duration) func(*corev1.Pod) { return kittest.NotReady(now.Add(-age)) }

// unschedulable has found no node for the Pod for that long.
func unschedulable(age time.Duration) func(*corev1.Pod) { return kittest.Unschedulable(now.Add(-age)) }

func ofPod(edits ...func(*corev1.Pod)) Problem { return Of(newPod(edits...)) }

func TestOf(t *testing.T) {
	tests := []struct {
		name        string
		edits       []func(*corev1.Pod)
		wantReason  Reason
		wantMessage string
		wantSince   time.Duration // before now
	}{{
		name: "a ready Pod",
	}, {
		name:  "a ready Pod that crashed once is in no trouble",
		edits: []func(*corev1.Pod){kittest.Ended(1, "Error")},
	}, {
		name:  "a Pod that has only just begun",
		edits: []func(*corev1.Pod){notReady(time.Second), kittest.Waits("ContainerCreating", "")},
	}, {
		name:  "a Pod without any status",
		edits: []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} }},
	}, {
		name:        "no node takes it",
		edits:       []func(*corev1.Pod){unschedulable(5 * time.Second)},
		wantReason:  Unschedulable,
		wantMessage: `Pod "sundae-1" cannot be scheduled: 0/3 nodes are available`,
		wantSince:   5 * time.Second,
	}, {
		name: "the scheduler fails",
		edits: []func(*corev1.Pod){unschedulable(5 * time.Second), func(pod *corev1.Pod) {
			pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulerError
		}},
		wantReason:  Unschedulable,
		wantMessage: `Pod "sundae-1" cannot be scheduled: 0/3 nodes are available`,
		wantSince:   5 * time.Second,
	}, {
		name: "the scheduler has not looked at it yet",
		edits: []func(*corev1.Pod){unschedulable(0), func(pod *corev1.Pod) {
			pod.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		}},
	}, {
		name:        "the image cannot be pulled",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("ErrImagePull", "not found")},
		wantReason:  ImagePullFailed,
		wantMessage: `Pod "sundae-1", container "gadget": cannot pull image "registry.example/vanilla:1": not found`,
		wantSince:   time.Minute,
	}, {
		name:        "the image cannot be pulled, and the kubelet backs off",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("ImagePullBackOff", `Back-off pulling image "registry.example/vanilla:1": ErrImagePull: not found`)},
		wantReason:  ImagePullFailed,
		wantMessage: `Pod "sundae-1", container "gadget": cannot pull image "registry.example/vanilla:1": not found`,
		wantSince:   time.Minute,
	}, {
		name:        "the kubelet backs off without saying why",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("ImagePullBackOff", `Back-off pulling image "registry.example/vanilla:1"`)},
		wantReason:  ImagePullFailed,
		wantMessage: `Pod "sundae-1", container "gadget": cannot pull image "registry.example/vanilla:1"`,
		wantSince:   time.Minute,
	}, {
		name:        "the image's name is nonsense",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("InvalidImageName", "couldn't parse image name")},
		wantReason:  ImagePullFailed,
		wantMessage: `Pod "sundae-1", container "gadget": cannot pull image "registry.example/vanilla:1": couldn't parse image name`,
		wantSince:   time.Minute,
	}, {
		name:        "the container cannot be made",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CreateContainerConfigError", "image has no user")},
		wantReason:  ContainerError,
		wantMessage: `Pod "sundae-1", container "gadget": image has no user`,
		wantSince:   time.Minute,
	}, {
		name:        "it has crashed and waits to be started again",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(1, "Error")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": has ended with exit code 1 (Error)`,
		wantSince:   time.Minute,
	}, {
		name:  "it crashed some time ago, and is slow now",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.Ended(137, "OOMKilled")},
	}, {
		name:        "it has just crashed",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.EndsNow(137, "OOMKilled")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": has ended with exit code 137 (OOMKilled)`,
		wantSince:   time.Minute,
	}, {
		name:  "it has just ended well",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.EndsNow(0, "Completed")},
	}, {
		name:        "it ends well, again and again",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(0, "Completed")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": has ended with exit code 0 (Completed)`,
		wantSince:   time.Minute,
	}, {
		name:        "it waits to be started again, and nobody knows why",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CrashLoopBackOff", "back-off 10s")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": has ended`,
		wantSince:   time.Minute,
	}, {
		name: "an init container that was started again has ended well",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "mesh", RestartCount: 1, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
			}}
		}},
	}, {
		name: "a container that was injected before ours cannot start",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "mesh", Image: "mesh:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}},
			}}
		}},
		wantReason:  ImagePullFailed,
		wantMessage: `Pod "sundae-1", container "mesh": cannot pull image "mesh:1": denied`,
		wantSince:   time.Minute,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := Problem{Reason: tt.wantReason, Message: tt.wantMessage}
			if tt.wantReason != "" {
				want.Since = now.Add(-tt.wantSince)
			}
			pod := newPod(tt.edits...)
			if diff := cmp.Diff(want, Of(pod)); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReady(t *testing.T) {
	for _, tt := range []struct {
		name      string
		edit      func(*corev1.Pod)
		wantReady bool
		wantSince time.Duration // before now
	}{
		{"ready", func(*corev1.Pod) {}, true, time.Hour},
		{"no longer ready", notReady(time.Minute), false, time.Minute},
		{"never ready", func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} }, false, 2 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			isReady, since := Ready(newPod(tt.edit))
			if isReady != tt.wantReady || !since.Equal(now.Add(-tt.wantSince)) {
				t.Errorf("ready: %t since %v", isReady, since)
			}
		})
	}
}

// While one cause lasts, a kubelet moves through several states; they all read
// the same, so that nothing needs to be reported about them.
func TestOneCauseReadsTheSameAllTheTime(t *testing.T) {
	age := notReady(time.Minute)
	tests := []struct {
		name   string
		phases []Problem
	}{{
		name: "an image that cannot be pulled",
		phases: []Problem{
			ofPod(age, kittest.Waits("ErrImagePull", "rpc error: not found")),
			ofPod(age, kittest.Waits("ImagePullBackOff", `Back-off pulling image "registry.example/vanilla:1": ErrImagePull: rpc error: not found`)),
		},
	}, {
		name: "a registry that is unavailable",
		phases: []Problem{
			ofPod(age, kittest.Waits("RegistryUnavailable", "image pull failed for x:1 because the registry is unavailable: refused")),
			ofPod(age, kittest.Waits("ImagePullBackOff", `Back-off pulling image "x:1": RegistryUnavailable: image pull failed for x:1 because the registry is unavailable: refused`)),
		},
	}, {
		name: "a container that crashes",
		phases: []Problem{
			ofPod(age, kittest.EndsNow(1, "Error")),
			ofPod(age, kittest.Waits("CrashLoopBackOff", "back-off 10s restarting failed container"), kittest.Ended(1, "Error")),
			ofPod(age, kittest.Waits("CrashLoopBackOff", "back-off 20s restarting failed container"), kittest.Ended(1, "Error")),
		},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, phase := range tt.phases[1:] {
				if diff := cmp.Diff(tt.phases[0], phase); diff != "" {
					t.Errorf("problem (-first +then):\n%s", diff)
				}
			}
		})
	}
}
