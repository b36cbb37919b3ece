package icecream

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
