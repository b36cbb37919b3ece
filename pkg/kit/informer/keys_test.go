package informer

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestKeys(t *testing.T) {
	store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	keys := Keys(store)
	want := []string{"parlor/vanilla", "summer"}
	for _, pod := range []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"}}, {ObjectMeta: metav1.ObjectMeta{Name: "summer"}}} {
		if err := store.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for name := range keys {
		got = append(got, name.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range keys {
		break // a sequence may be left early
	}
}
