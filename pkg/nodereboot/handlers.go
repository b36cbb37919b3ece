package nodereboot

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// addHandlers queues a sync when a node changes or an agent reports that was silent
// before, and keeps track of nodes and agents.
func (c *Controller) addHandlers(nodes coreinformers.TypedNodeInformer, leases coordinationinformers.TypedLeaseInformer) error {
	nodeEvents, err := nodes.TypedInformer().AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
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
		DeleteFunc: func(deleted coreinformers.DeletedNode) {
			if deleted.OptionalObj != nil {
				c.trackNode(deleted.OptionalObj, nil)
			}
			c.queue()
		},
	})
	if err != nil {
		return err
	}
	leaseEvents, err := leases.TypedInformer().AddTypedEventHandler(coordinationinformers.LeaseHandlerFuncs{
		AddFunc:    func(lease *coordinationv1.Lease) { c.trackAgent(nil, lease, c.queue) },
		UpdateFunc: func(before, after *coordinationv1.Lease) { c.trackAgent(before, after, c.queue) },
		DeleteFunc: func(deleted coordinationinformers.DeletedLease) { c.forgetAgent(deleted.GetObjectName().Name) },
	})
	if err != nil {
		return err
	}
	c.WaitFor(nodeEvents.HasSyncedChecker(), leaseEvents.HasSyncedChecker())
	return nil
}

func (c *Controller) queue() { c.AddAfter(allNodes, batchPeriod) }
