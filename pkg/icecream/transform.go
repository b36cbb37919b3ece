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

// kept says what is kept of Pods.
var kept = podproblem.Keeper{Kind: "ReplicaSet", Keys: []string{LabelIcecream, LabelDeployment, AnnotationSpecHash}}

// CachePod returns what the cache keeps of a Pod.
func CachePod(pod *corev1.Pod) *podproblem.Pod { return kept.Keep(pod) }

// PodOf reads a Pod. counts is false for one that is no replica: it is ending, has
// ended, or was removed from its ReplicaSet, for debugging for example.
func PodOf(pod *podproblem.Pod) (p Pod, counts bool) {
	if !pod.IsReplica() {
		return Pod{}, false
	}
	p = Pod{
		Name:       pod.GetName(),
		Node:       pod.Node(),
		Deployment: pod.Value(LabelDeployment),
		SpecHash:   pod.Value(AnnotationSpecHash),
		Problem:    pod.Problem(),
	}
	p.Ready, p.Since = pod.Ready()
	return p, true
}
