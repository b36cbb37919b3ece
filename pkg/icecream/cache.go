package icecream

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// The caches hold many objects, and other people can write anything into them. So a cache keeps only
// the fields that some code reads or sets, listed here by name, and clips them: an entry has a few
// kilobytes at most. These functions are the transforms of the informers.

// The most that is kept.
const (
	maxText         = 1024 // bytes of a message or an image
	maxName         = 316  // bytes of a qualified name
	maxFinalizers   = 8
	maxLabels       = 8  // of a selector
	maxContainers   = 16 // besides ours
	maxCapabilities = 64 // Linux has fewer
	maxResources    = 32 // as many as the schema of Icecreams admits
)

// notDecoded is the annotation by which package lenient marks an object in memory.
const notDecoded = "not decoded: spec"

// StripIcecream keeps what code reads of an Icecream. Its schema bounds it, but for the conditions that
// somebody else may have written: of those, it keeps what this controller can have written.
func StripIcecream(obj any) (any, error) {
	ice, ok := obj.(*v1alpha1.Icecream)
	if !ok {
		return obj, nil
	}
	status := ice.Status
	status.Conditions = nil
	for _, c := range ice.Status.Conditions {
		if slices.Contains(kstatus.States(), kstatus.State(c.Type)) {
			c.Reason, c.Message = text.Clip(c.Reason, maxName), text.Clip(c.Message, maxText)
			status.Conditions = append(status.Conditions, c)
		}
	}
	return &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         ice.Namespace,
			Name:              ice.Name,
			UID:               ice.UID,
			ResourceVersion:   ice.ResourceVersion,
			Generation:        ice.Generation,
			CreationTimestamp: ice.CreationTimestamp,
			DeletionTimestamp: ice.DeletionTimestamp,
			Annotations:       only(ice.Annotations, notDecoded),
		},
		Spec:   ice.Spec,
		Status: status,
	}, nil
}

// StripDeployment keeps what code reads of a Deployment: the fields that setDeployment sets, and those
// that a status reports. Patches are made from that, and leave what is not kept as it is. A Deployment
// that cannot belong to an Icecream keeps only what shows that.
func StripDeployment(obj any) (any, error) {
	if d, ok := obj.(*appsv1.Deployment); ok {
		return stripped(d), nil
	}
	return obj, nil
}

// stripped returns what StripDeployment keeps; of what was kept, all of it.
func stripped(d *appsv1.Deployment) *appsv1.Deployment {
	kept := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         d.Namespace,
			Name:              d.Name,
			UID:               d.UID,
			ResourceVersion:   d.ResourceVersion,
			Generation:        d.Generation,
			DeletionTimestamp: d.DeletionTimestamp,
			Finalizers:        first(d.Finalizers, maxFinalizers),
			OwnerReferences:   controllerOf(d),
		},
	}
	if _, isLabeled := d.Labels[LabelIcecream]; !isLabeled && !IsControlledByIcecream(d) {
		return kept
	}
	kept.Labels = only(d.Labels, ourLabels...)
	kept.Spec = appsv1.DeploymentSpec{
		Replicas:                d.Spec.Replicas,
		Selector:                strippedSelector(d.Spec.Selector),
		Paused:                  d.Spec.Paused,
		ProgressDeadlineSeconds: d.Spec.ProgressDeadlineSeconds,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      only(d.Spec.Template.Labels, ourLabels...),
				Annotations: only(d.Spec.Template.Annotations, AnnotationSpecHash, corev1.SeccompPodAnnotationKey),
			},
			Spec: strippedPodSpec(&d.Spec.Template.Spec),
		},
	}
	kept.Status = d.Status
	kept.Status.Conditions = nil
	for _, of := range []appsv1.DeploymentConditionType{appsv1.DeploymentProgressing, appsv1.DeploymentReplicaFailure} {
		// The API server admits any number of one type.
		if i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == of }); i >= 0 {
			c := d.Status.Conditions[i]
			kept.Status.Conditions = append(kept.Status.Conditions, appsv1.DeploymentCondition{
				Type: c.Type, Status: c.Status, Reason: text.Clip(c.Reason, maxText), Message: text.Clip(c.Message, maxText),
			})
		}
	}
	return kept
}

// strippedSelector keeps a selector. One with many labels is none of ours.
func strippedSelector(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil || len(selector.MatchLabels) > maxLabels || len(selector.MatchExpressions) > 0 {
		return nil
	}
	return selector
}

