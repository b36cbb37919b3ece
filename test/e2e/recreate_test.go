package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// An Icecream that is deleted and immediately re-created with the same name is a
// different Icecream. It must not take over the Deployment of the former one, which still
// has the name that it needs.
func TestDeletedAndMadeAnew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cascade string
		waits   bool // until each one is Ready
	}{
		{"background", true},
		{"background", false},
		{"foreground", true},
	} {
		t.Run(fmt.Sprintf("%s, waits %t", test.cascade, test.waits), func(t *testing.T) {
			t.Parallel()
			n := NewNamespace(t)
			before := types.UID("none")
			for round := range 5 {
				image := fmt.Sprintf("registry.example/phoenix:%d", round)
				ice := n.Create(t, "phoenix", v1alpha1.IcecreamSpec{Image: image, Replicas: ptr.To[int32](2)})
				if test.waits {
					requireOwnDeployment(t, n, ice, image, before)
					before = n.Deployment(t, "phoenix").UID
				}
				n.Kubectl(t, "delete", "icecream", "phoenix", "--cascade="+test.cascade)
			}
			const image = "registry.example/phoenix:last"
			ice := n.Create(t, "phoenix", v1alpha1.IcecreamSpec{Image: image, Replicas: ptr.To[int32](2)})
			requireOwnDeployment(t, n, ice, image, before)

			n.Kubectl(t, "delete", "icecream", "phoenix")
			requireNothingLeft(t, n)
		})
	}
}

// A Deployment that was orphaned on purpose is kept by the next Icecream of the same
// name.
func TestDeletedAndMadeAnewAroundItsDeployment(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	spec := v1alpha1.IcecreamSpec{Image: "registry.example/phoenix:1", Replicas: ptr.To[int32](2)}
	n.Create(t, "phoenix", spec)
	n.EventuallyReady(t, "phoenix")
	before, pods := n.Deployment(t, "phoenix"), n.LivePods(t)

	for range 3 {
		n.Kubectl(t, "delete", "icecream", "phoenix", "--cascade=orphan")
		ice := n.Create(t, "phoenix", spec)
		requireOwnDeployment(t, n, ice, spec.Image, "none")
	}
	if after := n.Deployment(t, "phoenix"); after.UID != before.UID {
		t.Errorf("the Deployment was re-created: its UID is %s and was %s", after.UID, before.UID)
	}
	for i, pod := range n.LivePods(t) {
		if i >= len(pods) || pod.UID != pods[i].UID {
			t.Errorf("Pod %s was re-created", pod.Name)
		}
	}
}

// requireOwnDeployment waits until ice is Ready, and requires that it has not been
// replaced and has a Deployment of its own rather than the former one.
func requireOwnDeployment(t *testing.T, n *lab.Namespace, ice *v1alpha1.Icecream, image string, former types.UID) {
	t.Helper()
	got := n.EventuallyReady(t, ice.Name)
	d := n.Deployment(t, ice.Name)
	if got.UID != ice.UID || !metav1.IsControlledBy(d, ice) || d.UID == former {
		t.Errorf("the Icecream with UID %s, want %s, is Ready with Deployment %s, controlled by %+v; the former Deployment was %s",
			got.UID, ice.UID, d.UID, metav1.GetControllerOf(d), former)
	}
	if d.Spec.Template.Spec.Containers[0].Image != image || *d.Spec.Replicas != 2 || d.DeletionTimestamp != nil {
		t.Errorf("the Deployment is %s", lab.Diff(nil, d.Spec))
	}
}
