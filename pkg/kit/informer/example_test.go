package informer_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// fakePods is the client of a fake cluster, which cannot send a list as a stream.
type fakePods struct{ typedcorev1.PodInterface }

// IsWatchListSemanticsUnSupported tells the informer that.
func (fakePods) IsWatchListSemanticsUnSupported() bool { return true }

// A cache of Pods in one namespace that keeps only their node.
func Example() {
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"},
		Spec:       corev1.PodSpec{NodeName: "node-1", Hostname: "vanilla-0"},
	})
	heard := func(string, string, time.Time) {} // usually metrics.For(name).CacheHeard
	caches := informer.New(heard, clock.RealClock{})
	pods := informer.NewCache[*corev1.Pod](caches, preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
		Namespace:            "parlor",
		Permit:               "allow this process to list and watch Pods in the namespace parlor",
	}, fakePods{client.CoreV1().Pods("parlor")}, &corev1.Pod{}, 0)
	err := pods.SetTransform(informer.Stripped(func(pod *corev1.Pod) {
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	}))
	if err != nil {
		fmt.Println(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	caches.StartWithContext(ctx)
	cache.WaitFor(ctx, "", pods.HasSyncedChecker())
	for _, obj := range pods.GetStore().List() {
		pod := obj.(*corev1.Pod)
		fmt.Printf("%s: node %q, host name %q\n", pod.Name, pod.Spec.NodeName, pod.Spec.Hostname)
	}
	// Output: vanilla: node "node-1", host name ""
}
