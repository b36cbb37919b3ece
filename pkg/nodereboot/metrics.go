package nodereboot

import (
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

func newGrants() metrics.Total {
	return metrics.NewTotal("nodereboot_grants_total", "Reboots granted to nodes.", "")
}

// addGauges adds the gauges, which are counted from the cache whenever metrics are read.
func (c *Controller) addGauges() {
	decide := func() Decision {
		return Decide(c.observe())
	}
	metrics.Count("nodereboot_waiting_nodes", "Nodes that need a reboot and may not have it yet, by reason.", []string{"reason"}, func(add func(int, ...string)) {
		n := map[string]int{}
		d := decide()
		for _, w := range d.Waiting {
			n[w.Reason]++
		}
		if d.Step == Choose || d.Step == Grant {
			n[InLine]++
		}
		for _, reason := range Reasons {
			add(n[reason], reason)
		}
	})
	metrics.Count("nodereboot_unavailable_nodes", "Nodes that count as unavailable, by reason.", []string{"reason"}, func(add func(int, ...string)) {
		n := map[string]int{}
		for _, u := range decide().Unavailable {
			n[u.Reason]++
		}
		for _, reason := range Unavailabilities {
			add(n[reason], reason)
		}
	})
	metrics.Count("nodereboot_budget_nodes", "How many nodes may be unavailable.", nil, func(add func(int, ...string)) {
		add(decide().Budget)
	})
}
