// Command podtimestamp gives each Pod that asks for one a timestamp, exactly once: a Pod
// with the annotation "addtime", unless its value means no, gets the annotation "timestamp".
//
// It reads only the metadata of Pods, and writes only that annotation and events about it.
// It never changes an existing timestamp, even if someone else set it, and never writes to a
// Pod that is being deleted or that mirrors a static Pod.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is the controller's name in flags, logs, metrics and events.
const Name = "podtimestamp"

const fieldManager = Name + "-controller"

// The reasons of the events, which are about Pods.
const (
	ReasonStamped = "Stamped"      // the Pod has its timestamp
	ReasonRefused = "StampRefused" // the API server refuses the timestamp
	ReasonDropped = "StampDropped" // the API server accepts the timestamp but does not store it
)

// Resource is the resource that the controller watches and patches.
var Resource = corev1.SchemeGroupVersion.WithResource("pods")

var stampsTotal = promauto.With(legacyregistry.Registerer()).NewCounter(prometheus.CounterOpts{
	Name: "podtimestamp_stamps_total",
	Help: "Timestamps given to Pods.",
})

// Controller stamps Pods. A sync of one Pod goes
//
//	EnsureReady → get → Decide → wait → patch → report
type Controller struct {
	*worker.Loop

	client   metadata.Interface
	pods     metadatalister.Lister
	recorder record.EventRecorder
	metrics  metrics.Controller
	writes   *consistency.Store
	attempts pace.Attempts
}

// NewController wires a controller to an informer of the metadata of Pods, and starts
// nothing.
func NewController(client metadata.Interface, informer cache.SharedIndexInformer, recorder record.EventRecorder) (*Controller, error) {
	c := &Controller{
		client:   client,
		pods:     metadatalister.New(informer.GetIndexer(), Resource),
		recorder: recorder,
		metrics:  metrics.For(Name),
		writes:   consistency.New(map[schema.GroupResource]consistency.Seen{Resource.GroupResource(): informer.GetStore()}),
	}
	c.Loop = worker.New(Name, c.sync)
	if err := informer.SetTransform(strip); err != nil {
		return nil, err
	}
	pods := cache.NewTypedSharedIndexInformer[*metav1.PartialObjectMetadata](informer)
	registration, err := pods.AddTypedEventHandler(worker.FollowBoth(func(pod *metav1.PartialObjectMetadata) {
		if isAsking(pod) {
			c.Add(cache.MetaObjectToName(pod))
		}
	}))
	if err != nil {
		return nil, err
	}
	c.WaitFor(registration.HasSyncedChecker())
	return c, nil
}

// strip is the transform of the cache. It keeps only what is read here, so that every Pod
// takes the same memory. It drops the values of annotations, and with them an "addtime" that
// means no.
func strip(obj any) (any, error) {
	pod, isPod := obj.(*metav1.PartialObjectMetadata)
	if !isPod {
		return obj, nil
	}
	stripped := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace:         pod.Namespace,
		Name:              pod.Name,
		UID:               pod.UID,
		ResourceVersion:   pod.ResourceVersion,
		DeletionTimestamp: pod.DeletionTimestamp,
	}}
	for _, annotation := range []string{AnnotationAddTime, AnnotationTimestamp, corev1.MirrorPodAnnotationKey} {
		if has(pod, annotation) && (annotation != AnnotationAddTime || isAsking(pod)) {
			metav1.SetMetaDataAnnotation(&stripped.ObjectMeta, annotation, "")
		}
	}
	return stripped, nil
}

// sync gives one Pod its timestamp if it needs one.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Deferred(err)
	}
	pod, err := c.pods.Namespace(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if pod == nil || !isAsking(pod) {
		c.attempts.Forget(name)
		return 0, nil
	}
	now := time.Now()
	timestamp := Decide(pod, now)
	if timestamp == "" {
		c.attempts.Settle(pod)
		return 0, nil
	}
	if wait := c.attempts.Last(pod).Wait(stamping, now); wait > 0 {
		return wait, nil
	}
	return c.report(pod, c.stamp(ctx, pod, timestamp))
}

// stamping is the wish for a timestamp. Each attempt can set another one.
var stamping = pace.Wish{Digest: AnnotationTimestamp}

// errDropped means that the Pod was stored without its timestamp. It counts as a refusal, because someone can fix that.
var errDropped error = &apierrors.StatusError{ErrStatus: metav1.Status{
	Code:    http.StatusUnprocessableEntity,
	Message: "the API server accepted the annotation " + AnnotationTimestamp + " but an admission policy or webhook kept it from being stored",
}}

// stamp sets the annotation if the Pod is still as the cache shows it.
func (c *Controller) stamp(ctx context.Context, pod *metav1.PartialObjectMetadata, timestamp string) error {
	body, err := patch.Merge(pod, map[string]*string{AnnotationTimestamp: &timestamp}, nil)
	if err != nil {
		return err
	}
	stamped, err := c.client.Resource(Resource).Namespace(pod.Namespace).
		Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("setting annotation %s: %w", AnnotationTimestamp, err)
	}
	c.writes.WroteAt(cache.MetaObjectToName(pod), Resource.GroupResource(), stamped.ResourceVersion)
	if !isStamped(stamped) {
		return errDropped
	}
	stampsTotal.Inc()
	c.recorder.Eventf(reference(pod), corev1.EventTypeNormal, ReasonStamped, "Set annotation %s to %s", AnnotationTimestamp, stamped.Annotations[AnnotationTimestamp])
	return nil
}

func reference(pod *metav1.PartialObjectMetadata) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// report notes the outcome of a stamp, and records an event about the first of several refusals in a row.
func (c *Controller) report(pod *metav1.PartialObjectMetadata, err error) (requeueAfter time.Duration, _ error) {
	if response.IsStale(err, Resource.GroupResource(), pod.Name) {
		return 0, worker.Deferred(err)
	}
	now := time.Now()
	last := c.attempts.Last(pod).Then(stamping, err, now)
	c.attempts.Note(pod, last)
	if !response.IsRefusal(err) {
		return 0, err
	}
	if last.Count == 1 {
		reason := ReasonRefused
		if errors.Is(err, errDropped) {
			reason = ReasonDropped
		}
		c.recorder.Eventf(reference(pod), corev1.EventTypeWarning, reason, "Retrying: %v", err)
	}
	return last.Wait(stamping, now), worker.NoBackoff(err)
}
