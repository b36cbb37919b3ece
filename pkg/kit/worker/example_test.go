package worker_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// However often an object is added, it is synced once.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	loop := worker.New("greeter", func(_ context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
		fmt.Println("sync", name)
		stop()
		return 0, nil
	})
	loop.Add(cache.NewObjectName("shop", "web"))
	loop.Add(cache.NewObjectName("shop", "web"))
	fmt.Println(loop.Run(ctx, 1))
	// Output:
	// sync shop/web
	// <nil>
}
