package podtimestamp

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/news"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is the controller's name in flags, logs, metrics and events.
const Name = "podtimestamp"

const fieldManager = Name + "-controller"

// Resource is the resource that the controller watches and patches.
var Resource = corev1.SchemeGroupVersion.WithResource("pods")

// Controller stamps Pods. One sync of one Pod goes
//
//	ensureCachesReady → observe → decide → act → report
//
// Unlike for an Icecream, there is no status: what there is to report are events.
type Controller struct {
	*worker.Loop

	client   metadata.Interface
	pods     informer.Cache[*metav1.PartialObjectMetadata]
	recorder events.EventRecorder
	clock    clock.WithTicker
	metrics  metrics.Controller
	stamps   metrics.Total

	writes   *consistency.Store
	warnings news.Store[cache.ObjectName, types.UID] // Pods about which a warning was recorded
}

// NewController wires a controller to its informer of Pod metadata, and starts nothing.
func NewController(_ Config, client metadata.Interface, pods informer.Cache[*metav1.PartialObjectMetadata], recorder events.EventRecorder, clock clock.WithTicker) (*Controller, error) {
	c := &Controller{
		client:   client,
		pods:     pods,
		recorder: recorder,
		clock:    clock,
		metrics:  metrics.For(Name),
		stamps:   metrics.NewTotal("podtimestamp_stamps_total", "Timestamps given to Pods.", ""),
	}
	c.Loop = worker.New(Name, c.sync, worker.WithClock(clock), worker.WithObserver(c.metrics.Sync), worker.WithKeys(c.names))
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{Resource.GroupResource(): pods.GetStore()})
	if err := setTransform(pods); err != nil {
		return nil, fmt.Errorf("setting up the cache: %w", err)
	}
	if err := c.addHandlers(); err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	return c, nil
}

// sync gives one Pod its timestamp if it should have one.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.ensureCachesReady(name); err != nil {
		return 0, err
	}
	observed := c.observe(name)
	decision := Decide(observed)
	timestamp, err := c.act(ctx, name, observed, decision)
	return 0, c.report(name, observed, timestamp, err)
}

// ensureCachesReady returns an error while the cache does not show what the controller
// wrote last.
func (c *Controller) ensureCachesReady(name cache.ObjectName) error {
	return c.metrics.StaleCacheWait(c.writes.EnsureReady(name))
}

// observe reads the Pod from the cache.
func (c *Controller) observe(name cache.ObjectName) Observed {
	return Observed{Now: c.clock.Now(), Pod: c.pods.Get(name.Namespace, name.Name)}
}

// errDropped means that the Pod was stored without its timestamp.
var errDropped = errors.New("the API server accepted the annotation " + AnnotationTimestamp + " but an admission policy or webhook kept it from being stored")

// act sets the annotation if that was decided and the Pod is still as the cache shows
// it. It returns the timestamp that was stored; empty if there was nothing to do.
func (c *Controller) act(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (timestamp string, err error) {
	if d.Timestamp == "" {
		return "", nil
	}
	body, err := patch.Merge(o.Pod, map[string]*string{AnnotationTimestamp: &d.Timestamp}, nil)
	if err != nil {
		return "", err
	}
	stamped, err := c.client.Resource(Resource).Namespace(name.Namespace).
		Patch(ctx, name.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if response.IsStale(err) {
		return "", worker.Requeue(err)
	}
	if err != nil {
		return "", fmt.Errorf("setting annotation %s: %w", AnnotationTimestamp, err)
	}
	c.writes.WroteAt(name, Resource.GroupResource(), stamped.ResourceVersion)
	if !isStamped(stamped) {
		return "", errDropped
	}
	c.stamps.Inc()
	return stamped.Annotations[AnnotationTimestamp], nil
}

// report records that the Pod was stamped, or, once for each Pod, that something keeps
// it from being stamped. It returns err.
func (c *Controller) report(name cache.ObjectName, o Observed, timestamp string, err error) error {
	switch {
	case err == nil && timestamp == "":
		c.warnings.Forget(name) // nothing is wrong with a Pod that needs no timestamp
	case err == nil:
		c.warnings.Forget(name)
		c.record(name, o, corev1.EventTypeNormal, ReasonStamped, fmt.Sprintf("Set annotation %s to %s", AnnotationTimestamp, timestamp))
	case errors.Is(err, errDropped):
		c.warn(name, o, ReasonDropped, err)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		c.warn(name, o, ReasonRefused, err)
	}
	return err
}
