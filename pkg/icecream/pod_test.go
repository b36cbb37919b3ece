package icecream

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// newPod is a Pod of the plain Icecream that has been ready for an hour, as edited.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	ice := newIcecream()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "parlor",
			Name:              "sundae-1",
			UID:               "uid-of-sundae-1",
			ResourceVersion:   "9",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels:            selector(ice, "sundae"),
			Annotations:       map[string]string{AnnotationSpecHash: specHash(ice.Spec)},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "sundae-7c8b", UID: "uid-of-a-replica-set", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: kittest.ReadyStatus(containerName, ice.Spec.Image, now.Add(-time.Hour)),
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// notReady makes a Pod one that has not been ready for that long.
func notReady(age time.Duration) func(*corev1.Pod) { return kittest.NotReady(now.Add(-age)) }

// unschedulable has found no node for the Pod for that long.
func unschedulable(age time.Duration) func(*corev1.Pod) { return kittest.Unschedulable(now.Add(-age)) }

// seen is a Pod as PodOf reads it.
func seen(edits ...func(*corev1.Pod)) Pod {
	p, _ := PodOf(CachePod(newPod(edits...)))
	return p
}

// waiting is a Pod whose container has waited for that long.
func waiting(reason string, age time.Duration) Pod {
	return seen(notReady(age), kittest.Waits(reason, "out of cream"))
}

func TestPodOf(t *testing.T) {
	tests := []struct {
		name       string
		edits      []func(*corev1.Pod)
		wantGone   bool
		wantReady  bool
		wantReason podproblem.Reason
	}{{
		name:      "a ready Pod",
		wantReady: true,
	}, {
		name:     "a Pod that is being deleted does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { beingDeleted(pod) }},
		wantGone: true,
	}, {
		name:     "an evicted Pod does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }},
		wantGone: true,
	}, {
		name:     "a Pod that its ReplicaSet has given up does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.OwnerReferences = nil }},
		wantGone: true,
	}, {
		name:     "a Pod of somebody else that has our labels does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" }},
		wantGone: true,
	}, {
		name:     "a Pod that has ended well does not count",
		edits:    []func(*corev1.Pod){func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }},
		wantGone: true,
	}, {
		name:       "no node takes it",
		edits:      []func(*corev1.Pod){unschedulable(5 * time.Second)},
		wantReason: podproblem.Unschedulable,
	}, {
		name:       "the image cannot be pulled",
		edits:      []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("ErrImagePull", "not found")},
		wantReason: podproblem.ImagePullFailed,
	}, {
		name:       "the container cannot be made",
		edits:      []func(*corev1.Pod){notReady(time.Minute), kittest.Waits("CreateContainerConfigError", "image has no user")},
		wantReason: podproblem.ContainerError,
	}, {
		name:       "it has just crashed",
		edits:      []func(*corev1.Pod){notReady(time.Minute), kittest.EndsNow(137, "OOMKilled")},
		wantReason: podproblem.CrashLoop,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, counts := PodOf(CachePod(newPod(tt.edits...)))
			if counts == tt.wantGone {
				t.Fatalf("counts = %t, want %t", counts, !tt.wantGone)
			}
			if got.Ready != tt.wantReady || got.Problem.Reason != tt.wantReason {
				t.Errorf("ready: %t, problem %q; want %t, %q", got.Ready, got.Problem.Reason, tt.wantReady, tt.wantReason)
			}
		})
	}
}