func strippedPodSpec(spec *corev1.PodSpec) (kept corev1.PodSpec) {
	kept.AutomountServiceAccountToken = spec.AutomountServiceAccountToken
	kept.NodeSelector = only(spec.NodeSelector, corev1.LabelOSStable)
	if spec.OS != nil {
		kept.OS = &corev1.PodOS{Name: spec.OS.Name}
	}
	if security := spec.SecurityContext; security != nil {
		kept.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: security.RunAsNonRoot}
		if profile := security.SeccompProfile; profile != nil {
			kept.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: profile.Type}
			if profile.LocalhostProfile != nil {
				kept.SecurityContext.SeccompProfile.LocalhostProfile = ptr.To(text.Clip(*profile.LocalhostProfile, maxText))
			}
		}
	}
	kept.InitContainers, kept.Containers = strippedContainers(spec.InitContainers), strippedContainers(spec.Containers)
	return kept
}

// strippedContainers keeps our container, and the names of others: to remove ours from a list that has
// others is another patch than to remove the list.
func strippedContainers(containers []corev1.Container) (kept []corev1.Container) {
	for i := range containers {
		switch c := &containers[i]; {
		case isOurs(*c):
			kept = append(kept, strippedContainer(c))
		case i < maxContainers:
			kept = append(kept, corev1.Container{Name: c.Name})
		}
	}
	return kept
}

func strippedContainer(c *corev1.Container) corev1.Container {
	kept := corev1.Container{
		Name:  c.Name,
		Image: text.Clip(c.Image, maxText),
		Resources: corev1.ResourceRequirements{
			Limits:   strippedResources(c.Resources.Limits),
			Requests: strippedResources(c.Resources.Requests),
			Claims:   slices.Clone(c.Resources.Claims[:min(len(c.Resources.Claims), 1)]),
		},
	}
	if security := c.SecurityContext; security != nil {
		kept.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: security.AllowPrivilegeEscalation,
			Privileged:               security.Privileged,
		}
		if all := security.Capabilities; all != nil {
			kept.SecurityContext.Capabilities = &corev1.Capabilities{Add: first(all.Add, maxCapabilities), Drop: first(all.Drop, maxCapabilities)}
		}
	}
	return kept
}

// strippedResources keeps as many resources as an Icecream can have, and no number that would take long
// to write or to compare.
func strippedResources(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	kept := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(list))[:min(len(list), maxResources)] {
		if quantity := list[name]; !isOversized(quantity) {
			kept[name] = quantity
		} else {
			kept[name] = resource.Quantity{}
		}
	}
	return kept
}

// controllerOf keeps the controlling owner; nothing if there is none.
func controllerOf(obj metav1.Object) []metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion:         text.Clip(owner.APIVersion, maxName),
		Kind:               text.Clip(owner.Kind, maxName),
		Name:               text.Clip(owner.Name, maxName),
		UID:                types.UID(text.Clip(string(owner.UID), maxName)),
		Controller:         owner.Controller,
		BlockOwnerDeletion: owner.BlockOwnerDeletion,
	}}
}

// first keeps the first names of a list.
func first[T ~string](list []T, most int) (kept []T) {
	for _, name := range list[:min(len(list), most)] {
		kept = append(kept, T(text.Clip(string(name), maxName)))
	}
	return kept
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

// StripPod keeps what code reads of a Pod (see [PodOf]).
func StripPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            only(pod.Labels, LabelIcecream, appsv1.DefaultDeploymentUniqueLabelKey),
			Annotations:       only(pod.Annotations, AnnotationSpecHash),
			OwnerReferences:   controllerOf(pod),
		},
	}
	podproblem.Strip(pod, kept)
	return kept, nil
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

// Pod is what a status needs of a Pod.
type Pod struct {
	Name         string
	Node         string // empty while it is not scheduled
	ReplicaSet   string // the name of its controller
	TemplateHash string // the Deployment controller's hash of its template
	SpecHash     string // the value of AnnotationSpecHash
	Ready        bool
	Problem      podproblem.Problem // the zero value if it is ready
}

// isOf reports whether the Pod's ReplicaSet has the name that kube-controller-manager gives to
// those of the Deployment. So Pods of others count for nothing, whatever labels they have.
func (p Pod) isOf(d *appsv1.Deployment) bool {
	longest := validation.DNS1123SubdomainMaxLength - len("-"+p.TemplateHash)
	return p.ReplicaSet == d.Name[:min(len(d.Name), max(0, longest))]+"-"+p.TemplateHash
}

// PodOf reads a Pod. counts is false for one that is terminating, has ended well, or was removed from
// its ReplicaSet, for example to debug it.
func PodOf(pod *corev1.Pod) (p Pod, counts bool) {
	if !hasController(pod, appsv1.GroupName, "ReplicaSet") || pod.Status.Phase == corev1.PodSucceeded || pod.DeletionTimestamp != nil {
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
	p.Ready, _ = podproblem.Ready(pod)
	return p, true
}
