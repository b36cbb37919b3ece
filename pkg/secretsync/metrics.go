package secretsync

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var writes = metrics.NewCounterVec(&metrics.CounterOpts{
	Subsystem:      Name,
	Name:           "writes_total",
	Help:           "Copies of Secrets that were written, by action: create, update, replace (which is a deletion and a creation) or delete.",
	StabilityLevel: metrics.ALPHA,
}, []string{"action"})

// register has every series exist, at zero, so that no rate misses the first write.
var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(writes)
	for _, action := range []Action{Create, Update, Replace, Delete} {
		writes.WithLabelValues(string(action))
	}
})
