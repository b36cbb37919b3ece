package podproblem_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

func ExampleOf() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}
	pod.Status.Conditions = []corev1.PodCondition{{
		Type:    corev1.PodScheduled,
		Status:  corev1.ConditionFalse,
		Reason:  corev1.PodReasonUnschedulable,
		Message: "0/3 nodes are available",
	}}
	problem := podproblem.Of(pod, time.Now())
	fmt.Println(problem.Reason, problem.Message)
	// Output: Unschedulable Pod "web-1" cannot be scheduled: 0/3 nodes are available
}
