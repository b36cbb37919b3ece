package icecream

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

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
	if !podproblem.IsReplica(pod, "ReplicaSet") {
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

// StripPod reduces a Pod, in place, to what PodOf reads: a cache holds many.
func StripPod(pod *corev1.Pod) {
	podproblem.Strip(pod, LabelIcecream, LabelDeployment, AnnotationSpecHash)
}
