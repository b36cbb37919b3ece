package icecream

import (
	"encoding/json"

	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/text"
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
	return map[string]string{LabelIcecream: text.LabelValue(ice.Name)}
}

// specHash distinguishes Pods made from the current spec from older ones. It is empty for a
// spec that no Pods are made from.
func specHash(spec v1alpha1.IcecreamSpec) string {
	if oversized(spec.Resources) != "" {
		return ""
	}
	raw, _ := json.Marshal(struct{ Image, Resources any }{spec.Image, spec.Resources}) // cannot fail for what the API server stores
	return text.Hash(raw)
}
