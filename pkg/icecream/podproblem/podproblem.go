// Package podproblem finds the root cause of a Pod's not becoming ready.
//
// It reads a Pod's status alone, and needs of it no more than the phase, the conditions
// Ready and PodScheduled, and of each container the name, the image, the state and the
// last state. A problem reads the same for as long as its cause lasts: neither a
// kubelet's change between ErrImagePull and ImagePullBackOff nor that between a crash
// and the wait for the next start is another problem.
package podproblem

import (
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reason is the kind of a problem.
type Reason string

// All kinds of problems. A Pod that is merely slow has none.
const (
	ContainerError  Reason = "ContainerError"  // a container cannot be made or started
	CrashLoop       Reason = "CrashLoop"       // a container keeps ending
	ImagePullFailed Reason = "ImagePullFailed" // a container's image cannot be pulled
	Unschedulable   Reason = "Unschedulable"   // there is no node for the Pod, or the scheduler fails to look for one
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{ContainerError, CrashLoop, ImagePullFailed, Unschedulable}
}

// Problem is why a Pod will not become ready by itself. The zero value is none.
type Problem struct {
	Reason  Reason
	Message string // a sentence that names the Pod
	Since   time.Time
}

// Of returns the problem of a Pod; the zero value if nothing is known to be wrong.
func Of(pod *corev1.Pod) Problem {
	isReady, since := Ready(pod)
	if isReady {
		return Problem{}
	}
	if scheduled := condition(pod, corev1.PodScheduled); scheduled != nil &&
		scheduled.Status == corev1.ConditionFalse &&
		(scheduled.Reason == corev1.PodReasonUnschedulable || scheduled.Reason == corev1.PodReasonSchedulerError) {
		return Problem{
			Reason:  Unschedulable,
			Message: fmt.Sprintf("Pod %q cannot be scheduled: %s", pod.Name, scheduled.Message),
			Since:   scheduled.LastTransitionTime.Time,
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, container := range statuses {
			if reason, message := ofContainer(container); reason != "" {
				return Problem{
					Reason:  reason,
					Message: fmt.Sprintf("Pod %q, container %q: %s", pod.Name, container.Name, message),
					Since:   since,
				}
			}
		}
	}
	return Problem{}
}

// Ready reports whether a Pod is ready, and since when that has been so: one that never
// was has not been ready since its creation.
func Ready(pod *corev1.Pod) (isReady bool, since time.Time) {
	if ready := condition(pod, corev1.PodReady); ready != nil {
		return ready.Status == corev1.ConditionTrue, ready.LastTransitionTime.Time
	}
	return false, pod.CreationTimestamp.Time
}

// Strip returns what [Of] and [Ready] read of a Pod's status, and its phase, for caches of
// many Pods.
func Strip(status corev1.PodStatus) corev1.PodStatus {
	kept := corev1.PodStatus{Phase: status.Phase}
	isReady := false
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			kept.Conditions = append(kept.Conditions, c)
			isReady = isReady || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
	}
	if !isReady {
		kept.InitContainerStatuses = stripContainers(status.InitContainerStatuses)
		kept.ContainerStatuses = stripContainers(status.ContainerStatuses)
	}
	return kept
}

func stripContainers(statuses []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for _, c := range statuses {
		kept = append(kept, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: c.State, LastTerminationState: c.LastTerminationState})
	}
	return kept
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// ofContainer returns what keeps a container from running now. How it ended some time
// ago does not matter: today it may be slow for another reason.
func ofContainer(container corev1.ContainerStatus) (reason Reason, message string) {
	if waiting := container.State.Waiting; waiting != nil {
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
			"RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
			return ImagePullFailed, fmt.Sprintf("cannot pull image %q%s", container.Image, pullError(waiting.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
			"PreCreateHookError", "PreStartHookError", "PostStartHookError":
			return ContainerError, waiting.Message
		case "CrashLoopBackOff":
			return CrashLoop, hasEnded(container.LastTerminationState.Terminated)
		}
	}
	if ended := container.State.Terminated; ended != nil && ended.ExitCode != 0 {
		return CrashLoop, hasEnded(ended)
	}
	return "", ""
}

func hasEnded(last *corev1.ContainerStateTerminated) string {
	if last == nil {
		return "has ended"
	}
	return fmt.Sprintf("has ended with exit code %d (%s)", last.ExitCode, last.Reason)
}

// backOff matches what a kubelet that backs off puts before the error that it quotes.
var backOff = regexp.MustCompile(`^Back-off pulling image ".*?"(?:: \w+: )?`)

// pullError returns the registry's answer from a kubelet's message about an image.
func pullError(message string) string {
	message = backOff.ReplaceAllString(message, "")
	if message == "" {
		return ""
	}
	return ": " + message
}
