package icecream

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

const containerName = "icecream"

// NewDeployment returns the Deployment that the Icecream asks for, with our fields only.
func NewDeployment(ice *v1alpha1.Icecream) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: DeploymentName(ice), Namespace: ice.Namespace}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector(ice)}
	setDeployment(d, ice)
	return d
}

// setDeployment sets every field of d that this controller owns, and touches no other. Of
// fields that the API server validates together, it owns all, or the repair of one half would be
// refused. The name and the selector of a Deployment never change.
func setDeployment(d *appsv1.Deployment, ice *v1alpha1.Icecream) {
	setOwner(d, ice)
	labels := selector(ice)
	labels[labelName] = "icecream"
	labels[labelManagedBy] = FieldManager
	setKeys(&d.Labels, labels)
	d.Spec.Replicas = ptr.To(replicasOf(ice))

	template := &d.Spec.Template
	setKeys(&template.Labels, labels)
	template.Spec.AutomountServiceAccountToken = ptr.To(false)
	security := orNew(&template.Spec.SecurityContext)
	security.RunAsNonRoot = ptr.To(true)
	security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	delete(template.Annotations, corev1.SeccompPodAnnotationKey) // which the API server compares with the profile
	setKeys(&template.Spec.NodeSelector, map[string]string{corev1.LabelOSStable: string(corev1.Linux)})
	if template.Spec.OS != nil { // Another one allows no Linux security context.
		template.Spec.OS.Name = corev1.Linux
	}
	// Another hash is another template, so it changes only together with what it stands for.
	if template.Annotations[AnnotationSpecHash] == "" || !isMadeFrom(template, ice.Spec) {
		setTemplate(template, ice.Spec)
		setKeys(&template.Annotations, map[string]string{AnnotationSpecHash: specHash(ice.Spec)})
	}
	setSecurity(containerOf(template))
}

// setTemplate sets every field of a Pod template that follows from the spec, and no other: isMadeFrom
// and specHash tell Pods apart by these. All resources of the container are ours.
func setTemplate(template *corev1.PodTemplateSpec, spec v1alpha1.IcecreamSpec) {
	c := containerOf(template)
	c.Image, c.Resources = spec.Image, resourcesOf(spec)
}

// isMadeFrom reports whether a template is as the spec asks for. Equal quantities are equal, however
// they are written.
func isMadeFrom(template *corev1.PodTemplateSpec, spec v1alpha1.IcecreamSpec) bool {
	wanted := template.DeepCopy()
	setTemplate(wanted, spec)
	return equality.Semantic.DeepEqual(template, wanted)
}

// resourcesOf returns the resources that a spec asks for, as the API server rounds them.
func resourcesOf(spec v1alpha1.IcecreamSpec) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: rounded(spec.Resources.Limits), Requests: rounded(spec.Resources.Requests)}
}

// setSecurity sets what the restricted Pod Security Standard asks of a container.
func setSecurity(c *corev1.Container) {
	security := orNew(&c.SecurityContext)
	security.AllowPrivilegeEscalation = ptr.To(false)
	security.Privileged = nil
	capabilities := orNew(&security.Capabilities)
	capabilities.Drop = []corev1.Capability{"ALL"}
	capabilities.Add = slices.DeleteFunc(slices.Clone(capabilities.Add), func(c corev1.Capability) bool { return c == "CAP_SYS_ADMIN" })
}

// setOwner makes the Icecream the controller of d.
func setOwner(d *appsv1.Deployment, ice *v1alpha1.Icecream) {
	owner := *metav1.NewControllerRef(ice, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))
	i := slices.IndexFunc(d.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == ice.UID })
	if i < 0 {
		d.OwnerReferences = append(d.OwnerReferences, owner)
		return
	}
	d.OwnerReferences[i] = owner
}

// containerOf returns our container of a Pod template, and adds it if it is missing. No init
// container can have its name.
func containerOf(template *corev1.PodTemplateSpec) *corev1.Container {
	template.Spec.InitContainers = slices.DeleteFunc(template.Spec.InitContainers, isOurs)
	containers := &template.Spec.Containers
	i := slices.IndexFunc(*containers, isOurs)
	if i < 0 {
		*containers = append(*containers, corev1.Container{Name: containerName})
		i = len(*containers) - 1
	}
	return &(*containers)[i]
}

func isOurs(c corev1.Container) bool { return c.Name == containerName }

// setKeys sets these keys of a map.
func setKeys(of *map[string]string, keys map[string]string) {
	if *of == nil {
		*of = map[string]string{}
	}
	maps.Copy(*of, keys)
}

// orNew returns what p points to, and creates it if it is nil.
func orNew[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}

// The largest number that a quantity can have, as digits in bits and zeros that follow them. The
// longest that the schema admits, 20 digits with the exponent 99 in units of a nano, has 426 bits, and
// 1e99 has 99 zeros. One of a Deployment, or that was stored under another schema, can have a million of
// either: apimachinery takes quadratic time to marshal digits, and writes out zeros to compare.
const (
	maxBits  = 512
	maxZeros = 128
)

// oversized returns the path of a quantity that is too large; empty if there is none.
func oversized(resources v1alpha1.IcecreamResources) string {
	for _, list := range []struct {
		field string
		corev1.ResourceList
	}{{"limits", resources.Limits}, {"requests", resources.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.ResourceList)) {
			if isOversized(list.ResourceList[name]) {
				return fmt.Sprintf("spec.resources.%s.%s", list.field, name)
			}
		}
	}
	return ""
}

func isOversized(quantity resource.Quantity) bool {
	number := quantity.AsDec()
	return number.UnscaledBig().BitLen() > maxBits || number.Scale() < -maxZeros
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

// isOrphan reports whether the Deployment was made for this Icecream, or for an earlier one
// with the same name, and has no controller.
func isOrphan(ice *v1alpha1.Icecream, d *appsv1.Deployment) bool {
	return metav1.GetControllerOfNoCopy(d) == nil &&
		d.Labels[labelManagedBy] == FieldManager &&
		d.Labels[LabelIcecream] == LabelValue(ice.Name) &&
		d.Spec.Selector != nil &&
		len(d.Spec.Selector.MatchExpressions) == 0 &&
		equality.Semantic.DeepEqual(d.Spec.Selector.MatchLabels, selector(ice))
}
