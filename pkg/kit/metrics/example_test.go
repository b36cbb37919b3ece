package metrics_test

import (
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

func Example() {
	greeted := metrics.NewTotal("greeter_pods_total", "Pods that were greeted.", "")

	m, start := metrics.For("greeter"), time.Now()
	greeted.Inc()
	m.Sync(metrics.Synced, time.Since(start))
}
