package compact_test

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/compact"
)

func TestMetadata(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "parlor", Name: "cone", Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "flavor": "mint"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
	compact.Metadata(&meta)
	if diff := cmp.Diff(metav1.ObjectMeta{Namespace: "parlor", Name: "cone", Annotations: map[string]string{"flavor": "mint"}}, meta); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	delete(meta.Annotations, "flavor")
	if compact.Metadata(&meta); meta.Annotations != nil {
		t.Error("an empty map is kept")
	}
}

func TestShare(t *testing.T) {
	a, b := strings.Clone("vanilla"), strings.Clone("vanilla")
	if compact.Share(&a, &b); a != "vanilla" || unsafe.StringData(a) != unsafe.StringData(b) {
		t.Errorf("%q and %q are in memory twice", a, b)
	}
}

func TestConditions(t *testing.T) {
	conditions := []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Available", Message: strings.Clone("all of them")}, {Message: strings.Clone("all of them")}}
	want := slices.Clone(conditions)
	compact.Conditions(conditions)
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if unsafe.StringData(conditions[0].Message) != unsafe.StringData(conditions[1].Message) {
		t.Error("equal messages are in memory twice")
	}
}

func TestShared(t *testing.T) {
	shared := compact.NewShared[map[string]string](1)
	cone := func() map[string]string { return map[string]string{"flavor": "cone"} }
	first := shared.Of(cone())
	first["known"] = "by this"
	first = shared.Of(cone())
	if diff := cmp.Diff(map[string]string{"flavor": "cone", "known": "by this"}, first); diff != "" {
		t.Errorf("an equal value is in memory twice: %s", diff)
	}
	shared.Of(nil)
	if diff := cmp.Diff(cone(), shared.Of(cone())); diff != "" {
		t.Errorf("more is remembered than asked for: %s", diff)
	}
	functions := compact.NewShared[func() bool](1)
	if isThis := functions.Of(func() bool { return true }); !isThis() {
		t.Error("what has no JSON has become something else")
	}
}
