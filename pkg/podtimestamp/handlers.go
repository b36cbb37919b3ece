package podtimestamp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
)

// addHandlers queues the name of each Pod that asks for a timestamp when the Pod changes.
// Nothing is decided here.
func (c *Controller) addHandlers() error {
	registration, err := c.pods.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: mayAsk,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    informer.Named(c.AddUrgent), // the Pod has begun to ask
			UpdateFunc: func(_, pod any) { informer.Named(c.Add)(pod) },
			DeleteFunc: informer.Named(c.AddUrgent), // the Pod has ceased to ask
		},
	})
	if err != nil {
		return err
	}
	c.WaitFor(registration.HasSyncedChecker())
	return nil
}

// mayAsk reports whether obj is a Pod that asks for a timestamp, or a tombstone. It
// keeps most Pods out of the queue. The last event that it lets through about a Pod is
// that the Pod has ceased to ask or was deleted.
func mayAsk(obj any) bool {
	pod, isPod := obj.(*metav1.PartialObjectMetadata)
	return !isPod || isAsking(pod)
}

// names yields the names of the Pods in the cache that ask for a timestamp.
func (c *Controller) names(yield func(cache.ObjectName) bool) {
	for pod := range c.pods.All() {
		if isAsking(pod) && !yield(cache.MetaObjectToName(pod)) {
			return
		}
	}
}
