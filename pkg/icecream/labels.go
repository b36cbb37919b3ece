package icecream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The labels and annotations of a Deployment and its Pods. LabelIcecream alone selects the
// Pods: in the Deployment, and in the Services of users.
const (
	LabelIcecream      = "controller.nicoleh.io/icecream"
	AnnotationSpecHash = "controller.nicoleh.io/spec-hash"

	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

var ourLabels = []string{LabelIcecream, labelName, labelManagedBy}

// FieldManager is the field manager of everything that this controller writes.
const FieldManager = "icecream-controller"

// DeploymentName returns the requested name of the Deployment.
func DeploymentName(ice *v1alpha1.Icecream) string {
	if ice.Spec.DeploymentName != "" {
		return ice.Spec.DeploymentName
	}
	return ice.Name
}

// replicasOf returns the requested number of Pods.
func replicasOf(ice *v1alpha1.Icecream) int32 { return ptr.Deref(ice.Spec.Replicas, 1) }

// selector returns the label selector of the Icecream's Deployment.
func selector(ice *v1alpha1.Icecream) map[string]string {
	return map[string]string{LabelIcecream: LabelValue(ice.Name)}
}

// specHash distinguishes Pods made from a spec from those made from others. Specs that ask for the
// same have the same hash, however they write it. What a template has also without a spec is not part
// of it, so a release with another field, or another default, does not change it. It is empty for a
// spec that no Pods are made from.
func specHash(spec v1alpha1.IcecreamSpec) string {
	if oversized(spec.Resources) != "" {
		return ""
	}
	var bare, made appsv1.Deployment
	setTemplate(&bare.Spec.Template, v1alpha1.IcecreamSpec{})
	setTemplate(&made.Spec.Template, spec)
	resources := containerOf(&made.Spec.Template).Resources
	for _, d := range []*appsv1.Deployment{&bare, &made} {
		containerOf(&d.Spec.Template).Name = "container" // The name is no part of the spec.
	}
	for _, list := range []corev1.ResourceList{resources.Limits, resources.Requests} {
		for name, quantity := range list {
			list[name] = *resource.NewDecimalQuantity(*quantity.AsDec(), resource.DecimalSI)
		}
	}
	raw, _ := json.Marshal(differences(&bare, &made)) // cannot fail for what the API server stores
	return hash(raw)
}

// LabelValue returns the label value for an Icecream's name. A name of up to 63 characters is its
// own label value; a longer one is cut and ends in a hash of the whole.
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
