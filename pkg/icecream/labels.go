package icecream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

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

// specHash distinguishes Pods made from the current spec from older ones. It is empty for a
// spec that no Pods are made from.
func specHash(spec v1alpha1.IcecreamSpec) string {
	if oversized(spec.Resources) != "" {
		return ""
	}
	raw, _ := json.Marshal(struct{ Image, Resources any }{spec.Image, spec.Resources}) // cannot fail for what the API server stores
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
