package podtimestamp

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

// setTransform makes the cache keep no more of each Pod than strip leaves.
func setTransform(pods informer.Cache[*metav1.PartialObjectMetadata]) error {
	return pods.SetTransform(informer.Stripped(strip))
}

// strip removes from a Pod everything that is not read here, so that each Pod needs the
// same memory whatever it contains.
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
