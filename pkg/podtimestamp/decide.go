package podtimestamp

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations of a Pod that matter here. Only their presence counts, not their value.
const (
	AnnotationAddTime   = "addtime"   // asks for a timestamp
	AnnotationTimestamp = "timestamp" // is the timestamp (RFC 3339, UTC), or whatever someone else has put there
)

// Observed is what a decision is based on.
type Observed struct {
	Now time.Time
	Pod *metav1.PartialObjectMetadata // nil if there is none
}

// Decision is what to do.
type Decision struct {
	Timestamp string // the timestamp that the Pod should get; empty if none
}

// Decide returns whether the Pod should get a timestamp, and which.
func Decide(o Observed) Decision {
	if o.Pod == nil || !isAsking(o.Pod) || isStamped(o.Pod) || isTerminating(o.Pod) || isMirror(o.Pod) {
		return Decision{}
	}
	return Decision{Timestamp: o.Now.UTC().Format(time.RFC3339)}
}

// isAsking reports whether the Pod asks for a timestamp.
func isAsking(pod *metav1.PartialObjectMetadata) bool { return has(pod, AnnotationAddTime) }

// isStamped reports whether the Pod has a timestamp.
func isStamped(pod *metav1.PartialObjectMetadata) bool { return has(pod, AnnotationTimestamp) }

// isTerminating reports whether the Pod is being deleted.
func isTerminating(pod *metav1.PartialObjectMetadata) bool { return pod.DeletionTimestamp != nil }

// isMirror reports whether pod mirrors a static Pod. The kubelet re-creates such a Pod
// from the static Pod's manifest whenever they differ.
func isMirror(pod *metav1.PartialObjectMetadata) bool {
	return has(pod, corev1.MirrorPodAnnotationKey)
}

func has(pod *metav1.PartialObjectMetadata, annotation string) bool {
	_, ok := pod.Annotations[annotation]
	return ok
}
