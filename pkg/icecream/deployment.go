package icecream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

const containerName = "icecream"

// newDeployment returns the Deployment that the Icecream asks for, with our fields only.
func newDeployment(ice *v1alpha1.Icecream) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: DeploymentName(ice), Namespace: ice.Namespace}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector(ice, d.Name)}
	setDeployment(d, ice)
	return d
}

// renamed returns the Deployment that replaces old: a copy with everything that others have
// added to old, and one without what they have added to its spec.
func renamed(old *appsv1.Deployment, ice *v1alpha1.Icecream) (whole, bare *appsv1.Deployment) {
	bare = newDeployment(ice)
	whole = old.DeepCopy()
	maps.DeleteFunc(whole.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "deployment.kubernetes.io/") // belongs to kube-controller-manager
	})
	whole.ObjectMeta = metav1.ObjectMeta{Name: bare.Name, Namespace: bare.Namespace, Labels: whole.Labels, Annotations: whole.Annotations}
	whole.Status = appsv1.DeploymentStatus{}
	whole.Spec.Selector = bare.Spec.Selector
	whole.Spec.Paused = false
	setDeployment(whole, ice)
	bare.ObjectMeta = whole.ObjectMeta
	return whole, bare
}

// setDeployment sets every field of d that this controller owns, and touches no other.
// The name and the selector of a Deployment never change.
func setDeployment(d *appsv1.Deployment, ice *v1alpha1.Icecream) {
	setOwner(d, ice)
	labels := selector(ice, d.Name)
	labels[labelName] = "icecream"
	labels[labelManagedBy] = FieldManager
	setKeys(&d.Labels, labels)
	setReplicas(d, ice)

	template := &d.Spec.Template
	setKeys(&template.Labels, labels)
	setKeys(&template.Annotations, map[string]string{AnnotationSpecHash: specHash(ice.Spec)})
	template.Spec.AutomountServiceAccountToken = ptr.To(false)
	security := orNew(&template.Spec.SecurityContext)
	security.RunAsNonRoot = ptr.To(true)
	orNew(&security.SeccompProfile).Type = corev1.SeccompProfileTypeRuntimeDefault
	setContainer(containerOf(template), ice)
}

// setReplicas sets the number of replicas.
func setReplicas(d *appsv1.Deployment, ice *v1alpha1.Icecream) {
	d.Spec.Replicas = ptr.To(ptr.Deref(ice.Spec.Replicas, 1))
}

// setContainer sets our fields of our container. All of its resources are ours.
func setContainer(c *corev1.Container, ice *v1alpha1.Icecream) {
	c.Image = ice.Spec.Image
	c.Resources = corev1.ResourceRequirements{
		Limits:   rounded(ice.Spec.Resources.Limits),
		Requests: rounded(ice.Spec.Resources.Requests),
		Claims:   ice.Spec.Resources.Claims,
	}
	security := orNew(&c.SecurityContext)
	security.AllowPrivilegeEscalation = ptr.To(false)
	orNew(&security.Capabilities).Drop = []corev1.Capability{"ALL"}
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

// containerOf returns our container of a Pod template, and adds it if it is missing.
func containerOf(template *corev1.PodTemplateSpec) *corev1.Container {
	containers := &template.Spec.Containers
	i := slices.IndexFunc(*containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		*containers = append(*containers, corev1.Container{Name: containerName})
		i = len(*containers) - 1
	}
	return &(*containers)[i]
}

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

// maxBits is the size of the largest number that a quantity can have. The longest that the
// schema admits, 20 digits with the exponent 99 in units of a nano, has 426. One that was stored
// under another schema can have a million digits, and apimachinery takes quadratic time to
// marshal those.
const maxBits = 512

// oversized returns the path of a quantity with too many digits; empty if there is none.
func oversized(resources v1alpha1.IcecreamResources) string {
	for _, list := range []struct {
		field string
		corev1.ResourceList
	}{{"limits", resources.Limits}, {"requests", resources.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.ResourceList)) {
			quantity := list.ResourceList[name]
			if quantity.AsDec().UnscaledBig().BitLen() > maxBits {
				return fmt.Sprintf("spec.resources.%s.%s", list.field, name)
			}
		}
	}
	return ""
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
		d.Labels[LabelIcecream] == text.LabelValue(ice.Name) &&
		d.Spec.Selector != nil &&
		len(d.Spec.Selector.MatchExpressions) == 0 &&
		equality.Semantic.DeepEqual(d.Spec.Selector.MatchLabels, selector(ice, d.Name))
}
