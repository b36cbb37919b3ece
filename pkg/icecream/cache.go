package icecream

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream/podproblem"
)

// The caches keep many objects, so of each only the fields that some code reads. These
// functions are the transforms of informers: they change the object in place.

// StripIcecream drops the fields of an Icecream that no code reads.
func StripIcecream(obj any) (any, error) {
	if ice, ok := obj.(*v1alpha1.Icecream); ok {
		ice.ManagedFields, ice.Labels = nil, nil
		delete(ice.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return obj, nil
}

// StripDeployment drops the fields of a Deployment that no code reads. A Deployment that
// cannot belong to an Icecream keeps only what shows that.
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

// IsControlledByIcecream reports whether an object's controller is an Icecream of any version,
// even one that no longer exists.
func IsControlledByIcecream(obj metav1.Object) bool {
	return hasController(obj, v1alpha1.GroupName, "Icecream")
}

// IsControlledBy reports whether this Icecream is the object's controller. The API server does
// not check that an owner is in the same namespace, so the UID alone proves nothing.
func IsControlledBy(obj metav1.Object, ice *v1alpha1.Icecream) bool {
	return obj.GetNamespace() == ice.Namespace && IsControlledByIcecream(obj) && metav1.GetControllerOfNoCopy(obj).UID == ice.UID
}

// hasController reports whether an object's controller is of that group and kind.
func hasController(obj metav1.Object, group, kind string) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind != kind {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == group
}

// StripPod drops the fields of a Pod that no code reads (see [PodOf]).
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
			Labels:            only(pod.Labels, LabelIcecream, appsv1.DefaultDeploymentUniqueLabelKey),
			Annotations:       only(pod.Annotations, AnnotationSpecHash),
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: podproblem.Strip(pod.Status),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		stripped.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: owner.APIVersion,
			Kind:       owner.Kind,
			Name:       owner.Name,
			Controller: owner.Controller,
		}}
	}
	return stripped, nil
}

// only returns a map with only these keys.
func only(of map[string]string, keys ...string) map[string]string {
	kept := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := of[key]; ok {
			kept[key] = value
		}
	}
	return kept
}

// Pod is what a status needs of a Pod.
type Pod struct {
	Name         string
	Node         string // empty while it is not scheduled
	ReplicaSet   string // the name of its controller
	TemplateHash string // the Deployment controller's hash of its template
	SpecHash     string // the value of AnnotationSpecHash
	Ready        bool
	Since        time.Time          // the last change of Ready, or else the creation
	Problem      podproblem.Problem // the zero value if there is none
}

// isOf reports whether the Pod's ReplicaSet has the name that kube-controller-manager gives to
// those of the Deployment. So Pods of others count for nothing, whatever labels they have.
func (p Pod) isOf(d *appsv1.Deployment) bool {
	longest := validation.DNS1123SubdomainMaxLength - len("-"+p.TemplateHash)
	return p.ReplicaSet == d.Name[:min(len(d.Name), max(0, longest))]+"-"+p.TemplateHash
}

// PodOf reads a Pod. counts is false for a Pod that is no replica: it is terminating, has
// finished, or was removed from its ReplicaSet, for example to debug it.
func PodOf(pod *corev1.Pod) (p Pod, counts bool) {
	hasEnded := slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, pod.Status.Phase)
	if !hasController(pod, appsv1.GroupName, "ReplicaSet") || hasEnded || pod.DeletionTimestamp != nil {
		return Pod{}, false
	}
	p = Pod{
		Name:         pod.Name,
		Node:         pod.Spec.NodeName,
		ReplicaSet:   metav1.GetControllerOfNoCopy(pod).Name,
		TemplateHash: pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey],
		SpecHash:     pod.Annotations[AnnotationSpecHash],
		Problem:      podproblem.Of(pod),
	}
	p.Ready, p.Since = podproblem.Ready(pod)
	return p, true
}
