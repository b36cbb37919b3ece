package nodereboot

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// addHandlers queues a sync when a node changes or an agent reports that was silent
// before, and keeps track of nodes and agents.
func (c *Controller) addHandlers(nodes informer.Cache[*corev1.Node], leases informer.Cache[*coordinationv1.Lease]) error {
	nodeEvents, err := nodes.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Node]{
		AddFunc: func(node *corev1.Node) {
			c.trackNode(nil, node)
			c.queue()
		},
		UpdateFunc: func(before, after *corev1.Node) {
			c.trackNode(before, after)
			if !request.IsNeeded(before) && request.IsNeeded(after) {
				c.AddUrgent(allNodes) // a new request
			} else {
				c.queue()
			}
		},
		DeleteFunc: func(deleted cache.DeletedObject[*corev1.Node]) {
			if deleted.OptionalObj != nil {
				c.trackNode(deleted.OptionalObj, nil)
			}
			c.queue()
		},
	})
	if err != nil {
		return err
	}
	leaseEvents, err := leases.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*coordinationv1.Lease]{
		AddFunc:    func(lease *coordinationv1.Lease) { c.trackAgent(nil, lease, c.queue) },
		UpdateFunc: func(before, after *coordinationv1.Lease) { c.trackAgent(before, after, c.queue) },
		DeleteFunc: func(deleted cache.DeletedObject[*coordinationv1.Lease]) { c.forgetAgent(deleted.GetObjectName().Name) },
	})
	if err != nil {
		return err
	}
	c.WaitFor(nodeEvents.HasSyncedChecker(), leaseEvents.HasSyncedChecker())
	return nil
}

func (c *Controller) queue() { c.AddAfter(allNodes, batchPeriod) }
