package icecream

import (
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Trouble is a reason why a Pod will not become ready by itself.
type Trouble struct {
	Reason  string
	Message string
	Since   time.Time
}

// troubleOf finds the root cause of a Pod not being ready. Its words stay the
// same while the cause does: a kubelet's change between ErrImagePull and
// ImagePullBackOff, or between crashed and started once more, is not news.
func troubleOf(pod *corev1.Pod, notReadySince time.Time) Trouble {
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil &&
		scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable {
		return Trouble{
			Reason:  v1alpha1.ReasonUnschedulable,
			Message: fmt.Sprintf("Pod %q cannot be scheduled: %s", pod.Name, scheduled.Message),
			Since:   scheduled.LastTransitionTime.Time,
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, container := range statuses {
			if reason, message := containerTrouble(container); reason != "" {
				return Trouble{
					Reason:  reason,
					Message: fmt.Sprintf("Pod %q, container %q: %s", pod.Name, container.Name, message),
					Since:   notReadySince,
				}
			}
		}
	}
	return Trouble{}
}

// containerTrouble is what keeps a container from running now. How it ended some
// time ago does not matter: it may be slow today for a reason of its own.
func containerTrouble(container corev1.ContainerStatus) (reason, message string) {
	if waiting := container.State.Waiting; waiting != nil {
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
			return v1alpha1.ReasonImagePullBackOff, fmt.Sprintf("cannot pull image %q%s", container.Image, pullError(waiting.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError":
			return v1alpha1.ReasonContainerError, waiting.Message
		case "CrashLoopBackOff":
			return v1alpha1.ReasonCrashLoopBackOff, hasEnded(container.LastTerminationState.Terminated)
		}
	}
	if ended := container.State.Terminated; ended != nil && ended.ExitCode != 0 {
		return v1alpha1.ReasonCrashLoopBackOff, hasEnded(ended)
	}
	return "", ""
}

func hasEnded(last *corev1.ContainerStateTerminated) string {
	if last == nil {
		return "has ended"
	}
	return fmt.Sprintf("has ended with exit code %d (%s)", last.ExitCode, last.Reason)
}

// backOff is what a kubelet that backs off puts before the error that it quotes.
var backOff = regexp.MustCompile(`^Back-off pulling image ".*?"(?:: \w+: )?`)

// pullError is the registry's answer in a kubelet's message about an image.
func pullError(message string) string {
	message = backOff.ReplaceAllString(message, "")
	if message == "" {
		return ""
	}
	return ": " + message
}
