package patch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sundae", UID: "u", ResourceVersion: "7", Labels: map[string]string{"flavor": "mint"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "cone", Image: "cone:1", Args: []string{"a", "b"}},
			{Name: "scoop", Image: "scoop:1", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}},
		}},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func TestDifferences(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*corev1.Pod) // makes what is wanted
		want string
	}{
		"none":                 {func(*corev1.Pod) {}, ""},
		"a field":              {func(pod *corev1.Pod) { pod.Spec.Containers[1].Image = "scoop:2" }, `spec.containers[scoop].image is "scoop:1" instead of "scoop:2"`},
		"one that is missing":  {func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" }, `spec.nodeName is nothing instead of "node-1"`},
		"one that is too many": {func(pod *corev1.Pod) { pod.Labels = nil }, `metadata.labels is {"flavor":"mint"} instead of nothing`},
		"some, in order": {
			func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"a": "b", "flavor": "nut"}
				pod.Spec.NodeName = "n"
			},
			`metadata.labels.a is nothing instead of "b"; metadata.labels.flavor is "mint" instead of "nut"; spec.nodeName is nothing instead of "n"`,
		},
		"another order": {func(pod *corev1.Pod) {
			c := pod.Spec.Containers
			c[0], c[1] = c[1], c[0]
		}, ""},
		"a list without names": {func(pod *corev1.Pod) { pod.Spec.Containers[0].Args = []string{"b", "a"} }, `spec.containers[cone].args is ["a","b"] instead of ["b","a"]`},
		"an element":           {func(pod *corev1.Pod) { pod.Spec.Containers = pod.Spec.Containers[:1] }, `spec.containers[scoop] is {"image":"scoop:1","name":"scoop","resources":{"limits":{"memory":"1Gi"}}} instead of nothing`},
		"a quantity in other words": {
			func(pod *corev1.Pod) {
				pod.Spec.Containers[1].Resources.Limits["memory"] = resource.MustParse("1024Mi")
			}, "",
		},
		"a long value": {
			func(pod *corev1.Pod) { pod.Spec.NodeName = strings.Repeat("n", 200) },
			`spec.nodeName is nothing instead of "` + strings.Repeat("n", 119),
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := patch.Differences(newPod(), newPod(test.edit))
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, d := range found {
				words = append(words, d.String())
			}
			if diff := cmp.Diff(test.want, strings.Join(words, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
