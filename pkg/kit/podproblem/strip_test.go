package podproblem_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

func podOf(kind string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "sundae-0", UID: "uid", ResourceVersion: "1",
			Labels: map[string]string{"kept": "x", "other": "y"}, Annotations: map[string]string{"kept": "z", "other": "y"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Parlor"}, {Kind: kind, Name: "sundae", Controller: ptr.To(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "scoop"}}},
		Status: corev1.PodStatus{
			Phase:             corev1.PodPending,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodInitialized}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "scoop", ImageID: "id", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}},
		},
	}
}

func TestStrip(t *testing.T) {
	for _, kind := range []string{"ReplicaSet", "StatefulSet", "Job"} {
		whole, stripped := podOf(kind), podOf(kind)
		podproblem.Strip(stripped, "kept")
		if diff := cmp.Diff(podproblem.Of(whole), podproblem.Of(stripped)); diff != "" {
			t.Errorf("the problem (-whole +stripped):\n%s", diff)
		}
		if whole, stripped := podproblem.IsReplica(whole, kind), podproblem.IsReplica(stripped, kind); whole != stripped && kind != "Job" {
			t.Errorf("%s: a replica %t, stripped %t", kind, whole, stripped)
		}
		if stripped.ManagedFields != nil || stripped.Spec.Containers != nil || len(stripped.Status.Conditions) != 1 {
			t.Errorf("not stripped: %+v", stripped)
		}
		if stripped.Labels["kept"] != "x" || stripped.Annotations["kept"] != "z" || stripped.Spec.NodeName != "node-1" || stripped.UID != "uid" || stripped.ResourceVersion != "1" {
			t.Errorf("stripped of what is read: %+v", stripped)
		}
	}
}

func TestIsReplica(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"one that is starting":  {func(*corev1.Pod) {}, true},
		"another kind's":        {func(p *corev1.Pod) { p.OwnerReferences[1].Kind = "ReplicaSet" }, false},
		"one that was given up": {func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"one that is ending":    {func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }, false},
		"one that has failed":   {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"one that is done":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
	} {
		pod := podOf("StatefulSet")
		test.change(pod)
		if got := podproblem.IsReplica(pod, "StatefulSet"); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
