package nodereboot

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// grants counts what was granted by this process.
var grants = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem:      Name,
	Name:           "grants_total",
	Help:           "Reboots that were granted to nodes.",
	StabilityLevel: metrics.ALPHA,
})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(grants) })
