package icecream

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// defaultProgressDeadline is what the API server puts into a Deployment without
// one, in seconds.
const defaultProgressDeadline = 600

// Trouble is a reason why a Pod will not become ready by itself.
type Trouble struct {
	Reason  string
	Message string
	Since   time.Time
}

// troubleOn is what keeps the Deployment from being rolled out, if anything does,
// and when that means that the Icecream is stalled: never, if zero. Of several
// troubles it is the same one as long as they last.
func troubleOn(o Observed, deployment *appsv1.Deployment) (t Trouble, stallsAt time.Time) {
	var worst Trouble
	var slowest Pod
	label, hash := LabelValue(deployment.Name), specHash(o.Icecream.Spec)
	for _, pod := range o.Pods {
		isCurrent := pod.Deployment == label && pod.SpecHash == hash
		if !isCurrent || pod.Ready {
			continue
		}
		if pod.Trouble.Reason != "" && (worst.Reason == "" || isBefore(pod.Trouble, worst)) {
			worst = pod.Trouble
		}
		if slowest.Name == "" || cmp.Or(pod.Since.Compare(slowest.Since), strings.Compare(pod.Name, slowest.Name)) < 0 {
			slowest = pod
		}
	}
	if worst.Reason != "" {
		return worst, worst.Since.Add(o.StallAfter)
	}
	if deployment.Status.ObservedGeneration < deployment.Generation {
		return Trouble{}, time.Time{} // what follows would speak of an earlier spec
	}
	if deployment.Spec.Paused {
		return Trouble{Reason: v1alpha1.ReasonDeploymentPaused, Message: fmt.Sprintf("Deployment %q is paused", deployment.Name)}, o.Now
	}
	if failure := deploymentCondition(deployment, appsv1.DeploymentReplicaFailure); failure.Status == corev1.ConditionTrue {
		since := failure.LastTransitionTime.Time
		return Trouble{v1alpha1.ReasonReplicaFailure, failure.Message, since}, since.Add(o.StallAfter)
	}
	if progress := deploymentCondition(deployment, appsv1.DeploymentProgressing); progress.Reason == v1alpha1.ReasonProgressDeadlineExceeded {
		return Trouble{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: progress.Message}, o.Now
	}
	// The Deployment's patience ends with its rollout; what comes later, such as
	// a Pod added by scaling, gets as much of it from us.
	deadline := ptr.Deref(deployment.Spec.ProgressDeadlineSeconds, defaultProgressDeadline)
	if slowest.Name == "" || deadline == math.MaxInt32 {
		return Trouble{}, time.Time{}
	}
	stallsAt = slowest.Since.Add(time.Duration(deadline) * time.Second)
	if isPast(stallsAt, o.Now) {
		t = Trouble{Reason: v1alpha1.ReasonProgressDeadlineExceeded, Message: fmt.Sprintf("Pod %q has not become ready within %d s", slowest.Name, deadline)}
	}
	return t, stallsAt
}

// isBefore orders troubles: the longest first, then by their words.
func isBefore(a, b Trouble) bool {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message)) < 0
}

// isPast says whether t, if it is a time at all, has come.
func isPast(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// stallsIn is how long it is until the Icecream will be stalled, if nothing
// changes; zero when it will not be, or is already.
func stallsIn(o Observed) time.Duration {
	deployment := target(o)
	if deployment == nil || isComplete(o, deployment) {
		return 0
	}
	_, stallsAt := troubleOn(o, deployment)
	return max(0, stallsAt.Sub(o.Now))
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

func deploymentCondition(d *appsv1.Deployment, of appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	for _, condition := range d.Status.Conditions {
		if condition.Type == of {
			return condition
		}
	}
	return appsv1.DeploymentCondition{}
}
