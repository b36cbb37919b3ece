package icecream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A claim is made from the managed fields as they were, and must not be laid over
// what they have become.
func TestClaimPatch(t *testing.T) {
	live := made(t, newIcecream())
	live.ResourceVersion = "42"
	got, err := ClaimPatch(live, []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: "Apply", FieldsV1: metav1.NewFieldsV1("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"icecream-controller","operation":"Apply","fieldsV1":{}}]},` +
		`{"op":"replace","path":"/metadata/resourceVersion","value":"42"}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

func TestStripIcecream(t *testing.T) {
	ice := newIcecream(func(ice *v1alpha1.Icecream) {
		ice.Status.Placement = "node-1 (1)"
		ice.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	})
	want := ice.DeepCopy()
	want.ManagedFields = nil
	StripIcecream(ice)
	if diff := cmp.Diff(want, ice); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}
