package podproblem

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Strip reduces a Pod, in place, to what this package reads, the node, what controls it,
// and its labels and annotations with these keys: a cache holds many Pods.
func Strip(pod *corev1.Pod, keys ...string) {
	*pod = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              pod.Name,
			Namespace:         pod.Namespace,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            only(pod.Labels, keys),
			Annotations:       only(pod.Annotations, keys),
			OwnerReferences:   onlyController(pod),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase:                 pod.Status.Phase,
			Conditions:            onlyConditions(pod.Status.Conditions, corev1.PodReady, corev1.PodScheduled),
			InitContainerStatuses: stripContainers(pod.Status.InitContainerStatuses),
			ContainerStatuses:     stripContainers(pod.Status.ContainerStatuses),
		},
	}
}

// IsReplica reports whether the Pod counts as one of those that a controller of that kind,
// such as "ReplicaSet", keeps running: the controller has not given it up, and it is neither
// ending nor has ended. A controller gives up a Pod that loses a label of its selector.
func IsReplica(pod *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == kind &&
		pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// owners are the owner references that all Pods of a kind of controller have in a cache.
// They are shared, and nobody may change them.
var owners = map[string][]metav1.OwnerReference{
	"ReplicaSet":  {{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: ptr.To(true)}},
	"StatefulSet": {{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: ptr.To(true)}},
}

func onlyController(pod *corev1.Pod) []metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owners[owner.Kind]
	}
	return nil
}

func stripContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, status := range statuses {
		kept = append(kept, corev1.ContainerStatus{
			Name:                 status.Name,
			Image:                status.Image,
			Ready:                status.Ready,
			State:                stripState(status.State),
			LastTerminationState: stripState(status.LastTerminationState),
		})
	}
	return kept
}

func stripState(state corev1.ContainerState) corev1.ContainerState {
	kept := corev1.ContainerState{Waiting: state.Waiting}
	if ended := state.Terminated; ended != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{ExitCode: ended.ExitCode, Reason: ended.Reason}
	}
	return kept
}

func onlyConditions(conditions []corev1.PodCondition, types ...corev1.PodConditionType) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, condition := range conditions {
		if slices.Contains(types, condition.Type) {
			kept = append(kept, condition)
		}
	}
	return kept
}

// only returns the entries that have these keys.
func only(from map[string]string, keys []string) map[string]string {
	kept := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := from[key]; ok {
			kept[key] = value
		}
	}
	return kept
}
