package secretsync

import (
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

func newWritten() metrics.Total {
	return metrics.NewTotal("secretsync_writes_total", "Writes of copies of Secrets, by action: create, update, replace (which is a deletion and a creation) or delete.", "action", string(Create), string(Update), string(Replace), string(Delete))
}

// addGauges adds the gauges, which are counted whenever metrics are read.
func (c *Controller) addGauges() {
	metrics.Count("secretsync_copies", "Copies of Secrets that exist and belong to this instance.", nil, func(add func(n int, values ...string)) {
		ours := 0
		for secret := range c.copies.All() {
			if c.config.isOurs(secret) {
				ours++
			}
		}
		add(ours)
	})
	metrics.Count("secretsync_troubles", "Copies of Secrets that cannot be created, corrected or deleted, or do not stay as they were written, by reason; and sources that no namespace may have (NoReceivers).", []string{"reason"}, func(add func(n int, values ...string)) {
		counts := c.memories.count()
		for _, reason := range []string{ReasonNameTaken, ReasonFailed, ReasonAltered, ReasonContested, ReasonTerminating, ReasonHeld, ReasonNoReceivers} {
			add(counts[reason], reason)
		}
	})
	metrics.Count("secretsync_unclear_annotations", "Sources and namespaces whose annotation means neither yes nor no.", nil, func(add func(n int, values ...string)) {
		add(c.memories.count()[ReasonUnclear])
	})
}
