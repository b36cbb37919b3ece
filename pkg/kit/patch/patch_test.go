package patch_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

// The API server refuses this patch if the object is not at resource version 7 any more.
func ExampleMerge() {
	observed := &metav1.ObjectMeta{UID: "1234", ResourceVersion: "7"}
	body, err := patch.Merge(observed, map[string]*string{"flavor": ptr.To("mint"), "topping": nil}, nil)
	fmt.Println(string(body), err)
	// Output: {"metadata":{"annotations":{"flavor":"mint","topping":null},"resourceVersion":"7","uid":"1234"}} <nil>
}

// A patch without annotations must leave those that are there: null would remove them.
func TestMergeWithoutAnnotations(t *testing.T) {
	body, err := patch.Merge(&metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}, nil, map[string]any{"unschedulable": true})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"unschedulable":true}}`
	if string(body) != want {
		t.Errorf("got %s, want %s", body, want)
	}
}

// deployment returns one with a container of ours after an injected one.
func deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: "vanilla", UID: "u", ResourceVersion: "7",
		Annotations: map[string]string{"ours": "1"},
	}}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Name: "sidecar", Image: "proxy"},
		{Name: "main", Image: "vanilla:1", Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}},
	}
	return d
}

// While the controller decides, someone else adds an annotation and a toleration.
func TestPatchLeavesTheFieldsOfOthers(t *testing.T) {
	live := deployment()
	want := live.DeepCopy()
	want.Annotations["ours"] = "2"
	ours := &want.Spec.Template.Spec.Containers[1]
	ours.Image = "vanilla:2"
	delete(ours.Resources.Limits, "cpu")
	ours.Resources.Requests = nil
	body, err := patch.IfUID(live, want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(deployment(), live); diff != "" {
		t.Errorf("an argument has changed (-want +got):\n%s", diff)
	}

	edit := func(d *appsv1.Deployment) *appsv1.Deployment {
		d.ResourceVersion = "8"
		d.Annotations["theirs"] = "1"
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "cold"}}
		return d
	}
	stored, err := json.Marshal(edit(live))
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(stored, body, appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	got := &appsv1.Deployment{}
	if err := json.Unmarshal(patched, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(edit(want), got); diff != "" {
		t.Errorf("patched (-want +got):\n%s", diff)
	}
}

func TestPatchHasPreconditions(t *testing.T) {
	wanted := deployment()
	wanted.Spec.Replicas = ptr.To[int32](3)
	body, err := patch.IfUID(deployment(), wanted)
	if want := `{"metadata":{"uid":"u"},"spec":{"replicas":3}}`; err != nil || string(body) != want {
		t.Errorf("%s, %v, want %s", body, err, want)
	}
	body, err = patch.IfUnchanged(deployment(), wanted)
	if want := `{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"replicas":3}}`; err != nil || string(body) != want {
		t.Errorf("%s, %v, want %s", body, err, want)
	}
}
