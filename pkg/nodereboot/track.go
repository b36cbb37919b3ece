package nodereboot

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// What is tracked here is measured by this process's own clock, because a node's clock may
// be wrong, above all after a reboot. Only about what a process sees for the first time,
// the node's own time is all there is to know.

// trackNode records since when a node has been available. before or after is nil if the
// node was added or deleted.
func (c *Controller) trackNode(before, after *corev1.Node) {
	isAvailable := func(node *corev1.Node) bool { return request.IsReady(node) && !request.IsGranted(node) }
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := c.clock.Now(); {
	case before != nil && (after == nil || before.UID != after.UID):
		delete(c.availableSince, before.UID)
		if after != nil {
			c.availableSince[after.UID] = now
		}
	case !isAvailable(after):
		delete(c.availableSince, after.UID)
	case before == nil:
		c.availableSince[after.UID] = now
		if since := request.ReadySince(after); since.Before(now) {
			c.availableSince[after.UID] = since
		}
	case !isAvailable(before):
		c.availableSince[after.UID] = now
	}
}

// trackAgent records that an agent has renewed its Lease, and calls queue if the agent was
// silent before. before is nil if the Lease was added.
func (c *Controller) trackAgent(before, after *coordinationv1.Lease, queue func()) {
	renewed := after.Spec.RenewTime
	if renewed == nil || before != nil && renewed.Equal(before.Spec.RenewTime) {
		return
	}
	at := c.clock.Now()
	c.mu.Lock()
	last, isKnown := c.lastReport[after.Name]
	wasSilent := !isKnown || at.Sub(last) > request.ReportedWithin
	if before == nil && renewed.Time.Before(at) {
		c.lastReport[after.Name] = renewed.Time
	} else {
		c.lastReport[after.Name] = at
	}
	c.mu.Unlock()
	if wasSilent {
		queue()
	}
}

// forgetAgent records that there is no Lease for a node.
func (c *Controller) forgetAgent(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lastReport, node)
}
