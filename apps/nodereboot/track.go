package main

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// idlePeriod is how often nodes are looked at while kubelets only report that nothing has
// changed. A step that the API server refuses is not repeated with each such report.
const idlePeriod = time.Minute

// A node that cannot be written is passed over for refusedFor: when a write was refused, or the
// maxConflicts-th one has conflicted.
const (
	refusedFor   = 5 * time.Minute
	maxConflicts = 3
)

// watchNodes tracks each node, and queues a sync when one changes.
func (c *Controller) watchNodes(nodes coreinformers.NodeIndexInformer) error {
	registration, err := nodes.AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc: func(node *corev1.Node) {
			c.trackNode(nil, node)
			c.queue()
		},
		UpdateFunc: func(before, after *corev1.Node) {
			c.trackNode(before, after)
			if isAlike(before, after) {
				c.AddAfter(allNodes, idlePeriod)
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
	c.WaitFor(registration.HasSyncedChecker())
	return nodes.SetTransform(func(object any) (any, error) {
		if node, ok := object.(*corev1.Node); ok {
			strip(node)
		}
		return object, nil
	})
}

// watchAgents tracks each agent by its Lease, and queues a sync when an agent reports that
// was silent before.
func (c *Controller) watchAgents(leases coordinationinformers.LeaseIndexInformer) error {
	track := func(before, after *coordinationv1.Lease) {
		if c.trackAgent(before, after) {
			c.queue()
		}
	}
	registration, err := leases.AddTypedEventHandler(coordinationinformers.LeaseHandlerFuncs{
		AddFunc:    func(lease *coordinationv1.Lease) { track(nil, lease) },
		UpdateFunc: track,
		DeleteFunc: func(deleted coordinationinformers.DeletedLease) { c.forgetAgent(deleted.GetObjectName().Name) },
	})
	if err != nil {
		return err
	}
	c.WaitFor(registration.HasSyncedChecker())
	return leases.SetTransform(func(object any) (any, error) {
		if lease, ok := object.(*coordinationv1.Lease); ok {
			lease.Annotations, lease.Labels, lease.OwnerReferences, lease.ManagedFields = nil, nil, nil, nil
		}
		return object, nil
	})
}

func (c *Controller) queue() { c.AddAfter(allNodes, batchPeriod) }

// strip removes from a node what is not read here.
func strip(node *corev1.Node) {
	kept := map[string]string{}
	for _, name := range []string{request.Needed, request.Since, request.Next, request.Now, request.Granted, request.InProgress, request.Failed} {
		if value, ok := node.Annotations[name]; ok {
			kept[name] = value
		}
	}
	node.Annotations, node.ManagedFields = kept, nil
	node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	conditions := slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })
	for i, c := range conditions {
		conditions[i] = corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}
	}
	node.Status = corev1.NodeStatus{Conditions: conditions, NodeInfo: corev1.NodeSystemInfo{BootID: node.Status.NodeInfo.BootID}}
}

// isAlike reports whether nothing has changed that is read here.
func isAlike(before, after *corev1.Node) bool {
	former := *before
	former.ResourceVersion = after.ResourceVersion
	return equality.Semantic.DeepEqual(&former, after)
}

// What is tracked here is measured by this process's own clock, because a node's clock may
// be wrong, above all after a reboot. Only for what a process sees for the first time does
// the node's own time count, because nothing else is known.

// trackNode records since when a node has been available. before or after is nil if the
// node was added or deleted.
func (c *Controller) trackNode(before, after *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil && (after == nil || before.UID != after.UID) {
		delete(c.availableSince, before.UID)
		delete(c.neededSince, before.UID)
		delete(c.usedSince, before.UID)
		delete(c.refusals, before.UID)
		before = nil
	}
	if after == nil {
		return
	}
	if !needsReboot(after) && !request.IsNext(after) {
		delete(c.refusals, after.UID)
	}
	c.trackNeed(after)
	isBack := before != nil && hasFinished(before, after, c.usedSince[after.UID].bootID)
	c.trackUse(after, before == nil)
	switch now := time.Now(); {
	case !request.IsReady(after):
		delete(c.availableSince, after.UID)
	case before == nil:
		c.availableSince[after.UID] = now
		if since := request.ReadySince(after); since.Before(now) {
			c.availableSince[after.UID] = since
		}
	case !request.IsReady(before), isBack:
		c.availableSince[after.UID] = now
	}
}

