package kittest_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// A watch that is held up shows nothing of what happens.
func Example() {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	cluster := kittest.NewCluster()
	kube := &fake.Clientset{}
	kube.PrependWatchReactor("*", cluster.React)
	changes, err := kube.CoreV1().Pods("parlor").Watch(context.Background(), metav1.ListOptions{ResourceVersion: "100"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer changes.Stop()

	cluster.Hold(pods)
	cluster.Set(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla"}})
	cluster.Remove(pods, cache.NewObjectName("parlor", "vanilla"))
	fmt.Println("held:", len(changes.ResultChan()))

	cluster.Next(pods)
	fmt.Println((<-changes.ResultChan()).Type)
	cluster.Release(pods)
	fmt.Println((<-changes.ResultChan()).Type)
	// Output:
	// held: 0
	// ADDED
	// DELETED
}
