package icecream

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	v1alpha1ac "nicoleh.io/k8s-controller/pkg/generated/applyconfiguration/samplecontroller/v1alpha1"
)

// NewDeployment is the Deployment to POST for a configuration to apply.
func NewDeployment(want *appsv1ac.DeploymentApplyConfiguration) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	if err := convert(want, deployment); err != nil {
		return nil, fmt.Errorf("building the Deployment: %w", err)
	}
	return deployment, nil
}

// NewStatus is the configuration to apply to the Icecream's status subresource.
// Its UID keeps it from any other Icecream of the name. Conditions that others
// have set are left to them.
func NewStatus(icecream *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) (*v1alpha1ac.IcecreamApplyConfiguration, error) {
	ours := status
	ours.Conditions = nil
	for _, condition := range status.Conditions {
		switch condition.Type {
		case v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled:
			ours.Conditions = append(ours.Conditions, condition)
		}
	}
	want := v1alpha1ac.IcecreamStatus()
	if err := convert(ours, want); err != nil {
		return nil, fmt.Errorf("building the status: %w", err)
	}
	return v1alpha1ac.Icecream(icecream.Name, icecream.Namespace).WithUID(icecream.UID).WithStatus(want), nil
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

// StripPod reduces a Pod, in place, to what PodOf reads: a cache holds many.
func StripPod(pod *corev1.Pod) {
	pod.ObjectMeta = metav1.ObjectMeta{
		Name:              pod.Name,
		Namespace:         pod.Namespace,
		UID:               pod.UID,
		ResourceVersion:   pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp,
		DeletionTimestamp: pod.DeletionTimestamp,
		Labels:            only(pod.Labels, LabelIcecream, LabelDeployment),
		Annotations:       only(pod.Annotations, AnnotationSpecHash),
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		Conditions:            pod.Status.Conditions,
		InitContainerStatuses: pod.Status.InitContainerStatuses,
		ContainerStatuses:     pod.Status.ContainerStatuses,
	}
}

// StripDeployment reduces a Deployment of somebody else, in place, to what tells
// that it is somebody else's, and leaves one that could be ours as it is.
func StripDeployment(d *appsv1.Deployment) {
	if _, labelled := d.Labels[LabelIcecream]; labelled || isControlledByAnIcecream(d) {
		return
	}
	*d = appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:              d.Name,
		Namespace:         d.Namespace,
		UID:               d.UID,
		ResourceVersion:   d.ResourceVersion,
		DeletionTimestamp: d.DeletionTimestamp,
		OwnerReferences:   d.OwnerReferences,
	}}
}

func isControlledByAnIcecream(d *appsv1.Deployment) bool {
	owner := metav1.GetControllerOfNoCopy(d)
	return owner != nil && owner.Kind == "Icecream" && owner.APIVersion == v1alpha1.SchemeGroupVersion.String()
}

// only keeps the entries with these keys.
func only(from map[string]string, keys ...string) map[string]string {
	kept := map[string]string{}
	for _, key := range keys {
		if value, ok := from[key]; ok {
			kept[key] = value
		}
	}
	return kept
}
