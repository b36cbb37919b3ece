package metrics_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"

	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// A loop counts its syncs, and the controller has a counter of its own.
func Example() {
	served := metrics.NewTotal("cones_served_total", "Cones that were served, by flavor.", "flavor", "mint", "vanilla")
	sync := func(context.Context, cache.ObjectName) (time.Duration, error) {
		served.Inc("mint")
		return 0, nil
	}
	_ = worker.New("cones", sync)
	if _, err := sync(context.Background(), cache.ObjectName{}); err != nil {
		fmt.Println(err)
	}

	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if family.GetName() == "cones_served_total" {
			for _, series := range family.GetMetric() {
				fmt.Println(series.GetLabel()[0].GetValue(), series.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// mint 1
	// vanilla 0
}