// hasFinished reports whether an agent has finished its work, and not given it up: the node has
// another boot ID than when the work began.
func hasFinished(before, after *corev1.Node, bootID string) bool {
	_, wasAtWork := before.Annotations[request.InProgress]
	_, isAtWork := after.Annotations[request.InProgress]
	return wasAtWork && !isAtWork && bootID != after.Status.NodeInfo.BootID
}

// trackNeed records since when a node has needed a reboot. A time for which it was requested
// begins no need before that time, and ends none. What the agent gives back and gives up
// remains needed.
func (c *Controller) trackNeed(node *corev1.Node) {
	if !needsReboot(node) {
		delete(c.neededSince, node.UID)
		return
	}
	now := time.Now()
	since, isKnown := c.neededSince[node.UID]
	if !isKnown || since.After(now) {
		since = now
		if at, err := request.NotBefore(node); request.IsNeeded(node) && err == nil && at.After(now) {
			since = at
		}
	}
	if reason := request.ReasonOf(node); reason != nil && !reason.At.IsZero() && reason.At.Before(since) {
		since = reason.At
	}
	c.neededSince[node.UID] = since
}

// needsReboot reports whether somebody wants a reboot of the node that is not done yet.
func needsReboot(node *corev1.Node) bool {
	_, hasFailed := node.Annotations[request.Failed]
	return request.IsNeeded(node) || request.IsGranted(node) || hasFailed || request.ReasonOf(node) != nil
}

// use is why a node uses up a part of the budget, and since when.
type use struct {
	reason string
	since  time.Time
	bootID string // the node's when that began
}

// trackUse records since when a node uses up a part of the budget. For a reboot that was
// granted before this process began, the Node says it.
func (c *Controller) trackUse(node *corev1.Node, isNew bool) {
	is, was := usedBy(node), c.usedSince[node.UID]
	switch now := time.Now(); {
	case is == "":
		delete(c.usedSince, node.UID)
	case is == was.reason:
	case is == Rebooting && was.reason == Granted:
		c.usedSince[node.UID] = use{is, was.since, node.Status.NodeInfo.BootID}
	default:
		since := now
		if granted := request.LastGranted(node); isNew && (is == Granted || is == Rebooting) && !granted.IsZero() && granted.Before(now) {
			since = granted
		}
		c.usedSince[node.UID] = use{is, since, node.Status.NodeInfo.BootID}
	}
}

// trackRefusal records whether a node can be written, after a step was tried. That it can be chosen
// and passed over says little.
func (c *Controller) trackRefusal(d Decision, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	refusal := c.refusals[d.Node.UID]
	isConflict := response.IsConflict(err)
	if isConflict {
		refusal.conflicts++
	}
	switch {
	case err == nil && (d.Step == Grant || d.Step == TakeBack):
		delete(c.refusals, d.Node.UID)
		return
	case response.IsRefusal(err) && (!isConflict || refusal.conflicts >= maxConflicts):
		refusal.Step, refusal.Until = d.Step, time.Now().Add(refusedFor)
		refusal.Times++
		refusal.Note = "the Node cannot be written: " + text.Clip(err.Error(), maxError)
	case !isConflict:
		return
	}
	c.refusals[d.Node.UID] = refusal
}

// trackAgent records that an agent has renewed its Lease, and returns whether the agent was
// silent before. before is nil if the Lease was added.
func (c *Controller) trackAgent(before, after *coordinationv1.Lease) (wasSilent bool) {
	renewed := after.Spec.RenewTime
	if renewed == nil || before != nil && renewed.Equal(before.Spec.RenewTime) {
		return false
	}
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	last, isKnown := c.lastReport[after.Name]
	if before == nil && renewed.Time.Before(at) {
		c.lastReport[after.Name] = renewed.Time
	} else {
		c.lastReport[after.Name] = at
	}
	return !isKnown || at.Sub(last) > request.ReportedWithin
}

// forgetAgent records that there is no Lease for a node.
func (c *Controller) forgetAgent(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lastReport, node)
}
