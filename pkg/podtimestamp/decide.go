package podtimestamp

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations of a Pod that matter here. That one is there is all that counts,
// whatever its value.
const (
	AnnotationAddTime   = "addtime"   // asks for a timestamp
	AnnotationTimestamp = "timestamp" // is the timestamp: RFC 3339, in UTC, unless somebody else has put something there
)

// Observed is what a decision is made from.
type Observed struct {
	Now time.Time
	Pod *metav1.PartialObjectMetadata
}

// Decision says what is to be done.
type Decision struct {
	Timestamp string // to give to the Pod; empty for none
}

// Decide says whether the Pod gets a timestamp, and which.
func Decide(o Observed) Decision {
	if !isAsking(o.Pod) || isStamped(o.Pod) || isTerminating(o.Pod) || isMirror(o.Pod) {
		return Decision{}
	}
	return Decision{Timestamp: o.Now.UTC().Format(time.RFC3339)}
}

// Patch is the JSON merge patch that carries out the decision. It is for the Pod in
// the very state that was observed: any other is a conflict, be it stamped already
// or another Pod of that name.
func Patch(o Observed, d Decision) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             o.Pod.UID,
		"resourceVersion": o.Pod.ResourceVersion,
		"annotations":     map[string]string{AnnotationTimestamp: d.Timestamp},
	}})
}

func isAsking(pod *metav1.PartialObjectMetadata) bool { return has(pod, AnnotationAddTime) }

func isStamped(pod *metav1.PartialObjectMetadata) bool { return has(pod, AnnotationTimestamp) }

func isTerminating(pod *metav1.PartialObjectMetadata) bool { return pod.DeletionTimestamp != nil }

// isMirror is true of the image of a static Pod: it is the kubelet's, which made it
// of a file, and makes it anew when it differs from that.
func isMirror(pod *metav1.PartialObjectMetadata) bool {
	return has(pod, corev1.MirrorPodAnnotationKey)
}

func has(pod *metav1.PartialObjectMetadata, annotation string) bool {
	_, isThere := pod.Annotations[annotation]
	return isThere
}

// strip leaves of a Pod no more than what is read from it here, so that a cache
// takes the same memory for each, whatever is in it.
func strip(pod *metav1.PartialObjectMetadata) {
	stripped := metav1.ObjectMeta{
		Namespace:         pod.Namespace,
		Name:              pod.Name,
		UID:               pod.UID,
		ResourceVersion:   pod.ResourceVersion,
		DeletionTimestamp: pod.DeletionTimestamp,
	}
	for _, annotation := range []string{AnnotationAddTime, AnnotationTimestamp, corev1.MirrorPodAnnotationKey} {
		if has(pod, annotation) {
			metav1.SetMetaDataAnnotation(&stripped, annotation, "")
		}
	}
	pod.TypeMeta, pod.ObjectMeta = metav1.TypeMeta{}, stripped
}
