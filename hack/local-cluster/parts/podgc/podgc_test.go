package podgc

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func newPod(node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cone", UID: "uid-of-cone"},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func deleted(pod *corev1.Pod) {
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	pod.Finalizers = []string{"example.com/kept"} // without one, the fake cluster drops it
}

func ended(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

const (
	markLost   = `patch {"metadata":{"uid":"uid-of-cone"},"status":{"conditions":[{"message":"PodGC: node no longer exists","reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"phase":"Failed"}}`
	markFailed = `patch {"metadata":{"uid":"uid-of-cone"},"status":{"phase":"Failed"}}`
	deleteNow  = "delete uid-of-cone at once"
)

func TestPodsAreCollected(t *testing.T) {
	for _, test := range []struct {
		name  string
		pod   *corev1.Pod
		after time.Duration
		back  time.Duration // when the node is back, if it is
		want  []string
	}{
		{name: "its node is there", pod: newPod("node-1"), after: time.Hour},
		{name: "it waits for a node", pod: newPod(""), after: time.Hour},
		{name: "its node has just gone", pod: newPod("gone"), after: quarantine - time.Second},
		{name: "its node has been gone for long", pod: newPod("gone"), after: quarantine + period, want: []string{markLost, deleteNow}},
		{name: "it has ended, and its node is gone", pod: newPod("gone", ended), after: quarantine + period, want: []string{deleteNow}},
		{name: "its node comes back in time", pod: newPod("gone"), after: time.Hour, back: quarantine / 2},
		{name: "it is deleted on its node", pod: newPod("node-1", deleted), after: time.Hour},
		{name: "it is deleted before it has a node", pod: newPod("", deleted), after: time.Second, want: []string{markFailed, deleteNow}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, test.pod)
				var wrote []string
				client.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					switch action := action.(type) {
					case clienttesting.PatchAction:
						wrote = append(wrote, fmt.Sprintf("patch %s", action.GetPatch()))
						return true, test.pod, nil
					case clienttesting.DeleteActionImpl:
						options := action.DeleteOptions
						if *options.GracePeriodSeconds == 0 {
							wrote = append(wrote, fmt.Sprintf("delete %s at once", *options.Preconditions.UID))
						}
					}
					return false, nil, nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				factory := informers.NewSharedInformerFactory(client, 0)
				c := New(client, factory.Core().V1().Pods(), factory.Core().V1().Nodes())
				factory.Start(ctx.Done())
				go c.Run(ctx)
				if test.back > 0 {
					time.Sleep(test.back)
					node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: test.pod.Spec.NodeName}}
					if err := client.Tracker().Add(node); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(test.after - test.back)
				synctest.Wait()
				cancel()
				factory.Shutdown()
				if diff := cmp.Diff(test.want, wrote); diff != "" {
					t.Errorf("writes (-want +got):\n%s", diff)
				}
			})
		})
	}
}
