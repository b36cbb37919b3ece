package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// icecreamName returns the name of an Icecream with that number.
func icecreamName(i int) string { return fmt.Sprintf("icecream-%02d", i) }

// startUsers creates that many Icecreams and edits them in the background, each at its
// own pace. wait returns their final specs once all edits are done.
func startUsers(t *testing.T, n *lab.Namespace, icecreams, edits int, seed uint64) (wait func() []v1alpha1.IcecreamSpec) {
	final := make([]v1alpha1.IcecreamSpec, icecreams)
	var users sync.WaitGroup
	t.Cleanup(users.Wait)
	for i := range icecreams {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		users.Go(func() { final[i] = createAndEdit(t, n, icecreamName(i), edits, random) })
	}
	return func() []v1alpha1.IcecreamSpec {
		users.Wait()
		return final
	}
}

// requireCreatedOnce requires that no Deployment of the namespace was created twice.
func requireCreatedOnce(t *testing.T, n *lab.Namespace) {
	t.Helper()
	byController := func(e *cluster.AuditEvent) bool {
		return isCreated(e) && strings.HasPrefix(e.User, "system:serviceaccount:")
	}
	for name, count := range n.Requests(t).Resource("deployments").Where(byController).ByObject() {
		if count != 1 {
			t.Errorf("Deployment %q was created %d times", name, count)
		}
	}
}

// createAndEdit creates an Icecream, edits it that many times unless the test has ended, and
// returns the final spec.
func createAndEdit(t *testing.T, n *lab.Namespace, name string, edits int, random *rand.Rand) v1alpha1.IcecreamSpec {
	pause := func() (isOver bool) {
		select {
		case <-t.Context().Done():
			return true
		case <-time.After(time.Duration(random.IntN(3000)) * time.Millisecond):
			return false
		}
	}
	spec := v1alpha1.IcecreamSpec{DeploymentName: name, Replicas: ptr.To[int32](1), Image: "registry.example/icecream:0"}
	if pause() {
		return spec
	}
	if _, err := n.Icecreams().Create(t.Context(), &v1alpha1.Icecream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating %s: %v", name, err)
	}
	for edit := range edits {
		if pause() {
			return spec
		}
		var patch string
		switch random.IntN(2) {
		case 0:
			spec.Replicas = ptr.To(random.Int32N(4))
			patch = fmt.Sprintf(`{"spec":{"replicas":%d}}`, *spec.Replicas)
		case 1:
			spec.Image = fmt.Sprintf("registry.example/icecream:%d", edit+1)
			patch = fmt.Sprintf(`{"spec":{"image":%q}}`, spec.Image)
		}
		if _, err := n.Icecreams().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Errorf("editing %s: %v", name, err)
		}
	}
	return spec
}

// requireAsSpecified requires that the Icecreams, which are named by their index, have
// these specs, and that the Deployments of the namespace are exactly those that the specs
// describe.
func requireAsSpecified(t *testing.T, n *lab.Namespace, specs []v1alpha1.IcecreamSpec) {
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
			t.Errorf("the spec of %s differs (-want +got):\n%s", ice.Name, diff)
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
		t.Errorf("the Deployments differ (-want +got):\n%s", diff)
	}
}
