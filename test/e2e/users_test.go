package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// icecreamName returns the name of an Icecream with that number.
func icecreamName(i int) string { return fmt.Sprintf("icecream-%02d", i) }

// createAll creates that many Icecreams, and returns their specs.
func createAll(t *testing.T, n *lab.Namespace, icecreams int) []v1alpha1.IcecreamSpec {
	t.Helper()
	specs := make([]v1alpha1.IcecreamSpec, icecreams)
	for i := range specs {
		specs[i] = v1alpha1.IcecreamSpec{DeploymentName: icecreamName(i), Replicas: ptr.To[int32](1), Image: "registry.example/icecream:0"}
		n.Create(t, icecreamName(i), specs[i])
	}
	return specs
}

// editAll gives all Icecreams another image and other replicas. A test can do so in the background.
func editAll(t *testing.T, n *lab.Namespace, specs []v1alpha1.IcecreamSpec, edit int) {
	for i := range specs {
		specs[i].Replicas, specs[i].Image = ptr.To(int32((edit+i)%4)), fmt.Sprintf("registry.example/icecream:%d", edit)
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d,"image":%q}}`, *specs[i].Replicas, specs[i].Image)
		if _, err := n.Icecreams().Patch(t.Context(), icecreamName(i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Errorf("editing %s: %v", icecreamName(i), err)
		}
	}
}

// requireCreatedOnce requires that no Deployment of the namespace was created twice.
func requireCreatedOnce(t *testing.T, n *lab.Namespace) {
	t.Helper()
	byController := func(e *cluster.AuditEvent) bool {
		return e.Code == http.StatusCreated && strings.HasPrefix(e.User, "system:serviceaccount:") // by create or apply
	}
	for name, count := range n.Requests(t).Resource("deployments").Where(byController).ByObject() {
		if count != 1 {
			t.Errorf("Deployment %q was created %d times", name, count)
		}
	}
}

// areAsSpecified returns nil if the Icecreams, which are named by their index, have these specs, their statuses are about
// these, and the Deployments of the namespace are exactly those that the specs describe.
func areAsSpecified(t *testing.T, n *lab.Namespace, specs []v1alpha1.IcecreamSpec) error {
	t.Helper()
	type running struct {
		Deployment, Image string
		Replicas          int32
		Owner             types.UID
	}
	var want, got []running
	for i, spec := range specs {
		ice := n.Icecream(t, icecreamName(i))
		if diff := lab.Diff(spec, ice.Spec); diff != "" {
			return fmt.Errorf("the spec of %s differs (-want +got):\n%s", ice.Name, diff)
		}
		if ice.Status.ObservedGeneration != ice.Generation {
			return fmt.Errorf("the status of %s is about generation %d, want %d", ice.Name, ice.Status.ObservedGeneration, ice.Generation)
		}
		want = append(want, running{spec.DeploymentName, spec.Image, *spec.Replicas, ice.UID})
	}
	for _, d := range n.AllDeployments(t) {
		owner := types.UID("")
		if controller := metav1.GetControllerOf(&d); controller != nil {
			owner = controller.UID
		}
		got = append(got, running{d.Name, d.Spec.Template.Spec.Containers[0].Image, *d.Spec.Replicas, owner})
	}
	if diff := lab.Diff(want, got); diff != "" {
		return fmt.Errorf("the Deployments differ (-want +got):\n%s", diff)
	}
	return nil
}
