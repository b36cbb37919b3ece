package icecream

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Deployments is the only kind of children that an Icecream has.
var Deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

const containerName = "icecream"

// owner owns what this controller writes. It asks for a limit, a request or a claim only
// if the spec does, and always for all its other fields.
var owner = apply.Owner{
	Manager: FieldManager,
	Optional: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "template", "spec", "containers",
		fieldpath.KeyByFields("name", containerName), "resources")},
}

// desired returns the Deployment that the Icecream asks for: exactly the fields that
// this controller owns, and none that it leaves to others.
func desired(icecream *v1alpha1.Icecream) *appsv1.Deployment {
	name := DeploymentName(icecream)
	selects := selector(icecream, name)
	labels := map[string]string{labelName: "icecream", labelManagedBy: FieldManager}
	maps.Copy(labels, selects)
	wanted := icecream.Spec.Resources

	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       icecream.Namespace,
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(icecream, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas(icecream)),
			Selector: &metav1.LabelSelector{MatchLabels: selects},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      labels,
					Annotations: map[string]string{AnnotationSpecHash: specHash(icecream.Spec)},
				},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   ptr.To(true),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name:  containerName,
						Image: icecream.Spec.Image,
						Resources: corev1.ResourceRequirements{
							Limits:   rounded(wanted.Limits),
							Requests: rounded(wanted.Requests),
							Claims:   wanted.Claims,
						},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: ptr.To(false),
							Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}
}

// rounded returns a copy of list in thousandths, as the API server rounds it up.
func rounded(list corev1.ResourceList) corev1.ResourceList {
	list = list.DeepCopy()
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
	return list
}

// replicas returns how many Pods the Icecream asks for.
func replicas(icecream *v1alpha1.Icecream) int32 {
	return ptr.Deref(icecream.Spec.Replicas, 1)
}

// isOrphan reports whether the Deployment was made for this Icecream, or for one of
// the same name before it, and has lost its controller.
func isOrphan(icecream *v1alpha1.Icecream, d *appsv1.Deployment) bool {
	return metav1.GetControllerOfNoCopy(d) == nil &&
		d.Labels[labelManagedBy] == FieldManager &&
		d.Labels[LabelIcecream] == text.LabelValue(icecream.Name) &&
		d.Spec.Selector != nil &&
		len(d.Spec.Selector.MatchExpressions) == 0 &&
		equality.Semantic.DeepEqual(d.Spec.Selector.MatchLabels, selector(icecream, d.Name))
}

// isRolledOut reports whether there are as many available Pods of the Deployment's
// current template as its spec asks for, and no others are left.
func isRolledOut(d *appsv1.Deployment) bool {
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	return d.DeletionTimestamp == nil &&
		d.Status.ObservedGeneration >= d.Generation &&
		d.Status.Replicas == wanted &&
		d.Status.UpdatedReplicas == wanted &&
		d.Status.AvailableReplicas == wanted
}

// isTerminating reports whether all of these Deployments are being deleted.
func isTerminating(deployments []*appsv1.Deployment) bool {
	return !slices.ContainsFunc(deployments, func(d *appsv1.Deployment) bool { return d.DeletionTimestamp == nil })
}
