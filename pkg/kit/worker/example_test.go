package worker_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// A small controller: event handlers add every object that the cache holds at first, and
// each one that changes from then on.
func Example() {
	server := cachetesting.NewFakeControllerSource()
	defer server.Shutdown()
	server.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "scoop"}})
	pods := cache.NewSharedIndexInformer(server, &corev1.Pod{}, 0, cache.Indexers{})

	ctx, cancel := context.WithCancel(context.Background())
	loop := worker.New("pods", func(_ context.Context, name cache.ObjectName) (time.Duration, error) {
		fmt.Println("syncing", name)
		cancel()
		return 0, nil
	})
	add := func(object any) {
		if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
			loop.Add(name)
		}
	}
	registration, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, object any) { add(object) },
		DeleteFunc: add,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	go pods.RunWithContext(ctx)
	loop.WaitFor(registration.HasSyncedChecker())
	if err := loop.Run(ctx, 2); err != nil {
		fmt.Println(err)
	}
	// Output: syncing default/scoop
}
