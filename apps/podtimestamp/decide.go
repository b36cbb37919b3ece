package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/internal/text"
)

// The annotations of a Pod that matter here.
const (
	AnnotationAddTime   = "addtime"   // asks for a timestamp, unless its value means no
	AnnotationTimestamp = "timestamp" // is the timestamp (RFC 3339, UTC), or what someone else has set
)

// Decide returns the timestamp that a Pod should get now; "" if it needs none. The Pod is
// nil if it does not exist.
func Decide(pod *metav1.PartialObjectMetadata, now time.Time) string {
	if pod == nil || !isAsking(pod) || isStamped(pod) || isTerminating(pod) || isMirror(pod) {
		return ""
	}
	return now.UTC().Format(time.RFC3339)
}

// isAsking reports whether the Pod asks for a timestamp.
func isAsking(pod *metav1.PartialObjectMetadata) bool {
	isYes, isClear := text.Answer(pod.Annotations[AnnotationAddTime])
	return has(pod, AnnotationAddTime) && (isYes || !isClear)
}

// isStamped reports whether the Pod has a timestamp.
func isStamped(pod *metav1.PartialObjectMetadata) bool { return has(pod, AnnotationTimestamp) }

// isTerminating reports whether the Pod is being deleted.
func isTerminating(pod *metav1.PartialObjectMetadata) bool { return pod.DeletionTimestamp != nil }

// isMirror reports whether the Pod mirrors a static Pod. The kubelet re-creates such a Pod
// from the static Pod's manifest whenever they differ.
func isMirror(pod *metav1.PartialObjectMetadata) bool {
	return has(pod, corev1.MirrorPodAnnotationKey)
}

func has(pod *metav1.PartialObjectMetadata, annotation string) bool {
	_, ok := pod.Annotations[annotation]
	return ok
}
