package icecream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The labels and annotations of a Deployment and its Pods. LabelIcecream and
// LabelDeployment together are the Deployment's selector: the first finds all
// Pods of an Icecream, the second keeps the selectors of its Deployments apart
// while it is being renamed.
const (
	LabelIcecream      = "controller.nicoleh.io/icecream"
	LabelDeployment    = "controller.nicoleh.io/deployment"
	AnnotationSpecHash = "controller.nicoleh.io/spec-hash"

	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// FieldManager owns every field that this controller writes, in server-side
// apply and in creation.
const FieldManager = "icecream-controller"

// LabelValue returns the label value for an object's name. A name of up to 63
// characters is its own label value; a longer one is cut and ends in a hash of
// the whole.
func LabelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	end := "-" + shortHash([]byte(name))
	return name[:validation.LabelValueMaxLength-len(end)] + end
}

// DeploymentName returns the name of the Deployment that the Icecream asks for.
func DeploymentName(icecream *v1alpha1.Icecream) string {
	if icecream.Spec.DeploymentName != "" {
		return icecream.Spec.DeploymentName
	}
	return icecream.Name
}

// selector returns the label selector of the Icecream's Deployment of that name.
func selector(icecream *v1alpha1.Icecream, deploymentName string) map[string]string {
	return map[string]string{
		LabelIcecream:   LabelValue(icecream.Name),
		LabelDeployment: LabelValue(deploymentName),
	}
}

// specHash returns what distinguishes Pods made from the current spec from older ones.
func specHash(spec v1alpha1.IcecreamSpec) string {
	// Marshalling this struct cannot fail; maps are written in sorted order.
	made, _ := json.Marshal(struct{ Image, Resources any }{spec.Image, spec.Resources})
	return shortHash(made)
}

func shortHash(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:5])
}
