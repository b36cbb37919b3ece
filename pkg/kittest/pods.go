package kittest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReadyStatus returns the status of a Pod with one container, which has been ready since
// that time.
func ReadyStatus(container, image string, since time.Time) corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, Ready: true, Image: image,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
}

// NotReady returns an edit of a Pod with a ReadyStatus: the Pod has not been ready since
// that time.
func NotReady(since time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		ready := &pod.Status.Conditions[1]
		ready.Status = corev1.ConditionFalse
		ready.LastTransitionTime = metav1.NewTime(since)
		pod.Status.ContainerStatuses[0].Ready = false
	}
}

// Waits returns an edit of a Pod: its container waits for a reason.
func Waits(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
}

// Ended returns an edit of a Pod: its container ended before it was last started.
func Ended(code int32, reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
		}
	}
}

// Unschedulable returns an edit of a Pod: no node has been found for it since that time.
func Unschedulable(since time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = ""
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = nil
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/3 nodes are available", LastTransitionTime: metav1.NewTime(since),
		}}
	}
}
