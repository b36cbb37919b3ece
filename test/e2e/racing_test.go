package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// Several users edit one Icecream, each a different field, as fast as kubectl can, while
// the controller keeps writing its status.
func TestManyHandsOnOneIcecream(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "shared", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1)})

	const users, edits = 5, 12
	ownManifest := func(memory int) string {
		return fmt.Sprintf(`{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: shared}, spec: {resources: {limits: {memory: %dMi}}}}`, memory)
	}
	var editing sync.WaitGroup
	for _, user := range []struct {
		what string
		edit func(i int) (stdin string, args []string)
		read func(*v1alpha1.Icecream) string
		want func(i int) string
	}{
		{
			"replicas",
			func(i int) (string, []string) {
				return "", []string{"scale", "icecream/shared", fmt.Sprintf("--replicas=%d", i%3+1)}
			},
			func(ice *v1alpha1.Icecream) string { return fmt.Sprint(*ice.Spec.Replicas) },
			func(i int) string { return fmt.Sprint(i%3 + 1) },
		},
		{
			"image",
			func(i int) (string, []string) {
				return "", []string{"patch", "icecream/shared", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"image":"registry.example/icecream:%d"}}`, i)}
			},
			func(ice *v1alpha1.Icecream) string { return ice.Spec.Image },
			func(i int) string { return fmt.Sprintf("registry.example/icecream:%d", i) },
		},
		{
			"deploymentName",
			func(i int) (string, []string) {
				return "", []string{"patch", "icecream/shared", "--type=json", "-p", fmt.Sprintf(`[{"op":"add","path":"/spec/deploymentName","value":"name-%d"}]`, i)}
			},
			func(ice *v1alpha1.Icecream) string { return ice.Spec.DeploymentName },
			func(i int) string { return fmt.Sprintf("name-%d", i) },
		},
		{
			"resources",
			func(i int) (string, []string) {
				return ownManifest(100 + i), []string{"apply", "--server-side", "--field-manager=memory", "-f", "-"}
			},
			func(ice *v1alpha1.Icecream) string { return ice.Spec.Resources.Limits.Memory().String() },
			func(i int) string { return fmt.Sprintf("%dMi", 100+i) },
		},
		{
			"an annotation",
			func(i int) (string, []string) {
				return "", []string{"annotate", "icecream/shared", "--overwrite", fmt.Sprintf("example.com/edit=%d", i)}
			},
			func(ice *v1alpha1.Icecream) string { return ice.Annotations["example.com/edit"] },
			func(i int) string { return fmt.Sprint(i) },
		},
	} {
		editing.Go(func() {
			for i := range edits {
				stdin, args := user.edit(i)
				if _, err := n.TryKubectl(t.Context(), stdin, args...); err != nil {
					t.Errorf("%s, edit %d: %v", user.what, i, err)
				}
				ice, err := n.Icecreams().Get(t.Context(), "shared", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
				} else if got := user.read(ice); got != user.want(i) {
					t.Errorf("%s was set to %q and is %q", user.what, user.want(i), got)
				}
			}
		})
	}
	editing.Wait()

	ice := n.EventuallyReady(t, "shared")
	last := edits - 1
	want := v1alpha1.IcecreamSpec{
		DeploymentName: fmt.Sprintf("name-%d", last),
		Replicas:       ptr.To[int32](int32(last%3) + 1),
		Image:          fmt.Sprintf("registry.example/icecream:%d", last),
		Resources:      v1alpha1.IcecreamResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", 100+last))}},
	}
	if diff := lab.Diff(want, ice.Spec); diff != "" {
		t.Errorf("the final spec differs (-want +got):\n%s", diff)
	}
	n.Eventually(t, "only the last Deployment is left", func(context.Context) error {
		if got := names(n.AllDeployments(t)); !cmp.Equal(got, []string{want.DeploymentName}) {
			return fmt.Errorf("the Deployments are %q", got)
		}
		return nil
	})
	d := n.Deployment(t, want.DeploymentName)
	if container := d.Spec.Template.Spec.Containers[0]; *d.Spec.Replicas != *want.Replicas || container.Image != want.Image || !cmp.Equal(container.Resources.Limits, want.Resources.Limits) {
		t.Errorf("the Deployment has %d replicas of %s with resources %v", *d.Spec.Replicas, container.Image, container.Resources)
	}

	requests := n.Requests(t)
	for _, of := range []string{"icecreams", "icecreams/scale"} {
		if conflicts := requests.Resource(of).Code(409); len(conflicts) > 0 {
			t.Errorf("users conflicted with each other or with the controller: %s", conflicts)
		}
	}
	// A status is written only for the version of the Icecream that it was computed from.
	// So each edit may cause one write to be refused, and no more.
	if conflicts := requests.Resource("icecreams/status").Code(409); len(conflicts) > users*edits {
		t.Errorf("%d edits caused more conflicts than that: %s", users*edits, conflicts)
	}
	t.Logf("the controller's requests: %s", requests.By(n.Controller.User))
}
