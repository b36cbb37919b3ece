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

// has gives a Pod a condition.
func has(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

// gate gives a Pod a readiness gate.
func gate(kind corev1.PodConditionType) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: kind}} }
}

func containersReady(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Ready = true }

func started(is bool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Started = &is }
}

// runs makes the Pod's container one that was started that long ago.
func runs(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-age))}}
	}
}

// crashed ended the Pod's container that long ago.
func crashed(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		kittest.Ended(1, "Error")(pod)
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.FinishedAt = metav1.NewTime(now.Add(-age))
	}
}

// terminating makes a Pod one whose grace period ended that long ago.
func terminating(age time.Duration, finalizers ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: now.Add(-age)}, finalizers
	}
}

func failed(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "Evicted" }

func TestOf(t *testing.T) {
	tests := []struct {
		name        string
		edits       []func(*corev1.Pod)
		wantReason  string
		wantMessage string
		wantSince   time.Duration // before now
		wantRecheck time.Duration
	}{{
		name: "a ready Pod",
	}, {
		name:  "a ready Pod that crashed once is in no trouble",
		edits: []func(*corev1.Pod){crashed(61 * time.Second), runs(time.Minute)},
	}, {
		name:        "a ready Pod that has just crashed",
		edits:       []func(*corev1.Pod){crashed(3 * time.Second), runs(time.Second)},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 1 (Error)`,
		wantSince:   3 * time.Second,
		wantRecheck: 59 * time.Second,
	}, {
		name:        "a ready Pod that has just crashed, nobody knows when",
		edits:       []func(*corev1.Pod){kittest.Ended(1, "Error"), runs(time.Second)},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 1 (Error)`,
		wantSince:   time.Second,
		wantRecheck: 59 * time.Second,
	}, {
		name:  "a ready Pod that crashed, on a node whose clock is wrong",
		edits: []func(*corev1.Pod){crashed(-2 * time.Minute), runs(-2 * time.Minute)},
	}, {
		name:  "a ready Pod that has just ended well",
		edits: []func(*corev1.Pod){kittest.Ended(0, "Completed"), runs(time.Second)},
	}, {
		name:  "a ready Pod that could not be started before",
		edits: []func(*corev1.Pod){kittest.Ended(128, "StartError"), runs(time.Second)},
	}, {
		name: "several containers crash",
		edits: []func(*corev1.Pod){crashed(time.Minute), runs(50 * time.Second), func(pod *corev1.Pod) {
			other := *pod.Status.ContainerStatuses[0].DeepCopy()
			other.Name, other.State.Running.StartedAt = "other", metav1.NewTime(now)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, other)
		}},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 1 (Error)`,
		wantSince:   time.Minute,
		wantRecheck: 10 * time.Second,
	}, {
		name:        "a Pod that has only just begun",
		edits:       []func(*corev1.Pod){notReady(time.Second), kittest.Waits("ContainerCreating", "")},
		wantRecheck: 59 * time.Second,
	}, {
		name: "a Pod that was only just created",
		edits: []func(*corev1.Pod){func(pod *corev1.Pod) {
			pod.Status, pod.CreationTimestamp = corev1.PodStatus{}, metav1.NewTime(now.Add(-time.Second))
		}},
		wantRecheck: 59 * time.Second,
	}, {
		name:        "a Pod that has begun too long ago",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("ContainerCreating", "")},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" waits: ContainerCreating`,
		wantSince:   time.Minute,
	}, {
		name:        "the clock of its node is a minute fast",
		edits:       []func(*corev1.Pod){notReady(-time.Minute)},
		wantRecheck: 2 * time.Minute,
	}, {
		name:        "the clock of its node is wrong",
		edits:       []func(*corev1.Pod){notReady(-time.Minute - time.Second)},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" runs, and does not pass its readiness probe`,
		wantSince:   -time.Minute - time.Second,
	}, {
		name:        "a Pod without any status",
		edits:       []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} }},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: node "node-1" has not started it`,
		wantSince:   2 * time.Hour,
	}, {
		name:        "no sandbox",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("ContainerCreating", ""), has(corev1.PodReadyToStartContainers, "False", "", "")},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: its sandbox is not ready; the Pod's events say more about volumes and the network`,
		wantSince:   time.Minute,
	}, {
		name:        "a probe that never succeeds",
		edits:       []func(*corev1.Pod){notReady(time.Minute), started(true)},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" runs, and does not pass its readiness probe`,
		wantSince:   time.Minute,
	}, {
		name:        "a startup probe that never succeeds",
		edits:       []func(*corev1.Pod){notReady(time.Minute), started(false)},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" runs, and has not passed its startup probe`,
		wantSince:   time.Minute,
	}, {
		name:        "a readiness gate without a condition",
		edits:       []func(*corev1.Pod){notReady(time.Minute), containersReady, gate("lb.example/ok")},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: its readiness gate "lb.example/ok" has no condition`,
		wantSince:   time.Minute,
	}, {
		name: "a readiness gate whose condition says why",
		edits: []func(*corev1.Pod){
			notReady(time.Minute), containersReady, gate("lb.example/ok"), has("lb.example/ok", "False", "Registering", "the target is being registered"),
		},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: its readiness gate "lb.example/ok" is False: Registering: the target is being registered`,
		wantSince:   time.Minute,
	}, {
		name:        "its node is lost",
		edits:       []func(*corev1.Pod){notReady(time.Minute), containersReady},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: its containers are; its node may be lost`,
		wantSince:   time.Minute,
	}, {
		name: "its node has rejected it",
		edits: []func(*corev1.Pod){func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
			pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Pod was rejected: no devices\nleft"}
		}},
		wantReason:  Failed,
		wantMessage: `Pod "sundae-1" has failed: UnexpectedAdmissionError: Pod was rejected: no devices left`,
		wantSince:   time.Second,
		wantRecheck: 59 * time.Second,
	}, {
		name: "its node has evicted it",
		edits: []func(*corev1.Pod){notReady(20 * time.Second), kittest.EndsNow(137, "Error"), func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
		}},
		wantReason:  Failed,
		wantMessage: `Pod "sundae-1" has failed: Evicted: The node was low on resource: memory.`,
		wantSince:   20 * time.Second,
		wantRecheck: 40 * time.Second,
	}, {
		name:  "its node has evicted it a minute ago",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.EndsNow(137, "Error"), failed},
	}, {
		name:        "it is terminating, and has time",
		edits:       []func(*corev1.Pod){notReady(time.Hour), kittest.EndsNow(137, "Error"), terminating(-time.Hour)},
		wantRecheck: time.Hour,
	}, {
		name:        "it is terminating for too long",
		edits:       []func(*corev1.Pod){terminating(0)},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is terminating, and its grace period is over: its node may be lost`,
	}, {
		name:        "a finalizer holds a Pod that has failed",
		edits:       []func(*corev1.Pod){failed, terminating(time.Second, "a.example/a", "a.example/b", "a.example/c", "a.example/d")},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is terminating, and its grace period is over: it has finalizers: a.example/a, a.example/b, a.example/c`,
		wantSince:   time.Second,
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
		name: "a scheduling gate is no failure",
		edits: []func(*corev1.Pod){unschedulable(0), func(pod *corev1.Pod) {
			pod.Status.Conditions[0].Reason, pod.Status.Conditions[0].Message = corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates"
		}},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: it is not scheduled: SchedulingGated: Scheduling is blocked due to non-empty scheduling gates`,
		wantSince:   2 * time.Hour,
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
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 1 (Error)`,
		wantSince:   time.Minute,
	}, {
		name:        "it has crashed and runs again",
		edits:       []func(*corev1.Pod){notReady(time.Hour), crashed(time.Minute), runs(20 * time.Second)},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 1 (Error)`,
		wantSince:   time.Hour,
		wantRecheck: 40 * time.Second,
	}, {
		name:        "it crashed some time ago, and is slow now",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Ended(137, "OOMKilled"), runs(time.Minute)},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" runs, and does not pass its readiness probe`,
		wantSince:   time.Minute,
	}, {
		name:        "it has just crashed",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.EndsNow(137, "OOMKilled")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 137 (OOMKilled)`,
		wantSince:   time.Minute,
	}, {
		name:        "it has just ended well",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.EndsNow(0, "Completed")},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" has exited`,
		wantSince:   time.Minute,
	}, {
		name:        "it ends well, again and again",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(0, "Completed")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": exited with code 0 (Completed)`,
		wantSince:   time.Minute,
	}, {
		name:        "it waits to be started again, and nobody knows why",
		edits:       []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CrashLoopBackOff", "back-off 10s")},
		wantReason:  CrashLoop,
		wantMessage: `Pod "sundae-1", container "gadget": has exited`,
		wantSince:   time.Minute,
	}, {
		name: "an init container that was started again has ended well",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "mesh", RestartCount: 1, Ready: true, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
			}}
		}},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: container "gadget" waits: PodInitializing`,
		wantSince:   time.Minute,
	}, {
		name: "an init container that runs for long",
		edits: []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("PodInitializing", ""), func(pod *corev1.Pod) {
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "mesh", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}},
		wantReason:  NotReady,
		wantMessage: `Pod "sundae-1" is not ready: init container "mesh" has not finished`,
		wantSince:   time.Minute,
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
			want := Problem{Reason: tt.wantReason, Message: tt.wantMessage, RecheckAfter: tt.wantRecheck}
			if tt.wantReason != "" {
				want.Since = now.Add(-tt.wantSince)
			}
			if diff := cmp.Diff(want, Of(newPod(tt.edits...), now)); diff != "" {
				t.Errorf("problem (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsReady(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.Pod)
		want bool
	}{
		"ready":           {func(*corev1.Pod) {}, true},
		"no longer ready": {notReady(time.Minute), false},
		"never ready":     {func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsReady(newPod(test.edit)); got != test.want {
				t.Errorf("ready: %t", got)
			}
		})
	}
}

// The states through which a kubelet moves a container that cannot be created, started, or kept
// running (pkg/kubelet/container/sync_result.go, images/types.go, kubelet_pods.go, v1.37): as long as
// the cause lasts, it has one reason. Where the kubelet says the same all the time, so does the message.
func TestStatesOfContainers(t *testing.T) {
	waits := func(reason, message string, last ...corev1.ContainerStateTerminated) corev1.ContainerStatus {
		c := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
		if len(last) > 0 {
			c.LastTerminationState.Terminated = &last[0]
		}
		return c
	}
	ends := func(end corev1.ContainerStateTerminated) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &end}}
	}
	starts := func(last corev1.ContainerStateTerminated) corev1.ContainerStatus { return waits("", "", last) }
	runsAgain := func(last corev1.ContainerStateTerminated) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}},
			LastTerminationState: corev1.ContainerState{Terminated: &last},
		}
	}
	const noFile = `exec: "/melt": no such file or directory`
	startError := corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: noFile}
	cannotRun := corev1.ContainerStateTerminated{ExitCode: 127, Reason: "ContainerCannotRun", Message: noFile}
	killed := corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}
	oom := corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	told := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "config: unknown key\n  flavor\n"}
	const image = `cannot pull image "vanilla:1"`
	for name, test := range map[string]struct {
		reason  string
		message string // empty if the kubelet's words differ
		phases  []corev1.ContainerStatus
	}{
		"an image that does not exist": {ImagePullFailed, image + ": rpc error: not found", []corev1.ContainerStatus{
			waits("ErrImagePull", "rpc error: not found"),
			waits("ImagePullBackOff", `Back-off pulling image "vanilla:1": ErrImagePull: rpc error: not found`),
			waits("ErrImagePull", "rpc error: not found"),
		}},
		"a registry that is unavailable": {ImagePullFailed, image + ": refused", []corev1.ContainerStatus{
			waits("RegistryUnavailable", "refused"),
			waits("ImagePullBackOff", `Back-off pulling image "vanilla:1": RegistryUnavailable: refused`),
		}},
		"a signature that is wrong": {ImagePullFailed, image + ": not signed", []corev1.ContainerStatus{
			waits("SignatureValidationFailed", "not signed"),
			waits("ImagePullBackOff", `Back-off pulling image "vanilla:1": SignatureValidationFailed: not signed`),
		}},
		"an image that cannot be inspected": {ImagePullFailed, image + ": melted", []corev1.ContainerStatus{waits("ImageInspectError", "melted")}},
		"an image that is never pulled":     {ImagePullFailed, image + ": not present", []corev1.ContainerStatus{waits("ErrImageNeverPull", "not present")}},
		"the name of an image":              {ImagePullFailed, image + ": couldn't parse it", []corev1.ContainerStatus{waits("InvalidImageName", "couldn't parse it")}},

		"a Secret that does not exist": {ContainerError, `secret "cream" not found`, []corev1.ContainerStatus{
			waits("CreateContainerConfigError", `secret "cream" not found`),
		}},
		"a container that cannot be created": {ContainerError, "", []corev1.ContainerStatus{
			waits("CreateContainerError", "context deadline exceeded"),
			waits("CreateContainerError", `the name "gadget_1" is reserved`),
		}},
		"a volume of an image":    {ContainerError, "no such volume", []corev1.ContainerStatus{waits("ImageVolumeMountFailed", "no such volume")}},
		"a hook before its start": {ContainerError, "melted", []corev1.ContainerStatus{waits("PreStartHookError", "melted")}},
		"a command that does not exist": {ContainerError, noFile, []corev1.ContainerStatus{
			waits("RunContainerError", noFile, startError),
			ends(startError),
			waits("CrashLoopBackOff", "back-off 10s restarting failed container", startError),
			starts(startError),
			waits("RunContainerError", noFile, startError),
		}},
		"a command that does not exist, for Docker": {ContainerError, noFile, []corev1.ContainerStatus{
			ends(cannotRun), waits("CrashLoopBackOff", "back-off 10s restarting failed container", cannotRun),
		}},

		"a crash": {CrashLoop, "exited with code 137 (OOMKilled)", []corev1.ContainerStatus{
			ends(oom), waits("CrashLoopBackOff", "back-off 10s", oom), starts(oom), runsAgain(oom),
			ends(oom), waits("CrashLoopBackOff", "back-off 20s", oom),
		}},
		"a crash that says why": {CrashLoop, "exited with code 1 (Error): config: unknown key flavor", []corev1.ContainerStatus{
			ends(told), waits("CrashLoopBackOff", "back-off 10s", told), starts(told), runsAgain(told),
		}},
		"a hook after its start": {CrashLoop, "", []corev1.ContainerStatus{
			waits("PostStartHookError", "melted", killed), ends(killed), waits("CrashLoopBackOff", "back-off 10s", killed), starts(killed), runsAgain(killed),
			waits("PostStartHookError", "melted", killed),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, phase := range test.phases {
				phase.Name, phase.Image = "gadget", "vanilla:1"
				got := Of(newPod(notReady(time.Minute), func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0] = phase }), now)
				if got.Reason != test.reason {
					t.Errorf("in phase %d it is %s, want %s", i, got.Reason, test.reason)
				}
				if want := `Pod "sundae-1", container "gadget": ` + test.message; test.message != "" && got.Message != want {
					t.Errorf("in phase %d it says %s\nwant %s", i, got.Message, want)
				}
			}
		})
	}
}
