package icecream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// LabelIcecream alone selects the Pods of an Icecream: in its Deployment, and in the Services of users.
const LabelIcecream = "controller.nicoleh.io/icecream"

const (
	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// AnnotationAsked is the annotation of a Deployment with the Wish.Digest that was last written. So a new process keeps
// an image digest that a policy has added, unless the Icecream was edited.
const AnnotationAsked = "controller.nicoleh.io/asked"

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
	end := "-" + hash([]byte(name))
	return name[:validation.LabelValueMaxLength-len(end)] + end
}

// hash returns ten hexadecimal digits that distinguish a text from others.
func hash(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:5])
}

// selector returns the label selector of the Icecream's Deployment.
func selector(ice *v1alpha1.Icecream) map[string]string {
	return map[string]string{LabelIcecream: LabelValue(ice.Name)}
}

// replicasOf returns how many replicas an Icecream asks for.
func replicasOf(ice *v1alpha1.Icecream) int32 { return ptr.Deref(ice.Spec.Replicas, 1) }

// replicas returns how many replicas a Deployment has.
func replicas(d *appsv1.Deployment) int32 { return ptr.Deref(d.Spec.Replicas, 1) }

// imageOf returns the image of our container in a Deployment.
func imageOf(d *appsv1.Deployment) string { return containerOf(d.Spec.Template.DeepCopy()).Image }

// NewDeployment returns the Deployment that the Icecream asks for, with our fields only.
func NewDeployment(ice *v1alpha1.Icecream) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: DeploymentName(ice), Namespace: ice.Namespace}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector(ice)}
	setDeployment(d, ice)
	return d
}

// wishOf identifies what an Icecream asks for. The spelling of a quantity makes no difference.
func wishOf(ice *v1alpha1.Icecream) pace.Wish {
	var template corev1.PodTemplateSpec
	setTemplate(&template, ice)
	resources := containerOf(&template).Resources
	for _, list := range []corev1.ResourceList{resources.Limits, resources.Requests} {
		for name, quantity := range list {
			list[name] = *resource.NewDecimalQuantity(*quantity.AsDec(), resource.DecimalExponent) // SI has no prefix for 1e99.
		}
	}
	raw, _ := json.Marshal(template) // cannot fail for what the API server stores
	return pace.Wish{Digest: hash(raw), Scale: replicasOf(ice)}
}

// setDeployment sets every field of d that this controller owns, and touches no other. The name and the
// selector of a Deployment never change.
func setDeployment(d *appsv1.Deployment, ice *v1alpha1.Icecream) {
	setOwner(d, ice)
	setKeys(&d.Labels, labelsOf(ice))
	setKeys(&d.Annotations, map[string]string{AnnotationAsked: wishOf(ice).Digest})
	d.Spec.Replicas = ptr.To(replicasOf(ice))
	setTemplate(&d.Spec.Template, ice)
}

// setTemplate sets every field of a Pod template that this controller owns. It owns all of the fields that the API
// server validates together, because a repair of only some would be refused. The Pods meet the restricted Pod
// Security Standard.
func setTemplate(template *corev1.PodTemplateSpec, ice *v1alpha1.Icecream) {
	setKeys(&template.Labels, labelsOf(ice))
	delete(template.Annotations, corev1.SeccompPodAnnotationKey) // which the API server compares with the profile
	template.Spec.AutomountServiceAccountToken = ptr.To(false)
	setKeys(&template.Spec.NodeSelector, map[string]string{corev1.LabelOSStable: string(corev1.Linux)})
	if template.Spec.OS != nil { // Another one allows no Linux security context.
		template.Spec.OS.Name = corev1.Linux
	}
	ofPod := orNew(&template.Spec.SecurityContext)
	ofPod.RunAsNonRoot = ptr.To(true)
	ofPod.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}

	c := containerOf(template)
	c.Image = ice.Spec.Image
	resources := corev1.ResourceRequirements{Limits: rounded(ice.Spec.Resources.Limits), Requests: rounded(ice.Spec.Resources.Requests)}
	if !equality.Semantic.DeepEqual(c.Resources, resources) { // Another spelling is not worth a patch.
		c.Resources = resources
	}
	ofContainer := orNew(&c.SecurityContext)
	ofContainer.AllowPrivilegeEscalation = ptr.To(false)
	ofContainer.Privileged = nil
	capabilities := orNew(&ofContainer.Capabilities)
	capabilities.Drop = []corev1.Capability{"ALL"}
	capabilities.Add = slices.DeleteFunc(slices.Clone(capabilities.Add), func(c corev1.Capability) bool { return c == "CAP_SYS_ADMIN" })
}

func labelsOf(ice *v1alpha1.Icecream) map[string]string {
	return map[string]string{LabelIcecream: LabelValue(ice.Name), labelName: "icecream", labelManagedBy: FieldManager}
}

// keepDigest keeps the live image if it is the same tag with a digest: policies resolve tags, and the tag can have
// moved since.
func keepDigest(want, live *appsv1.Deployment) {
	if ours := containerOf(&want.Spec.Template); strings.HasPrefix(imageOf(live), ours.Image+"@") {
		ours.Image = imageOf(live)
	}
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

// containerOf returns our container of a Pod template, and adds it if it is missing. It deletes an init container with
// that name, which the API server would refuse.
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

// Limits of a quantity: bits of its digits, and zeros after them. The schema admits 426 bits (20 digits with the
// exponent 99, in nanos) and 99 zeros (1e99). A Deployment, or an Icecream stored under another schema, can have a
// million of either: apimachinery takes quadratic time to marshal digits, and writes out zeros to compare.
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

// isOfFormer reports whether an object's controller is an Icecream of the same name: a previous one, unless
// IsControlledBy.
func isOfFormer(obj metav1.Object, ice *v1alpha1.Icecream) bool {
	return IsControlledByIcecream(obj) && metav1.GetControllerOfNoCopy(obj).Name == ice.Name
}

// isOrphan reports whether the Deployment was made for this Icecream, or for an earlier one with the same
// name, and has no controller.
func isOrphan(d *appsv1.Deployment, ice *v1alpha1.Icecream) bool {
	return metav1.GetControllerOfNoCopy(d) == nil && d.Labels[labelManagedBy] == FieldManager &&
		equality.Semantic.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{MatchLabels: selector(ice)})
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
