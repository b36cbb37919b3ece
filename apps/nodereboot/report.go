package main

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

// The reasons of the events, which are about Nodes.
const (
	ReasonGranted   = "RebootGranted"
	ReasonWaiting   = "RebootWaiting"
	ReasonTakenBack = "RebootTakenBack"
)

// recordGrant records that a node may reboot.
func (c *Controller) recordGrant(ctx context.Context, node *corev1.Node, d Decision) {
	delete(c.waiting, node.UID)
	others := len(d.Unavailable) - 1 // without the node itself
	klog.FromContext(ctx).Info("Granted a reboot", "node", klog.KObj(node), "unavailable", others, "budget", d.Budget)
	c.recorder.Eventf(node, corev1.EventTypeNormal, ReasonGranted,
		"Reboot granted: at most %d of %d nodes may be unavailable, and %s", d.Budget, d.Nodes, othersAre(others))
}

// recordTakenBack records that a grant was over before the node's agent has begun. d.Node is
// the node before.
func (c *Controller) recordTakenBack(ctx context.Context, node *corev1.Node, d Decision) {
	until := d.Node.Annotations[request.Now]
	klog.FromContext(ctx).Info("Took a grant back", "node", klog.KObj(node), "until", until)
	c.recorder.Eventf(node, corev1.EventTypeWarning, ReasonTakenBack,
		"The grant expired at %s before the agent started the reboot; the node is queued again", until)
}

// maxTold is for how many nodes an event says that they wait for the same reason. When a window
// opens, all nodes wait for something else, and the queue of events has room for 1,000.
const maxTold = 20

// recordWaiting records why each of these nodes waits, if that has changed: of those with the
// same reason, for the first ones by turn.
func (c *Controller) recordWaiting(waiting []Waiting) {
	before, told := c.waiting, map[string]int{}
	c.waiting = map[types.UID]string{}
	for _, w := range waiting {
		if told[w.Reason]++; told[w.Reason] > maxTold || w.IsEarly {
			continue
		}
		c.waiting[w.Node.UID] = w.Reason
		if before[w.Node.UID] != w.Reason {
			c.recorder.Eventf(w.Node, corev1.EventTypeNormal, ReasonWaiting, "Waiting to reboot (%s): %s", w.Reason, w.Note)
		}
	}
}

// poolSizes returns how many nodes each pool has, by its selector.
func poolSizes(o Observed) map[string]int {
	sizes := map[string]int{}
	for _, pool := range o.Pools {
		sizes[pool.Selector.String()] = 0
		for _, node := range o.Nodes {
			if pool.Selector.Matches(labels.Set(node.Labels)) {
				sizes[pool.Selector.String()]++
			}
		}
	}
	return sizes
}

// logSelections logs, at the first sync, what flags select. That can be something else than
// their author thinks: nothing, because of a typo, or for rack=12, all nodes with the label
// rack, 12 of which may be unavailable.
func (c *Controller) logSelections(ctx context.Context, o Observed) {
	if c.hasLogged {
		return
	}
	c.hasLogged = true
	logger, sizes := klog.FromContext(ctx), poolSizes(o)
	for _, pool := range o.Pools {
		selector := pool.Selector.String()
		message := "Pool of nodes"
		if sizes[selector] == 0 {
			message = "Pool of nodes is empty: check the selector"
		}
		logger.Info(message, "selector", selector, "nodes", sizes[selector], "maxUnavailable", pool.MaxUnavailable.String())
	}
	if c.alertRules == nil {
		return
	}
	switch rules, err := c.alertRules(ctx); {
	case err != nil:
		logger.Info("Cannot list the alerting rules of Prometheus", "err", err)
	case len(rules) == 0:
		logger.Info("No alerting rule of Prometheus matches -alerts: check the names, unless another Prometheus evaluates them", "alerts", c.config.Alerts)
	default:
		logger.Info("Alerts that hold reboots back", "rules", len(rules), "first", rules[:min(len(rules), maxListed)])
	}
}

// reasonsOf returns why nodes wait, by UID.
func reasonsOf(d Decision) map[types.UID]string {
	reasons := map[types.UID]string{}
	if d.Step == Choose || d.Step == Grant {
		reasons[d.Node.UID] = InLine
	}
	for _, w := range d.Waiting {
		reasons[w.Node.UID] = w.Reason
	}
	return reasons
}

// stateOf returns what happens to a node that needs a reboot and does not wait for it.
func stateOf(node *corev1.Node) string {
	if request.IsDeclined(node) {
		return Declined
	}
	return cmp.Or(usedBy(node), InLine)
}

// addGauges adds the gauges, which are counted from the cache whenever metrics are read.
func (c *Controller) addGauges() {
	metrics.Count("nodereboot_waiting_nodes", "Nodes that need a reboot and may not have it yet, by reason.", []string{"reason"}, func(add func(float64, ...string)) {
		n := map[string]float64{}
		for _, reason := range reasonsOf(Decide(c.observe())) {
			n[reason]++
		}
		for _, reason := range Reasons {
			add(n[reason], reason)
		}
	})
	metrics.Count("nodereboot_needed_seconds", "How long a node has needed a reboot, with the reason why it waits or what is happening.", []string{"node", "reason"}, func(add func(float64, ...string)) {
		o := c.observe()
		reasons := reasonsOf(Decide(o))
		for _, node := range o.Nodes {
			since, isNeeded := o.NeededSince[node.UID]
			if reason := cmp.Or(reasons[node.UID], stateOf(node)); isNeeded && !since.After(o.Now) {
				add(o.Now.Sub(since).Seconds(), node.Name, reason)
			}
		}
	})
	metrics.Count("nodereboot_unavailable_seconds", "How long a node has counted as unavailable, with the reason.", []string{"node", "reason"}, func(add func(float64, ...string)) {
		now, nodes := time.Now(), c.observe().Nodes
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, node := range nodes {
			if used, isUsed := c.usedSince[node.UID]; isUsed {
				add(now.Sub(used.since).Seconds(), node.Name, used.reason)
			}
		}
	})
	metrics.Count("nodereboot_unavailable_nodes", "Nodes that count as unavailable, by reason.", []string{"reason"}, func(add func(float64, ...string)) {
		n := map[string]float64{}
		for _, u := range Decide(c.observe()).Unavailable {
			n[u.Reason]++
		}
		for _, reason := range Unavailabilities {
			add(n[reason], reason)
		}
	})
	metrics.Count("nodereboot_pool_nodes", "Nodes of each pool of -pool.", []string{"pool"}, func(add func(float64, ...string)) {
		for pool, nodes := range poolSizes(c.observe()) {
			add(float64(nodes), pool)
		}
	})
	metrics.Count("nodereboot_budget_nodes", "How many nodes may be unavailable.", nil, func(add func(float64, ...string)) {
		add(float64(Decide(c.observe()).Budget))
	})
}
