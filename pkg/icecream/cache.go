package icecream

import (
	"bytes"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

// These are the transforms of the informers. A cache holds many objects, and others can write anything into them. So it
// keeps only what is read, and clips lists and texts that have no other limit. An object takes a few kilobytes, plus
// what spec.template asks for.

// The most that is kept.
const (
	maxItems  = 32              // of a list
	maxText   = 1024            // bytes of a text
	maxFields = 4 * maxTemplate // bytes of our managed fields, which repeat the keys of lists
)

// notDecoded is the annotation by which package lenient marks an object in memory.
const notDecoded = "not decoded: spec"

// StripIcecream keeps what is read of an Icecream. The schema limits all of that but the conditions: others can add
// some, so only the three of this controller are kept.
func StripIcecream(obj any) (any, error) {
	ice, ok := obj.(*v1alpha1.Icecream)
	if !ok {
		return obj, nil
	}
	kept := &v1alpha1.Icecream{ObjectMeta: metaOf(ice), Spec: ice.Spec, Status: ice.Status}
	kept.Annotations = only(ice.Annotations, notDecoded)
	if t := ice.Spec.Template; t != nil && len(t.Raw) > maxTemplate {
		kept.Spec.Template = &runtime.RawExtension{Raw: bytes.Clone(t.Raw[:maxTemplate+1])} // too long, so addTemplate refuses it
	}
	kept.Status.Conditions = nil
	for _, c := range ice.Status.Conditions {
		if slices.Contains(kstatus.States(), kstatus.State(c.Type)) {
			c.Reason, c.Message = text.Clip(c.Reason, maxText), text.Clip(c.Message, maxText)
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	return kept, nil
}

// StripDeployment keeps what is read of a Deployment, including which fields the controller owns. If it has
// neither LabelIcecream nor an Icecream as its controller, that is only metadata.
func StripDeployment(obj any) (any, error) {
	if d, ok := obj.(*appsv1.Deployment); ok {
		return stripped(d), nil
	}
	return obj, nil
}

// stripped returns what StripDeployment keeps. It is idempotent.
func stripped(d *appsv1.Deployment) *appsv1.Deployment {
	kept := &appsv1.Deployment{ObjectMeta: metaOf(d)}
	kept.Finalizers = first(d.Finalizers)
	if _, isLabeled := d.Labels[LabelIcecream]; !isLabeled && !IsControlledByIcecream(d) {
		return kept
	}
	kept.Labels = only(d.Labels, LabelIcecream, labelManagedBy)
	kept.Annotations = only(d.Annotations, patch.AnnotationAsked)
	left := maxFields
	for _, entry := range patch.OwnEntries(FieldManager, d.ManagedFields) {
		if entry.FieldsV1 == nil {
			continue
		}
		if size := len(entry.FieldsV1.GetRawBytes()) + maxText; size <= left {
			left -= size
			kept.ManagedFields = append(kept.ManagedFields, entry)
		}
	}
	kept.Spec.Replicas, kept.Spec.Paused, kept.Spec.Strategy.Type = d.Spec.Replicas, d.Spec.Paused, d.Spec.Strategy.Type
	if s := d.Spec.Selector; s != nil && len(s.MatchLabels) == 1 && len(s.MatchExpressions) == 0 { // No other selector is ours.
		kept.Spec.Selector = s
	}
	kept.Status = d.Status
	kept.Status.Conditions = nil
	for _, of := range []appsv1.DeploymentConditionType{appsv1.DeploymentProgressing, appsv1.DeploymentReplicaFailure} {
		if c := condition(d, of); c.Type != "" { // The API server allows several of one type.
			c.Reason, c.Message = text.Clip(c.Reason, maxText), text.Clip(c.Message, maxText)
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	return kept
}

// StripPod keeps what [PodOf] reads.
func StripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Pod{ObjectMeta: metaOf(pod)}
	kept.Labels = only(pod.Labels, LabelIcecream, appsv1.DefaultDeploymentUniqueLabelKey)
	kept.Finalizers = first(pod.Finalizers)
	podproblem.Strip(pod, kept)
	return kept, nil
}

// metaOf returns an object's identity, times and controller.
func metaOf(obj metav1.Object) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace:         obj.GetNamespace(),
		Name:              obj.GetName(),
		UID:               obj.GetUID(),
		ResourceVersion:   obj.GetResourceVersion(),
		Generation:        obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{{
			APIVersion:         text.Clip(owner.APIVersion, maxText),
			Kind:               text.Clip(owner.Kind, maxText),
			Name:               text.Clip(owner.Name, maxText),
			UID:                types.UID(text.Clip(string(owner.UID), maxText)),
			Controller:         owner.Controller,
			BlockOwnerDeletion: owner.BlockOwnerDeletion,
		}}
	}
	return kept
}

// only returns the entries of a map with these keys, and clips their values.
func only(of map[string]string, keys ...string) map[string]string {
	kept := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := of[key]; ok {
			kept[key] = text.Clip(value, maxText)
		}
	}
	return kept
}

// first returns the first maxItems names of a list, clipped.
func first[T ~string](list []T) (kept []T) {
	for _, name := range list[:min(len(list), maxItems)] {
		kept = append(kept, T(text.Clip(string(name), maxText)))
	}
	return kept
}
