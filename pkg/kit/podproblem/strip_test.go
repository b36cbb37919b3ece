package podproblem

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

func strip(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: pod.ObjectMeta}
	Strip(pod, kept)
	return kept
}

// genPod draws a Pod with times from five minutes ago until latest.
func genPod(t *rapid.T, latest time.Duration) *corev1.Pod {
	at := rapid.Custom(func(t *rapid.T) metav1.Time {
		if rapid.IntRange(0, 9).Draw(t, "is zero") == 0 {
			return metav1.Time{}
		}
		return metav1.NewTime(now.Add(time.Duration(rapid.Int64Range(-300, int64(latest/time.Second)).Draw(t, "seconds")) * time.Second))
	})
	words := rapid.SampledFrom([]string{"", "melted", "\xff", "two\n lines", `Back-off pulling image "x": ErrImagePull: y`, strings.Repeat(" ", 2000) + "x", strings.Repeat("é ", 2000)})
	state := rapid.Custom(func(t *rapid.T) (s corev1.ContainerState) {
		kind := rapid.IntRange(0, 7).Draw(t, "state") // usually one of them
		if kind == 0 || kind == 1 {
			reasons := []string{"", "ContainerCreating", "PodInitializing", "ErrImagePull", "CreateContainerError", "CrashLoopBackOff", "PostStartHookError"}
			s.Waiting = &corev1.ContainerStateWaiting{Reason: rapid.SampledFrom(reasons).Draw(t, "waits for"), Message: words.Draw(t, "message")}
		}
		if kind >= 1 && kind <= 4 {
			s.Running = &corev1.ContainerStateRunning{StartedAt: at.Draw(t, "started")}
		}
		if kind >= 4 && kind <= 6 {
			s.Terminated = &corev1.ContainerStateTerminated{
				ExitCode:   rapid.Int32Range(0, 2).Draw(t, "exit code"),
				Reason:     rapid.SampledFrom([]string{"", "Error", "StartError", strings.Repeat("long", 100)}).Draw(t, "end"),
				Message:    words.Draw(t, "message"),
				FinishedAt: at.Draw(t, "finished"),
			}
		}
		return s
	})
	containers := func(of string, most int) (drawn []corev1.ContainerStatus) {
		for i := range rapid.IntRange(0, most).Draw(t, of) {
			drawn = append(drawn, corev1.ContainerStatus{
				Name:                 fmt.Sprint(of, i),
				Image:                words.Draw(t, "image"),
				Ready:                rapid.Bool().Draw(t, "is ready"),
				Started:              rapid.Ptr(rapid.Bool(), true).Draw(t, "is started"),
				State:                state.Draw(t, "state"),
				LastTerminationState: state.Draw(t, "last state"),
			})
		}
		return drawn
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "sundae-1", CreationTimestamp: at.Draw(t, "created")}}
	if rapid.IntRange(0, 4).Draw(t, "is terminating") == 0 {
		pod.DeletionTimestamp = &metav1.Time{Time: at.Draw(t, "deleted").Time}
		pod.Finalizers = rapid.SliceOfN(rapid.SampledFrom([]string{"a.example/a", strings.Repeat("b", 500)}), 0, 5).Draw(t, "finalizers")
	}
	kinds := rapid.SampledFrom([]corev1.PodConditionType{"Ready", "PodScheduled", "PodReadyToStartContainers", "Gate", "Other", ""})
	pod.Spec.NodeName = rapid.SampledFrom([]string{"", "node-1"}).Draw(t, "node")
	pod.Spec.ReadinessGates = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.PodReadinessGate {
		return corev1.PodReadinessGate{ConditionType: kinds.Draw(t, "gate")}
	}), 0, 2).Draw(t, "gates")
	pod.Status = corev1.PodStatus{
		Phase:                 rapid.SampledFrom([]corev1.PodPhase{"", "Pending", "Running", "Running", "Succeeded", "Failed", "Unknown"}).Draw(t, "phase"),
		Reason:                words.Draw(t, "reason"),
		Message:               words.Draw(t, "message"),
		InitContainerStatuses: containers("init", 3),
		ContainerStatuses:     containers("app", 8),
	}
	pod.Status.Conditions = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.PodCondition {
		return corev1.PodCondition{
			Type:               kinds.Draw(t, "type"),
			Status:             rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "status"),
			Reason:             rapid.SampledFrom([]string{"", "Unschedulable", "SchedulingGated"}).Draw(t, "reason"),
			Message:            words.Draw(t, "message"),
			LastTransitionTime: at.Draw(t, "changed"),
		}
	}), 0, 6).Draw(t, "conditions")
	return pod
}

