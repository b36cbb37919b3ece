package informer

import (
	"iter"

	"k8s.io/client-go/tools/cache"
)

// Keys returns the names of all objects in a store at the time of the call of the
// sequence, for worker.WithKeys.
func Keys(store cache.Store) iter.Seq[cache.ObjectName] {
	return func(yield func(cache.ObjectName) bool) {
		for _, key := range store.ListKeys() {
			if name, err := cache.ParseObjectName(key); err == nil && !yield(name) {
				return
			}
		}
	}
}
