// Package metrics defines the Prometheus metrics that all controllers have.
//
// They share a registry with the metrics of client-go (the election, work queues and
// requests), of the Go runtime, and of the process. Every series of a controller
// exists, at zero, from the first call of [For] with its name, so that a rate over it
// never misses the first event.
package metrics

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // election, queues and requests

	"nicoleh.io/k8s-controller/pkg/kit/response"
)

var (
	factory = promauto.With(legacyregistry.Registerer())

	syncDuration = factory.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "controller_sync_duration_seconds",
		Help:    "How long the syncs of single objects took, by controller and result.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12), // 1 ms to 24 s
	}, []string{"controller", "result"})
	staleCacheWaits = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "controller_stale_cache_waits_total",
		Help: "Syncs deferred because the caches did not yet show the controller's own last writes, by controller.",
	}, []string{"controller"})
	statusWrites = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "controller_status_writes_total",
		Help: "Status writes, by controller and result.",
	}, []string{"controller", "result"})
	buildInfo = factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "controller_build_info",
		Help: "Always 1; the labels say what is running.",
	}, []string{"version", "commit", "go_version", "platform"})
)

// Result says how one sync went.
type Result string

// All results of syncs.
const (
	Synced   Result = "synced"   // no error
	GaveUp   Result = "gave_up"  // an error that a retry cannot fix: reported
	Deferred Result = "deferred" // part of normal operation: retried, not reported
	Failed   Result = "failed"   // any other error: reported and retried
	Panicked Result = "panicked" // recovered: reported and retried
)

// The results of writing a status.
const (
	success  = "success"
	conflict = "conflict"
	failure  = "error"
)

// Controller is the metrics of one controller. Its methods are safe for concurrent use.
type Controller struct{ name string }

// For returns the metrics of the named controller.
func For(name string) Controller {
	for _, result := range []Result{Synced, GaveUp, Deferred, Failed, Panicked} {
		syncDuration.WithLabelValues(name, string(result))
	}
	staleCacheWaits.WithLabelValues(name)
	for _, result := range []string{success, conflict, failure} {
		statusWrites.WithLabelValues(name, result)
	}
	return Controller{name}
}

// Sync counts a finished sync.
func (c Controller) Sync(result Result, took time.Duration) {
	syncDuration.WithLabelValues(c.name, string(result)).Observe(took.Seconds())
}

// StaleCacheWait counts a sync that was deferred because a cache did not show the
// controller's own last write.
func (c Controller) StaleCacheWait() { staleCacheWaits.WithLabelValues(c.name).Inc() }

// StatusWrite counts a status write and its result, err.
func (c Controller) StatusWrite(err error) {
	result := failure
	switch {
	case err == nil:
		result = success
	case response.IsConflict(err):
		result = conflict
	}
	statusWrites.WithLabelValues(c.name, result).Inc()
}

// Build sets the labels of controller_build_info.
func Build(version, commit string) {
	buildInfo.WithLabelValues(version, commit, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH).Set(1)
}

// Count defines a gauge. At each scrape, count calls add with the number for each
// combination of label values. count must be fast, and safe for concurrent use. A later
// call of Count with the same name replaces the gauge.
func Count(name, help string, labels []string, count func(add func(n float64, values ...string))) {
	replacing.Lock()
	defer replacing.Unlock()
	c := counted{prometheus.NewDesc(name, help, labels, nil), count}
	legacyregistry.Registerer().Unregister(c)
	legacyregistry.Registerer().MustRegister(c)
}

var replacing sync.Mutex

// counted is the collector of a gauge that is counted at each scrape.
type counted struct {
	desc  *prometheus.Desc
	count func(add func(n float64, values ...string))
}

// Describe implements prometheus.Collector.
func (c counted) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector.
func (c counted) Collect(found chan<- prometheus.Metric) {
	c.count(func(n float64, values ...string) {
		found <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, n, values...)
	})
}
