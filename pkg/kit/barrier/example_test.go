package barrier_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/barrier"
)

// The cache has reached the API server's resource version, so the barrier opens at once.
func Example() {
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
	})
	store := cache.NewStore(cache.MetaNamespaceKeyFunc) // an informer's
	if err := store.Replace(nil, "7"); err != nil {
		fmt.Println(err)
	}
	pods := barrier.Cache{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Store: store}
	fmt.Println(barrier.Await(context.Background(), client, clock.RealClock{}, pods))
	// Output: <nil>
}
