package main

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
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

const (
	// tellEvery is how often an event repeats why a node waits: events expire.
	tellEvery = 30 * time.Minute
	// maxTold is how many of the nodes that wait for the same reason have an event about it. When a window
	// opens, the reason changes for all nodes, and the queue of events has room for 1,000.
	maxTold = 20
)

// told is why a node waits, as last told.
type told struct {
	reason string
	at     time.Time
}

// recordStep records that a node may reboot, or no longer may.
func (c *Controller) recordStep(ctx context.Context, d Decision, step Step, node *corev1.Node) {
	klog.FromContext(ctx).Info("Took a step", "step", step.Action, "node", klog.KObj(node), "unavailable", len(d.Unavailable), "budget", d.Budget)
	switch step.Action {
	case Allow:
		grantsTotal.Inc()
		c.recorder.Eventf(node, corev1.EventTypeNormal, ReasonGranted, "Reboot granted: at most %d of %d nodes may be unavailable", d.Budget, d.Nodes)
	case TakeBack:
		c.recorder.Eventf(node, corev1.EventTypeWarning, ReasonTakenBack,
			"The grant until %s was taken back: it was not used in time, cannot be used, or is no longer wanted", step.Grant.Until.Format(time.RFC3339))
	case Choose, PassOver:
	}
}

// recordWaiting records why nodes wait, if the reason is new or was told long ago. For each reason, it does so for
// the first nodes by turn. It returns when to do so again; zero for never.
func (c *Controller) recordWaiting(ctx context.Context, waiting []Waiting) (again time.Duration) {
	before, now, times := c.told, time.Now(), map[string]int{}
	c.told = map[types.UID]told{}
	for _, w := range waiting {
		if times[w.Reason]++; times[w.Reason] > maxTold {
			continue
		}
		last := before[w.Node.UID]
		if last.reason != w.Reason || now.Sub(last.at) >= tellEvery {
			last = told{w.Reason, now}
			c.recorder.Eventf(w.Node.Node, corev1.EventTypeNormal, ReasonWaiting, "Waiting to reboot (%s): %s", w.Reason, w.Note)
			klog.FromContext(ctx).Info("Node waits to reboot", "node", klog.KObj(w.Node.Node), "reason", w.Reason, "note", w.Note)
		}
		c.told[w.Node.UID] = last
		again = tellEvery
	}
	return again
}

// addGauges adds the gauges, which are counted from the cache whenever metrics are read.
func (c *Controller) addGauges() {
	metrics.Count("nodereboot_needed_seconds", "How long a node has needed a reboot, with the reason why it waits or what is happening.", []string{"node", "reason"}, func(add func(float64, ...string)) {
		o := c.observe()
		reasons := map[types.UID]string{}
		for _, w := range Decide(o).Waiting {
			reasons[w.Node.UID] = w.Reason
		}
		for _, node := range o.Nodes {
			var since time.Time
			if node.Record != nil {
				since = node.Record.Since
			}
			seconds := 0.0 // its agent may not say since when
			if !since.IsZero() {
				seconds = max(0, o.Now.Sub(since).Seconds())
			}
			switch isDeclined := node.IsDeclined() && !since.IsZero(); {
			case node.IsNeeded(), cannotReboot(node), node.Stage() == request.AtWork, isDeclined, reasons[node.UID] != "":
				add(seconds, node.Name, cmp.Or(reasons[node.UID], stateOf(o, node)))
			}
		}
	})
	metrics.Count("nodereboot_unavailable", "1 for each node that counts as unavailable, with the reason.", []string{"node", "reason"}, func(add func(float64, ...string)) {
		for _, u := range Decide(c.observe()).Unavailable {
			add(1, u.Node.Name, u.Reason)
		}
	})
	metrics.Count("nodereboot_budget_nodes", "How many nodes may be unavailable.", nil, func(add func(float64, ...string)) {
		add(float64(Decide(c.observe()).Budget))
	})
}

// stateOf returns what happens to a node that needs a reboot and does not wait for it.
func stateOf(o Observed, node request.Node) string {
	if node.IsDeclined() {
		return Declined
	}
	return cmp.Or(o.unavailability(node), Chosen) // it will be with the next step
}
