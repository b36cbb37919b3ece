package icecream

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

// StripIcecream removes, in place, what nothing here reads of an Icecream.
func StripIcecream(icecream *v1alpha1.Icecream) {
	icecream.ManagedFields = nil
}

// StripDeployment reduces someone else's Deployment, in place, to what shows that it is
// someone else's, and leaves one that could be ours as it is.
func StripDeployment(d *appsv1.Deployment) {
	if _, labeled := d.Labels[LabelIcecream]; labeled || IsControlledByAnIcecream(d) {
		return
	}
	*d = appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:              d.Name,
		Namespace:         d.Namespace,
		UID:               d.UID,
		ResourceVersion:   d.ResourceVersion,
		DeletionTimestamp: d.DeletionTimestamp,
		OwnerReferences:   d.OwnerReferences,
	}}
}

// IsControlledByAnIcecream reports whether an object's controller is an Icecream,
// whichever it is and whether or not it still exists.
func IsControlledByAnIcecream(obj metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.Kind == "Icecream" && owner.APIVersion == v1alpha1.GroupVersion.String()
}

// Pod is what the status needs to know about a Pod.
type Pod struct {
	Name       string
	Node       string // empty while it is not scheduled
	Deployment string // the value of LabelDeployment
	SpecHash   string // the value of AnnotationSpecHash
	Ready      bool
	Since      time.Time          // when Ready became what it is, at the earliest at its creation
	Problem    podproblem.Problem // the zero value if nothing is known to be wrong
}

// PodOf reads a Pod. counts is false for one that is no replica: it is ending, has
// ended, or was removed from its ReplicaSet, for debugging for example.
func PodOf(pod *corev1.Pod) (p Pod, counts bool) {
	if !isReplica(pod) || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	p = Pod{
		Name:       pod.Name,
		Node:       pod.Spec.NodeName,
		Deployment: pod.Labels[LabelDeployment],
		SpecHash:   pod.Annotations[AnnotationSpecHash],
		Problem:    podproblem.Of(pod),
	}
	p.Ready, p.Since = podproblem.Ready(pod)
	return p, true
}

const replicaSet = "ReplicaSet"

// isReplica reports whether a ReplicaSet controls the Pod. A ReplicaSet gives up a Pod
// that loses a label of its selector, though the Pod keeps the labels of its Icecream.
func isReplica(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == replicaSet
}

// StripPod reduces a Pod, in place, to what PodOf reads: a cache holds many.
func StripPod(pod *corev1.Pod) {
	*pod = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              pod.Name,
			Namespace:         pod.Namespace,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            only(pod.Labels, LabelIcecream, LabelDeployment),
			Annotations:       only(pod.Annotations, AnnotationSpecHash),
			OwnerReferences:   onlyReplicaSet(pod),
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

// byReplicaSet are the owner references that all Pods of a ReplicaSet have in a cache.
// They are shared, and nobody may change them.
var byReplicaSet = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: replicaSet, Controller: ptr.To(true)}}

func onlyReplicaSet(pod *corev1.Pod) []metav1.OwnerReference {
	if isReplica(pod) {
		return byReplicaSet
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
func only(from map[string]string, keys ...string) map[string]string {
	kept := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := from[key]; ok {
			kept[key] = value
		}
	}
	return kept
}
