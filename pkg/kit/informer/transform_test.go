package informer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

func TestStripped(t *testing.T) {
	transform := informer.Stripped(func(pod *corev1.Pod) { pod.Spec = corev1.PodSpec{} })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cone"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	tombstone := cache.DeletedFinalStateUnknown{Key: "parlor/cone"}
	for _, tt := range []struct {
		name      string
		obj, want any
	}{
		{"an object of that type", pod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "cone"}}},
		{"a tombstone", tombstone, tombstone},
		{"another type", &corev1.Node{}, &corev1.Node{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := transform(tt.obj)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
