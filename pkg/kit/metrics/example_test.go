package metrics_test

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/component-base/metrics/legacyregistry"

	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

// greeted is a metric that only this controller has.
var greeted = promauto.With(legacyregistry.Registerer()).NewCounter(prometheus.CounterOpts{
	Name: "greeter_pods_total",
	Help: "Pods that were greeted.",
})

func Example() {
	m, start := metrics.For("greeter"), time.Now()
	greeted.Inc()
	m.Sync(metrics.Synced, time.Since(start))
}
