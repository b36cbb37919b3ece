package consistency_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
)

// shown is a cache that shows everything up to a resource version.
type shown struct{ version string }

func (s *shown) LastStoreSyncResourceVersion() string { return s.version }

// A controller has created a Pod. Its cache of Pods shows that a moment later.
func Example() {
	pods, owner := schema.GroupResource{Resource: "pods"}, cache.NewObjectName("shop", "web")
	seen := &shown{version: "41"}
	writes := consistency.New(map[schema.GroupResource]consistency.Seen{pods: seen})

	writes.WroteAt(owner, pods, "42")
	fmt.Println("ready:", writes.EnsureReady(owner) == nil)
	seen.version = "42"
	fmt.Println("ready:", writes.EnsureReady(owner) == nil)
	// Output:
	// ready: false
	// ready: true
}