// A Pod from a cache reads as the whole Pod does, also later.
func TestStrippedPodsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := genPod(t, 5*time.Minute)
		stripped := strip(whole)
		if IsReady(stripped) != IsReady(whole) {
			t.Errorf("ready: %t", IsReady(stripped))
		}
		for _, later := range []time.Duration{0, 30 * time.Second, 2 * time.Minute} {
			p := Of(whole, now.Add(later))
			if diff := cmp.Diff(p, Of(stripped, now.Add(later))); diff != "" {
				t.Errorf("after %v (-whole +stripped):\n%s", later, diff)
			}
			switch {
			case p.Reason == "" && (p.Message != "" || !p.Since.IsZero()):
				t.Errorf("no reason, but %+v", p)
			case p.Reason != "" && (!slices.Contains(Reasons(), p.Reason) || !strings.Contains(p.Message, `"sundae-1"`) || len(p.Message) > 1024):
				t.Errorf("problem %+v", p)
			}
		}
	})
}

// If no clock is ahead, the answer changes after RecheckAfter, and not before.
func TestRecheckAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := genPod(t, 0)
		answer := func(later time.Duration) Problem {
			p := Of(pod, now.Add(later))
			p.RecheckAfter = 0
			return p
		}
		recheck := Of(pod, now).RecheckAfter
		if recheck == 0 {
			if diff := cmp.Diff(answer(0), answer(time.Hour)); diff != "" {
				t.Errorf("nothing to recheck, but (-now +later):\n%s", diff)
			}
			return
		}
		if diff := cmp.Diff(answer(0), answer(recheck-1)); diff != "" {
			t.Errorf("before it is time to recheck (-now +later):\n%s", diff)
		}
		if answer(0) == answer(recheck) {
			t.Errorf("after %v it is still %+v", recheck, answer(0))
		}
	})
}

func TestStripIsBounded(t *testing.T) {
	long := strings.Repeat("melted ", 10_000)
	restarted := *newPod(crashed(time.Hour), runs(time.Hour)).Status.ContainerStatuses[0].DeepCopy()
	restarted.Image, restarted.LastTerminationState.Terminated.Message, restarted.LastTerminationState.Terminated.Reason = long, long, long
	fails := *newPod(kittest.Waits(long, long), kittest.Ended(1, long)).Status.ContainerStatuses[0].DeepCopy()
	fails.Name = "fails"
	pod := newPod(notReady(time.Minute))
	pod.Status.Reason, pod.Status.Message = long, long
	for range 1000 {
		for _, kind := range []corev1.PodConditionType{"Ready", "PodScheduled", "PodReadyToStartContainers", "Gate", "Other"} {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: "False", Reason: long, Message: long})
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: kind})
		}
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, restarted)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, fails)
	}
	raw, err := json.Marshal(strip(pod))
	if err != nil || len(raw) > 16<<10 {
		t.Errorf("%d bytes are kept: %v", len(raw), err)
	}
	if got := Of(pod, now); !strings.HasPrefix(got.Message, `Pod "sundae-1", container "fails": melted`) {
		t.Errorf("problem %+v", got)
	}
	healthy := strip(newPod()).Status
	if len(healthy.Conditions) != 1 || healthy.ContainerStatuses != nil {
		t.Errorf("of a Pod that is well, it keeps %+v", healthy)
	}
}
