package icecream

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

// The caches hold many objects, and of each no more than somebody here reads. Each of these
// functions is the transform of an informer: it changes the object in place.

// StripIcecream drops what nobody reads of an Icecream.
func StripIcecream(obj any) (any, error) {
	if ice, ok := obj.(*v1alpha1.Icecream); ok {
		ice.ManagedFields, ice.Labels = nil, nil
		delete(ice.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return obj, nil
}

// StripDeployment drops what nobody reads of a Deployment. Of one that cannot be
// an Icecream's, only what shows that is left.
func StripDeployment(obj any) (any, error) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return obj, nil
	}
	d.ManagedFields = nil
	delete(d.Annotations, corev1.LastAppliedConfigAnnotation)
	if _, isLabeled := d.Labels[LabelIcecream]; isLabeled || IsControlledByIcecream(d) {
		return d, nil
	}
	d.Labels, d.Annotations, d.Spec, d.Status = nil, nil, appsv1.DeploymentSpec{}, appsv1.DeploymentStatus{}
	return d, nil
}

// IsControlledByIcecream reports whether an object's controller is an Icecream, whichever
// it is and whether or not it still exists.
func IsControlledByIcecream(obj metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.Kind == "Icecream" && owner.APIVersion == v1alpha1.GroupVersion.String()
}

// StripPod drops what nobody reads of a Pod (see [PodOf]).
func StripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	stripped := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            only(pod.Labels, LabelIcecream, LabelDeployment),
			Annotations:       only(pod.Annotations, AnnotationSpecHash),
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: podproblem.Strip(pod.Status),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		stripped.OwnerReferences = []metav1.OwnerReference{{Kind: owner.Kind, Controller: owner.Controller}}
	}
	return stripped, nil
}

// only returns some keys of a map.
func only(of map[string]string, keys ...string) map[string]string {
	kept := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := of[key]; ok {
			kept[key] = value
		}
	}
	return kept
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

// PodOf reads a Pod. counts is false for one that is no replica: it is ending, has ended,
// or was removed from its ReplicaSet, for debugging for example.
func PodOf(pod *corev1.Pod) (p Pod, counts bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	hasEnded := slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, pod.Status.Phase)
	if owner == nil || owner.Kind != "ReplicaSet" || hasEnded || pod.DeletionTimestamp != nil {
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
