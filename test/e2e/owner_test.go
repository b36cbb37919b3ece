package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The API server accepts an owner of another namespace. A tenant who can read an Icecream's UID
// can so make Deployments that look like the Icecream's, but they count for nothing.
func TestOwnerOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	victim, tenant := NewNamespace(t), NewNamespace(t)
	victim.Create(t, "sundae", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1)})
	ice := victim.EventuallyReady(t, "sundae")
	claim := victim.Deployment(t, "sundae").DeepCopy()
	claim.ObjectMeta = metav1.ObjectMeta{
		Name: "sundae", Labels: claim.Labels, Finalizers: []string{"example.com/hold"}, // so that the garbage collector cannot delete it
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ice, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))},
	}
	claim.Spec.Template.Spec.Containers[0].Command = []string{"/claim"}
	for _, name := range []string{"sundae", "cone"} {
		claim.Name = name
		if _, err := tenant.Deployments().Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			release := []byte(`{"metadata":{"finalizers":null}}`)
			if _, err := tenant.Deployments().Patch(context.WithoutCancel(t.Context()), name, "application/merge-patch+json", release, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	victim.Eventually(t, "the garbage collector has seen the claims", func(ctx context.Context) error {
		d, err := tenant.Deployments().Get(ctx, "cone", metav1.GetOptions{})
		if err == nil && d.DeletionTimestamp == nil {
			err = fmt.Errorf("Deployment %q is not being deleted", d.Name)
		}
		return err
	})

	scale := []byte(`{"spec":{"replicas":2,"image":"registry.example/mint:1"}}`)
	if _, err := victim.Icecreams().Patch(t.Context(), "sundae", "application/merge-patch+json", scale, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if s := victim.EventuallyReady(t, "sundae").Status; s.Replicas != 2 {
		t.Errorf("the status counts %d Pods", s.Replicas)
	}
	victim.Kubectl(t, "delete", "deployment", "sundae")
	victim.Eventually(t, "there is another Deployment", func(ctx context.Context) error {
		_, err := victim.Deployments().Get(ctx, "sundae", metav1.GetOptions{})
		return err
	})
	victim.EventuallyReady(t, "sundae")
	all := victim.AllDeployments(t)
	if len(all) != 1 || all[0].Spec.Template.Spec.Containers[0].Command != nil {
		t.Errorf("there are %d Deployments, the first with command %q", len(all), all[0].Spec.Template.Spec.Containers[0].Command)
	}
}
