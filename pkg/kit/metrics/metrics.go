// Package metrics defines the Prometheus metrics that all controllers have.
//
// They are in the same registry as those of client-go (work queues and requests to the API
// server), of package leader, of the Go runtime, and of the process. Every series of a controller
// exists, at zero, from the first call of [For] with its name, so that a rate over it
// never misses the first event.
package metrics

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/fifo" // queues of informers
	_ "k8s.io/component-base/metrics/prometheus/restclient"    // requests
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

const subsystem = "controller"

var (
	syncDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem:      subsystem,
		Name:           "sync_duration_seconds",
		Help:           "How long the syncs of single objects took, by controller and result.",
		Buckets:        metrics.ExponentialBuckets(0.001, 2.5, 12), // 1 ms to 24 s
		StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "result"})
	syncPanics = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "sync_panics_total",
		Help:           "Panics in syncs, all of which were recovered from, by controller.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"controller"})
	staleCacheWaits = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "stale_cache_waits_total",
		Help:           "Syncs deferred because the caches did not yet show the controller's own last writes, by controller.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"controller"})
	statusWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem:      subsystem,
		Name:           "status_writes_total",
		Help:           "Status writes, by controller and result.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "result"})
	cacheLastHeard = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "cache_last_heard_timestamp_seconds",
		Help:           "When each cache last heard from the API server, by an event, a bookmark (about one a minute) or a list, in seconds since 1970; before the first time, when the process started. By controller, resource and, where the cache does not hold all of the resource, label selector.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "resource", "selector"})
	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Subsystem:      subsystem,
		Name:           "build_info",
		Help:           "Always 1; the labels say what is running.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"version", "commit", "go_version", "platform"})
)

// The results of writing a status.
const (
	success  = "success"
	conflict = "conflict"
	failure  = "error"
)

var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(syncDuration, syncPanics, staleCacheWaits, statusWrites, cacheLastHeard, buildInfo)
})

// Controller is the metrics of one controller. Its methods are safe for concurrent use.
type Controller struct{ name string }

// For returns the metrics of the controller of that name.
func For(name string) Controller {
	register()
	for _, result := range worker.Results {
		syncDuration.WithLabelValues(name, string(result))
	}
	syncPanics.WithLabelValues(name)
	staleCacheWaits.WithLabelValues(name)
	for _, result := range []string{success, conflict, failure} {
		statusWrites.WithLabelValues(name, result)
	}
	return Controller{name}
}

// Sync counts a finished sync; it is an observer for a worker.Loop.
func (c Controller) Sync(o worker.Outcome) {
	syncDuration.WithLabelValues(c.name, string(o.Result)).Observe(o.Took.Seconds())
	if o.Result == worker.Panicked {
		syncPanics.WithLabelValues(c.name).Inc()
	}
}

// StaleCacheWait returns the error that a sync ends with if err says that a cache is stale
// (see consistency.Store.EnsureReady), and counts that sync as deferred. It returns nil,
// and counts nothing, if err is nil.
func (c Controller) StaleCacheWait(err error) error {
	if err == nil {
		return nil
	}
	staleCacheWaits.WithLabelValues(c.name).Inc()
	return worker.Requeue(err)
}

// StatusWrite counts a status write and its result, err.
func (c Controller) StatusWrite(err error) {
	result := failure
	switch {
	case err == nil:
		result = success
	case apierrors.IsConflict(err):
		result = conflict
	}
	statusWrites.WithLabelValues(c.name, result).Inc()
}

// CacheHeard sets the time when the controller's cache of a resource, restricted by a label
// selector, last heard from the API server.
func (c Controller) CacheHeard(resource, selector string, at time.Time) {
	cacheLastHeard.WithLabelValues(c.name, resource, selector).Set(float64(at.UnixMilli()) / 1000)
}

// Build sets the labels of build_info.
func Build(version, commit string) {
	register()
	buildInfo.WithLabelValues(version, commit, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH).Set(1)
}

// Total is a counter that only one controller has.
type Total struct{ counter *metrics.CounterVec }

// NewTotal returns the counter of that name, which exists only once in the process. If
// label is not empty, the counter has that label, and a series for each of the values
// from the start.
func NewTotal(name, help, label string, values ...string) Total {
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	c, isKnown := totals.LoadOrStore(name, metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels))
	total := Total{c.(*metrics.CounterVec)}
	if isKnown {
		return total
	}
	legacyregistry.MustRegister(total.counter)
	if label == "" {
		total.counter.WithLabelValues()
	}
	for _, value := range values {
		total.counter.WithLabelValues(value)
	}
	return total
}

// Inc adds one to the counter, or to its series with that value if it has a label. It is
// safe for concurrent use.
func (t Total) Inc(value ...string) { t.counter.WithLabelValues(value...).Inc() }

var totals sync.Map // *metrics.CounterVec by name

// Count defines a gauge whose values count returns at each scrape: it calls add with the
// number for each combination of label values. It must be fast, and safe for concurrent
// use. A second call of Count with the same name replaces the function of the first.
func Count(name, help string, labels []string, count func(add func(n int, values ...string))) {
	c, isKnown := counts.LoadOrStore(name, &counted{desc: metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")})
	c.(*counted).count.Store(&count)
	if !isKnown {
		legacyregistry.CustomMustRegister(c.(*counted))
	}
}

var counts sync.Map // *counted by name

// counted is the collector of a gauge that is counted at each scrape.
type counted struct {
	metrics.BaseStableCollector
	desc  *metrics.Desc
	count atomic.Pointer[func(add func(n int, values ...string))]
}

// DescribeWithStability implements metrics.StableCollector.
func (c *counted) DescribeWithStability(descs chan<- *metrics.Desc) { descs <- c.desc }

// CollectWithStability implements metrics.StableCollector.
func (c *counted) CollectWithStability(found chan<- metrics.Metric) {
	(*c.count.Load())(func(n int, values ...string) {
		found <- metrics.NewLazyConstMetric(c.desc, metrics.GaugeValue, float64(n), values...)
	})
}
