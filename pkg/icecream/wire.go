package icecream

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// NewDeployment is the Deployment to POST for a configuration to apply.
func NewDeployment(want *appsv1ac.DeploymentApplyConfiguration) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	if err := convert(want, deployment); err != nil {
		return nil, fmt.Errorf("building the Deployment: %w", err)
	}
	return deployment, nil
}

// NewStatus is the object to PUT to the Icecream's status subresource. The API
// server takes nothing but the status from it, and refuses it for any other
// Icecream of the name and for any other version than the one it was made from.
func NewStatus(icecream *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{
			Name:            icecream.Name,
			Namespace:       icecream.Namespace,
			UID:             icecream.UID,
			ResourceVersion: icecream.ResourceVersion,
		},
		Status: status,
	}
}

// ClaimPatch is the JSON patch (RFC 6902) that gives live other managedFields. It
// conflicts if live has changed, as the new ones are made from what it was.
func ClaimPatch(live *appsv1.Deployment, claim []metav1.ManagedFieldsEntry) ([]byte, error) {
	return json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": claim},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.ResourceVersion},
	})
}

// convert copies from one Go form of an object to another by way of their JSON,
// in which they are the same.
func convert(from, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, to)
}
