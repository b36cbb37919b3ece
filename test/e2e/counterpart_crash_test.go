package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// reportAsKubelet updates the status of a Pod's only container as the kubelet would. The
// simulated kubelet does not interfere, because it leaves states alone that it does not
// produce itself: its own crashes have the reason "Error".
func reportAsKubelet(t *testing.T, n *lab.Namespace, pod string, becomes func(container *corev1.ContainerStatus)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := n.Pods().Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		container := &now.Status.ContainerStatuses[0]
		becomes(container)
		ready := corev1.ConditionFalse
		if container.Ready {
			ready = corev1.ConditionTrue
		}
		for i := range now.Status.Conditions {
			condition := &now.Status.Conditions[i]
			if isOfReadiness := condition.Type == corev1.PodReady || condition.Type == corev1.ContainersReady; isOfReadiness && condition.Status != ready {
				condition.Status, condition.LastTransitionTime = ready, metav1.Now()
			}
		}
		_, err = n.Pods().UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatalf("reporting on Pod %q: %v", pod, err)
	}
}

// The functions below change a container for reportAsKubelet.

// notReady makes the container run without being ready.
func notReady(container *corev1.ContainerStatus) {
	container.Ready = false
	container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

// running makes the container run and be ready, and counts a restart if it was not
// running.
func running(container *corev1.ContainerStatus) {
	if container.State.Running == nil {
		container.RestartCount++
		container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	}
	container.Ready = true
}

// crashed makes the container terminate with an error.
func crashed(container *corev1.ContainerStatus) {
	ended := corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.Now()}
	if container.State.Running != nil {
		ended.StartedAt = container.State.Running.StartedAt
	}
	container.Ready = false
	container.State = corev1.ContainerState{Terminated: &ended}
}

// backedOff makes the container wait to be restarted after a crash.
func backedOff(container *corev1.ContainerStatus) {
	container.LastTerminationState = container.State
	container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container=" + container.Name,
	}}
}

// A container without a readiness probe is ready whenever it runs. So its Pod is ready
// between one crash and the next.
func TestCrashLoopWithoutAReadinessProbe(t *testing.T) {
	t.Parallel()
	const crashes = 4
	for name, replicas := range map[string]string{"of the only Pod": "1", "of one of two": "2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewQuietNamespace(t)
			n.StartController(t, "-icecream-stall-after=15s") // how long it must run for the Icecream to be Ready again
			n.Apply(t, icecreamYAML("vanilla", "replicas: "+replicas))
			n.EventuallyReady(t, "vanilla")
			eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonSynced, "")
			pod := n.LivePods(t)[0].Name

			for i := range crashes {
				reportAsKubelet(t, n, pod, crashed)
				time.Sleep(settleTime / 2) // about as long as a kubelet takes
				reportAsKubelet(t, n, pod, backedOff)
				if i == 0 {
					eventuallyEvent(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff, "exit code 137")
				}
				n.Steadily(t, "it is not Ready while the container waits", settleTime, func(context.Context) error { return isNotReady(n.Icecream(t, "vanilla")) })
				reportAsKubelet(t, n, pod, running)
				n.Steadily(t, "it is not Ready just because the container runs again", settleTime, func(context.Context) error {
					return isNotReady(n.Icecream(t, "vanilla"))
				})
			}
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff, "exit code 137")
			if got := eventNotes(t, n, "vanilla", v1alpha1.ReasonSynced); len(got) != 1 {
				t.Errorf("after a crash loop there are %d events Synced, want only the one from before: %q", len(got), got)
			}

			requireRecovered(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff)
			requireOneWarning(t, n, "vanilla", v1alpha1.ReasonCrashLoopBackOff, "exit code 137")
			if got := eventNotes(t, n, "vanilla", v1alpha1.ReasonSynced); len(got) != 2 {
				t.Errorf("there are %d events Synced, want two: %q", len(got), got)
			}
		})
	}
}

// isNotReady returns an error if the Icecream is Ready.
func isNotReady(ice *v1alpha1.Icecream) error {
	if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); ready.Status == metav1.ConditionTrue {
		return fmt.Errorf("it is Ready: %s", ready.Message)
	}
	return nil
}

// A container that crashed long ago and has run ever since is not in a crash loop.
func TestOldCrashIsNotTheReason(t *testing.T) {
	t.Parallel()
	for name, since := range map[string]time.Duration{"three weeks ago": 21 * 24 * time.Hour, "at startup, an hour ago": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			n.Apply(t, icecreamYAML("vanilla", "replicas: 2"))
			n.EventuallyReady(t, "vanilla")
			seen := watchIcecreams(t, n)

			then := metav1.NewTime(time.Now().Add(-since))
			reportAsKubelet(t, n, n.LivePods(t)[0].Name, func(container *corev1.ContainerStatus) {
				container.RestartCount = 1
				container.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "OOMKilled", StartedAt: then, FinishedAt: then,
				}}
				container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: then}}
				container.Ready = false
			})
			n.EventuallyIcecream(t, "vanilla", "is in progress", func(ice *v1alpha1.Icecream) error {
				ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady)
				if ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonProgressing {
					return fmt.Errorf("condition Ready is %+v", ready)
				}
				return nil
			})
			n.Steadily(t, "it is still in progress after the stall timeout", 4*time.Second, func(context.Context) error {
				if got := kstatusOf(t, n, "vanilla"); got != status.InProgressStatus {
					return fmt.Errorf("kstatus is %s", got)
				}
				return nil
			})
			seen.requireNeverStalled(t)
			requireNoWarnings(t, n, "vanilla")
		})
	}
}
