package icecream

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// The caches hold many objects, and other people can write anything into them. So a cache keeps what some
// code reads or sets, and clips lists and texts that nothing else bounds: an entry has a few kilobytes at
// most. These functions are the transforms of the informers. Patches are made from what is kept, and leave
// the rest as it is.

// The most that is kept of a list, and of a text in bytes.
const (
	maxItems = 32 // as many resources as the schema of Icecreams admits
	maxText  = 1024
)

// notDecoded is the annotation by which package lenient marks an object in memory.
const notDecoded = "not decoded: spec"

// StripIcecream keeps what the code reads of an Icecream. The schema bounds all of it but the conditions, which others
// can write: only the three of this controller are kept.
func StripIcecream(obj any) (any, error) {
	ice, ok := obj.(*v1alpha1.Icecream)
	if !ok {
		return obj, nil
	}
	kept := &v1alpha1.Icecream{ObjectMeta: metaOf(ice), Spec: ice.Spec, Status: ice.Status}
	kept.Annotations = only(ice.Annotations, notDecoded)
	kept.Status.Conditions = nil
	for _, c := range ice.Status.Conditions {
		if slices.Contains(kstatus.States(), kstatus.State(c.Type)) {
			c.Reason, c.Message = text.Clip(c.Reason, maxText), text.Clip(c.Message, maxText)
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	return kept, nil
}

// StripDeployment keeps the fields that setDeployment sets and those that a status needs. It keeps only the metadata of
// a Deployment that has neither an Icecream's label nor an Icecream as its controller.
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
	kept.Labels = only(d.Labels, LabelIcecream, labelName, labelManagedBy)
	kept.Annotations = only(d.Annotations, AnnotationAsked)
	kept.Spec.Replicas, kept.Spec.Paused, kept.Spec.Strategy.Type = d.Spec.Replicas, d.Spec.Paused, d.Spec.Strategy.Type
	if s := d.Spec.Selector; s != nil && len(s.MatchLabels) == 1 && len(s.MatchExpressions) == 0 { // any other is none of ours
		kept.Spec.Selector = s
	}
	template := &kept.Spec.Template
	template.Labels = only(d.Spec.Template.Labels, LabelIcecream, labelName, labelManagedBy)
	template.Annotations = only(d.Spec.Template.Annotations, corev1.SeccompPodAnnotationKey)
	if len(template.Annotations) > 0 && len(d.Spec.Template.Annotations) > 1 {
		template.Annotations["others"] = "" // A patch removes a key, or the whole map if that was its only key.
	}
	template.Spec = strippedPodSpec(&d.Spec.Template.Spec)
	kept.Status = d.Status
	kept.Status.Conditions = nil
	for _, of := range []appsv1.DeploymentConditionType{appsv1.DeploymentProgressing, appsv1.DeploymentReplicaFailure} {
		if c := condition(d, of); c.Type != "" { // The API server admits any number of one type.
			c.Reason, c.Message = text.Clip(c.Reason, maxText), text.Clip(c.Message, maxText)
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	return kept
}

func strippedPodSpec(spec *corev1.PodSpec) corev1.PodSpec {
	kept := corev1.PodSpec{
		AutomountServiceAccountToken: spec.AutomountServiceAccountToken,
		NodeSelector:                 only(spec.NodeSelector, corev1.LabelOSStable),
		OS:                           spec.OS,
		InitContainers:               strippedContainers(spec.InitContainers),
		Containers:                   strippedContainers(spec.Containers),
	}
	if security := spec.SecurityContext; security != nil {
		kept.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: security.RunAsNonRoot}
		if profile := security.SeccompProfile; profile != nil {
			kept.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: profile.Type, LocalhostProfile: clip(profile.LocalhostProfile)}
		}
	}
	return kept
}

// strippedContainers keeps our container, and the names of others: to remove ours from a list that has others
// is another patch than to remove the list.
func strippedContainers(containers []corev1.Container) (kept []corev1.Container) {
	for i, c := range containers {
		switch {
		case isOurs(c):
			kept = append(kept, strippedContainer(c))
		case i < maxItems:
			kept = append(kept, corev1.Container{Name: c.Name})
		}
	}
	return kept
}

func strippedContainer(c corev1.Container) corev1.Container {
	kept := corev1.Container{Name: c.Name, Image: text.Clip(c.Image, maxText)}
	kept.Resources.Limits, kept.Resources.Requests = bounded(c.Resources.Limits), bounded(c.Resources.Requests)
	kept.Resources.Claims = slices.Clone(c.Resources.Claims[:min(len(c.Resources.Claims), 1)])
	if security := c.SecurityContext; security != nil {
		kept.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: security.AllowPrivilegeEscalation, Privileged: security.Privileged,
		}
		if all := security.Capabilities; all != nil {
			kept.SecurityContext.Capabilities = &corev1.Capabilities{Add: first(all.Add), Drop: first(all.Drop)}
		}
	}
	return kept
}

// bounded keeps as many resources as an Icecream can have, and no number that would take long to write or to
// compare.
func bounded(list corev1.ResourceList) corev1.ResourceList {
	kept := make(corev1.ResourceList, len(list))
	for _, name := range slices.Sorted(maps.Keys(list))[:min(len(list), maxItems)] {
		if kept[name] = list[name]; isOversized(list[name]) {
			kept[name] = resource.Quantity{}
		}
	}
	return kept
}

// StripPod keeps what code reads of a Pod (see [PodOf]).
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

// metaOf keeps of an object's metadata what identifies it, its times, and its controlling owner.
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

// only returns a map with only these keys.
func only(of map[string]string, keys ...string) map[string]string {
	kept := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, ok := of[key]; ok {
			kept[key] = text.Clip(value, maxText)
		}
	}
	return kept
}

// first keeps the first names of a list.
func first[T ~string](list []T) (kept []T) {
	for _, name := range list[:min(len(list), maxItems)] {
		kept = append(kept, T(text.Clip(string(name), maxText)))
	}
	return kept
}

func clip(of *string) *string {
	if of == nil {
		return nil
	}
	clipped := text.Clip(*of, maxText)
	return &clipped
}
