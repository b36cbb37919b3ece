package icecream

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Pod is what the report needs to know of a Pod.
type Pod struct {
	Name       string
	Node       string // empty while it is not scheduled
	Deployment string // the value of LabelDeployment
	SpecHash   string // the value of AnnotationSpecHash
	Ready      bool
	Trouble    Trouble // the zero value when nothing is known to be wrong
}

// Trouble is a reason why a Pod will not become ready by itself.
type Trouble struct {
	Reason  string
	Message string
	Since   time.Time
}

// PodOf reads a Pod. counts is false for one that is ending or has ended: it is
// no longer one of the replicas.
func PodOf(pod *corev1.Pod) (p Pod, counts bool) {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	p = Pod{
		Name:       pod.Name,
		Node:       pod.Spec.NodeName,
		Deployment: pod.Labels[LabelDeployment],
		SpecHash:   pod.Annotations[AnnotationSpecHash],
	}
	if ready := podCondition(pod, corev1.PodReady); ready != nil {
		p.Ready = ready.Status == corev1.ConditionTrue
	}
	if !p.Ready {
		p.Trouble = troubleOf(pod)
	}
	return p, true
}

// troubleOf finds the root cause of a Pod not being ready. Its words stay the
// same while the cause does: a kubelet's change between ErrImagePull and
// ImagePullBackOff, or between crashed and started once more, is not news.
func troubleOf(pod *corev1.Pod) Trouble {
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
					Since:   notReadySince(pod),
				}
			}
		}
	}
	return Trouble{}
}

func containerTrouble(container corev1.ContainerStatus) (reason, message string) {
	if waiting := container.State.Waiting; waiting != nil {
		switch waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed":
			return v1alpha1.ReasonImagePullBackOff, fmt.Sprintf("cannot pull image %q%s", container.Image, pullError(waiting.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError":
			return v1alpha1.ReasonContainerError, waiting.Message
		}
	}
	ended := container.LastTerminationState.Terminated
	if container.State.Terminated != nil {
		ended = container.State.Terminated
	}
	if !container.Ready && ended != nil && ended.ExitCode != 0 {
		return v1alpha1.ReasonCrashLoopBackOff, fmt.Sprintf("keeps ending, last with exit code %d (%s)", ended.ExitCode, ended.Reason)
	}
	return "", ""
}

// pullError is the registry's answer in a kubelet's message about an image. A
// kubelet that backs off quotes it behind "ErrImagePull: ".
func pullError(message string) string {
	if _, quoted, ok := strings.Cut(message, "ErrImagePull: "); ok {
		message = quoted
	}
	if message == "" || strings.HasPrefix(message, "Back-off") {
		return ""
	}
	return ": " + message
}

// notReadySince is when the Pod stopped being ready, or began without being.
func notReadySince(pod *corev1.Pod) time.Time {
	if ready := podCondition(pod, corev1.PodReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

func podCondition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
