package nodereboot

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// The reasons of the events, which are about Nodes.
const (
	ReasonGranted = "RebootGranted"
	ReasonWaiting = "RebootWaiting"
)

// recordGrant records that a node may reboot.
func (c *Controller) recordGrant(ctx context.Context, node *corev1.Node, d Decision) {
	c.waiting.Forget(node.UID)
	others := len(d.Unavailable) - 1 // without the node itself
	klog.FromContext(ctx).Info("Granted a reboot", "node", klog.KObj(node), "unavailable", others, "budget", d.Budget)
	c.recorder.Eventf(node, nil, corev1.EventTypeNormal, ReasonGranted, "Grant",
		"May reboot now: %d of %d nodes may be unavailable, and %s", d.Budget, d.Nodes, othersAre(others))
}

// recordWaiting records why each of these nodes waits, if that is news.
func (c *Controller) recordWaiting(waiting []Waiting) {
	present := sets.New[types.UID]()
	for _, w := range waiting {
		present.Insert(w.Node.UID)
		if c.waiting.IsNew(w.Node.UID, w.Reason) {
			c.recorder.Eventf(w.Node, nil, corev1.EventTypeNormal, ReasonWaiting, "Wait", "Waiting to reboot (%s): %s", w.Reason, w.Note)
		}
	}
	c.waiting.Retain(present.Has)
}
