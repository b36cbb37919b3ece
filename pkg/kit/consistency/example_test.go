package consistency_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
)

// A controller has created a Deployment for vanilla, and must not sync vanilla until its
// cache shows that Deployment.
func Example() {
	deployments := appsv1.Resource("deployments")
	store := cache.NewStore(cache.MetaNamespaceKeyFunc) // an informer's
	writes := consistency.New(map[schema.GroupResource]consistency.Seen{deployments: store})
	vanilla := cache.NewObjectName("parlor", "vanilla")

	if err := store.Replace(nil, "100"); err != nil {
		fmt.Println(err)
	}
	writes.WroteAt(vanilla, deployments, "101")
	fmt.Println(writes.EnsureReady(vanilla))

	created := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "vanilla", ResourceVersion: "101"}}
	if err := store.Add(created); err != nil { // what the informer does with the event
		fmt.Println(err)
	}
	fmt.Println(writes.EnsureReady(vanilla))
	// Output:
	// the cache does not show this controller's own write yet: deployments.apps is at resourceVersion 100, but the write is at 101
	// <nil>
}
