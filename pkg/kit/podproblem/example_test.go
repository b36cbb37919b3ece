package podproblem_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

func Example() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sundae-1"},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name:  "scoop",
			Image: "registry.example/vanila:1",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason:  "ImagePullBackOff",
				Message: `Back-off pulling image "registry.example/vanila:1": ErrImagePull: not found`,
			}},
		}}},
	}
	p := podproblem.Of(pod)
	fmt.Println(p.Reason)
	fmt.Println(p.Message)
	// Output:
	// ImagePullFailed
	// Pod "sundae-1", container "scoop": cannot pull image "registry.example/vanila:1": not found
}
