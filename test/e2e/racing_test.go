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
	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// Several people edit one Icecream, each a field of their own, as fast as kubectl
// goes, while the controller reports on it all the time.
func TestManyHandsOnOneIcecream(t *testing.T) {
	t.Parallel()
	n := NewNamespace(t)
	n.Create(t, "shared", v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](1)})

	const hands, edits = 5, 12
	ownManifest := func(memory int) string {
		return fmt.Sprintf(`{apiVersion: controller.nicoleh.io/v1alpha1, kind: Icecream, metadata: {name: shared}, spec: {resources: {limits: {memory: %dMi}}}}`, memory)
	}
	var people sync.WaitGroup
	for _, hand := range []struct {
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
		people.Go(func() {
			for i := range edits {
				stdin, args := hand.edit(i)
				if _, err := n.TryKubectl(t.Context(), stdin, args...); err != nil {
					t.Errorf("%s, edit %d: %v", hand.what, i, err)
				}
				ice, err := n.Icecreams().Get(t.Context(), "shared", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
				} else if got := hand.read(ice); got != hand.want(i) {
					t.Errorf("%s was edited to %q and is %q", hand.what, hand.want(i), got)
				}
			}
		})
	}
	people.Wait()

	ice := n.EventuallyReady(t, "shared")
	last := edits - 1
	want := v1alpha1.IcecreamSpec{
		DeploymentName: fmt.Sprintf("name-%d", last),
		Replicas:       ptr.To[int32](int32(last%3) + 1),
		Image:          fmt.Sprintf("registry.example/icecream:%d", last),
		Resources:      v1alpha1.IcecreamResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", 100+last))}},
	}
	if diff := difftest.Diff(want, ice.Spec); diff != "" {
		t.Errorf("spec in the end (-want +got):\n%s", diff)
	}
	n.Eventually(t, "one Deployment is left", func(context.Context) error {
		if got := names(n.AllDeployments(t)); !cmp.Equal(got, []string{want.DeploymentName}) {
			return fmt.Errorf("there are %q", got)
		}
		return nil
	})
	d := n.Deployment(t, want.DeploymentName)
	if container := d.Spec.Template.Spec.Containers[0]; *d.Spec.Replicas != *want.Replicas || container.Image != want.Image || !cmp.Equal(container.Resources.Limits, want.Resources.Limits) {
		t.Errorf("the Deployment runs %d of %s with %v", *d.Spec.Replicas, container.Image, container.Resources)
	}

	requests := n.Requests(t)
	for _, of := range []string{"icecreams", "icecreams/scale"} {
		if conflicts := requests.Resource(of).Code(409); len(conflicts) > 0 {
			t.Errorf("people were in each other's way, or the controller in theirs: %s", conflicts)
		}
	}
	// A status is for the version that it was made from: of the versions that came
	// and went, each may have cost a request that was refused, and no more.
	if conflicts := requests.Resource("icecreams/status").Code(409); len(conflicts) > hands*edits {
		t.Errorf("%d edits led to these conflicts: %s", hands*edits, conflicts)
	}
	t.Logf("the controller's requests: %s", requests.By(n.Controller.User))
}
