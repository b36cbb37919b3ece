// Package podtimestamp gives Pods that ask for it a timestamp, exactly once: one
// with the annotation "addtime", whatever its value, gets the annotation
// "timestamp".
//
// It decides which Pods ask and have none, from their metadata alone. It writes
// that annotation, and events about it. It never changes a timestamp that is
// there, whoever put it there, and never writes to a Pod that is being deleted or
// is the mirror of a static one.
//
// One sync of one Pod goes
//
//	fresh → observe → decide → act → events
//
// as that of an Icecream does; there is no status to report.
package podtimestamp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is that of the controller, wherever it has to be named.
const Name = "podtimestamp"

const fieldManager = Name + "-controller"

// Resource is what it works on.
var Resource = corev1.SchemeGroupVersion.WithResource("pods")

// Config is what an operator can choose: nothing, so far.
type Config struct{}

// The reasons of its events.
const (
	ReasonStamped = "Stamped"
	ReasonRefused = "StampRefused"
	ReasonDropped = "StampDropped" // the API server has stored no timestamp, and said that all is well
)

// Controller stamps Pods.
type Controller struct {
	*worker.Loop

	client   metadata.Interface
	pods     metadatalister.Lister
	recorder events.EventRecorder
	clock    clock.WithTicker
	metrics  metrics.Controller
	stamps   metrics.Total

	writes  *consistency.Store
	refused sync.Map // by name, the UIDs of Pods whose stamp was refused or dropped, which has been told
}

// NewController wires a controller to its informer, of the metadata of Pods, and starts
// nothing.
func NewController(_ Config, client metadata.Interface, pods kubeinformers.GenericInformer, recorder events.EventRecorder, clock clock.WithTicker) (*Controller, error) {
	c := &Controller{
		client:   client,
		pods:     metadatalister.New(pods.Informer().GetIndexer(), Resource),
		recorder: recorder,
		clock:    clock,
		metrics:  metrics.For(Name),
		stamps:   metrics.NewTotal("podtimestamp_stamps_total", "Timestamps given to Pods.", ""),
	}
	c.Loop = worker.New(Name, c.sync, worker.WithClock(clock), worker.WithObserver(c.metrics.Sync), worker.WithKeys(c.asking))
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{Resource.GroupResource(): pods.Informer().GetStore()})

	if err := pods.Informer().SetTransform(informer.Stripped(strip)); err != nil {
		return nil, fmt.Errorf("setting up the cache: %w", err)
	}
	registration, err := pods.Informer().AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: mayAsk,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    follow(c.AddUrgent), // asks only now
			UpdateFunc: func(_, pod any) { follow(c.Add)(pod) },
			DeleteFunc: follow(c.AddUrgent), // asks no longer
		},
	})
	if err != nil {
		return nil, fmt.Errorf("following events: %w", err)
	}
	c.WaitFor(registration.HasSyncedChecker())
	return c, nil
}

// sync gives one Pod its timestamp if it is to have one.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Requeue(err)
	}

	pod, err := c.pods.Namespace(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.refused.Delete(name)
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	observed := Observed{Now: c.clock.Now(), Pod: pod}

	decision := Decide(observed)
	if decision.Timestamp == "" {
		c.refused.Delete(name)
		return 0, nil
	}

	timestamp, err := c.stamp(ctx, name, observed, decision)
	c.tell(name, observed, timestamp, err)
	return 0, err
}

// errDropped says that the Pod was stored without its timestamp.
var errDropped = errors.New("the API server has accepted the annotation " + AnnotationTimestamp + " and not stored it, by an admission policy or webhook")

// stamp writes what was decided, if the Pod is still as the cache shows it, and returns
// the timestamp that was stored.
func (c *Controller) stamp(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (timestamp string, err error) {
	patch, err := Patch(o, d)
	if err != nil {
		return "", err
	}
	stamped, err := c.client.Resource(Resource).Namespace(name.Namespace).
		Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if informer.IsBehind(err) {
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

// tell records what became of the decision: that the Pod is stamped, or, for the
// first time of possibly many, that somebody does not allow it.
func (c *Controller) tell(name cache.ObjectName, o Observed, timestamp string, err error) {
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: name.Namespace, Name: name.Name, UID: o.Pod.UID, ResourceVersion: o.Pod.ResourceVersion}
	switch {
	case err == nil:
		c.refused.Delete(name)
		c.recorder.Eventf(pod, nil, corev1.EventTypeNormal, ReasonStamped, "Stamp", "Set annotation %s to %s", AnnotationTimestamp, timestamp)
	case errors.Is(err, errDropped):
		c.warn(pod, name, ReasonDropped, err)
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		c.warn(pod, name, ReasonRefused, err)
	}
}

// warn tells, once for each Pod, that it does not get a timestamp.
func (c *Controller) warn(pod *corev1.ObjectReference, name cache.ObjectName, reason string, err error) {
	if told, _ := c.refused.Swap(name, pod.UID); told != pod.UID {
		c.recorder.Eventf(pod, nil, corev1.EventTypeWarning, reason, "Stamp", "Trying on: %v", err)
	}
}

// follow adds the name of a Pod that something has happened to.
func follow(add func(cache.ObjectName)) func(pod any) {
	return func(pod any) {
		name, err := cache.DeletionHandlingObjectToName(pod)
		if err != nil {
			utilruntime.HandleError(err)
			return
		}
		add(name)
	}
}

// asking are the names of the Pods in the cache that ask for a timestamp.
func (c *Controller) asking(yield func(cache.ObjectName) bool) {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(err)
	}
	for _, pod := range pods {
		if isAsking(pod) && !yield(cache.MetaObjectToName(pod)) {
			return
		}
	}
}

// mayAsk keeps the Pods that do not ask for anything out of the queue: most do not.
// One that no longer asks, or is gone, is followed for the last time.
func mayAsk(obj any) bool {
	pod, isKnown := obj.(*metav1.PartialObjectMetadata)
	return !isKnown || isAsking(pod)
}
