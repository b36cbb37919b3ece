package icecream

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod is what the report needs to know of a Pod.
type Pod struct {
	Name       string
	Node       string // empty while it is not scheduled
	Deployment string // the value of LabelDeployment
	SpecHash   string // the value of AnnotationSpecHash
	Ready      bool
	Since      time.Time // when it became ready, or stopped being so, or began without being so
	Trouble    Trouble   // the zero value when nothing is known to be wrong
}

// PodOf reads a Pod. counts is false for one that is no replica: it is ending, has
// ended, or was taken from its ReplicaSet, for debugging for example.
func PodOf(pod *corev1.Pod) (p Pod, counts bool) {
	if !isReplica(pod) || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	p = Pod{
		Name:       pod.Name,
		Node:       pod.Spec.NodeName,
		Deployment: pod.Labels[LabelDeployment],
		SpecHash:   pod.Annotations[AnnotationSpecHash],
	}
	p.Since = pod.CreationTimestamp.Time
	if ready := podCondition(pod, corev1.PodReady); ready != nil {
		p.Ready = ready.Status == corev1.ConditionTrue
		p.Since = ready.LastTransitionTime.Time
	}
	if !p.Ready {
		p.Trouble = troubleOf(pod, p.Since)
	}
	return p, true
}

const replicaSet = "ReplicaSet"

// isReplica reports whether a ReplicaSet controls the Pod. It gives up a Pod that
// loses a label of its selector, though the Pod keeps the labels of its Icecream.
func isReplica(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == replicaSet
}

func podCondition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
