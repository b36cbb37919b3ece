package icecream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// LabelIcecream is the only label with which a Deployment, and users' Services, select the Pods of an Icecream.
const LabelIcecream = "controller.nicoleh.io/icecream"

const (
	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// FieldManager is the field manager of everything that this controller writes.
const FieldManager = "icecream-controller"

const containerName = "icecream"

// DeploymentName returns the name of the Deployment that an Icecream asks for.
func DeploymentName(ice *v1alpha1.Icecream) string {
	if ice.Spec.DeploymentName != "" {
		return ice.Spec.DeploymentName
	}
	return ice.Name
}

// LabelValue returns the value of LabelIcecream for an Icecream's name. A name of up to 63 characters is
// its own label value; a longer one is cut and ends in a hash of the whole.
func LabelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:5])
	return name[:validation.LabelValueMaxLength-len(end)] + end
}

// selector returns the label selector of the Icecream's Deployment.
func selector(ice *v1alpha1.Icecream) map[string]string {
	return map[string]string{LabelIcecream: LabelValue(ice.Name)}
}

// replicasOf returns how many replicas an Icecream asks for.
func replicasOf(ice *v1alpha1.Icecream) int32 { return ptr.Deref(ice.Spec.Replicas, 1) }

// replicas returns how many replicas a Deployment has.
func replicas(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// imageOf returns the image of our container in a Deployment; empty if it has none.
func imageOf(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == containerName {
			return c.Image
		}
	}
	return ""
}

// NewDeployment returns the Deployment that the Icecream asks for: every field that this controller sets. Unless
// spec.template says otherwise, the Pods meet the restricted Pod Security Standard. The error names the field of the
// Icecream that is wrong.
func NewDeployment(ice *v1alpha1.Icecream) (*appsv1ac.DeploymentApplyConfiguration, error) {
	if field := oversized(ice.Spec.Resources); field != "" {
		return nil, fmt.Errorf("%s is too large a number", field)
	}
	pods := corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithNodeSelector(map[string]string{corev1.LabelOSStable: string(corev1.Linux)}).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithContainers(corev1ac.Container().
			WithName(containerName).
			WithImage(ice.Spec.Image).
			WithResources(&corev1ac.ResourceRequirementsApplyConfiguration{
				Limits:   orNil(ice.Spec.Resources.Limits),
				Requests: orNil(ice.Spec.Resources.Requests),
			}).
			WithSecurityContext(corev1ac.SecurityContext().
				WithAllowPrivilegeEscalation(false).
				WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")))))
	if err := addTemplate(pods, ice.Spec.Template); err != nil {
		return nil, fmt.Errorf("spec.template: %w", err)
	}
	setDependent(pods.Spec)
	return appsv1ac.Deployment(DeploymentName(ice), ice.Namespace).
		WithLabels(labelsOf(ice)).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(schema.GroupVersion(v1alpha1.GroupVersion).String()).
			WithKind("Icecream").
			WithName(ice.Name).
			WithUID(ice.UID).
			WithController(true).
			WithBlockOwnerDeletion(true)).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(replicasOf(ice)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector(ice))).
			WithTemplate(pods.WithLabels(labelsOf(ice)))), nil
}

// orNil returns a list, or nil if it is empty.
func orNil(list corev1.ResourceList) *corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return &list
}

func labelsOf(ice *v1alpha1.Icecream) map[string]string {
	value := LabelValue(ice.Name)
	return map[string]string{LabelIcecream: value, labelName: "icecream", labelInstance: value, labelManagedBy: FieldManager}
}

// IsControlledByIcecream reports whether an object's controller is an Icecream of any API version, even if it no longer
// exists.
func IsControlledByIcecream(obj metav1.Object) bool {
	return hasController(obj, v1alpha1.GroupName, "Icecream")
}

// IsControlledBy reports whether this Icecream is the object's controller. The API server does not check
// that an owner is in the same namespace, so the UID alone proves nothing.
func IsControlledBy(obj metav1.Object, ice *v1alpha1.Icecream) bool {
	return obj.GetNamespace() == ice.Namespace && IsControlledByIcecream(obj) && metav1.GetControllerOfNoCopy(obj).UID == ice.UID
}

// isLeftover reports whether an Icecream of the same name controls the object: a previous one, if IsControlledBy
// is false.
func isLeftover(obj metav1.Object, ice *v1alpha1.Icecream) bool {
	return IsControlledByIcecream(obj) && metav1.GetControllerOfNoCopy(obj).Name == ice.Name
}

// isOrphan reports whether the Deployment has no controller, and was made for this Icecream or a previous one with its
// name.
func isOrphan(d *appsv1.Deployment, ice *v1alpha1.Icecream) bool {
	return metav1.GetControllerOfNoCopy(d) == nil && d.Labels[labelManagedBy] == FieldManager &&
		equality.Semantic.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{MatchLabels: selector(ice)})
}

// hasController reports whether an object has a controller of this group and kind.
func hasController(obj metav1.Object, group, kind string) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.Kind != kind {
		return false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && version.Group == group
}
