package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned"
	informers "nicoleh.io/k8s-controller/examples/database/generated/informers/externalversions/database/v1alpha1"
	listers "nicoleh.io/k8s-controller/examples/database/generated/listers/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller keeps a StatefulSet for each Database, and reports its progress in the Database's status. The steps of a
// sync are
//
//	ensure caches ready → observe → Decide → act → Status → report
//
// Decide and Status contain all rules, and are pure. The controller writes StatefulSets, the status of Databases, and
// events. It never writes the spec of a Database, or anyone else's StatefulSet.
type Controller struct {
	*worker.Loop

	client       versioned.Interface
	kube         kubernetes.Interface
	recorder     record.EventRecorder
	metrics      metrics.Controller
	databases    listers.DatabaseLister
	statefulSets appslisters.StatefulSetLister
	writes       *consistency.Store // what the caches must show before the next sync
	attempts     pace.Attempts      // the last write for each Database
}

var (
	databaseResource    = v1alpha1.Resource("databases")
	statefulSetResource = appsv1.Resource("statefulsets")
)

// NewController wires a controller to its clients and informers, and starts nothing.
func NewController(
	client versioned.Interface,
	kube kubernetes.Interface,
	recorder record.EventRecorder,
	databases informers.TypedDatabaseInformer,
	statefulSets appsinformers.TypedStatefulSetInformer,
) (*Controller, error) {
	c := &Controller{
		client:       client,
		kube:         kube,
		recorder:     recorder,
		metrics:      metrics.For("database"),
		databases:    databases.Lister(),
		statefulSets: statefulSets.Lister(),
	}
	c.Loop = worker.New("database", c.sync)
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{
		databaseResource:    databases.Informer().GetStore(),
		statefulSetResource: statefulSets.Informer().GetStore(),
	})
	databaseHandler, errDatabases := databases.TypedInformer().AddTypedEventHandler(worker.Follow(func(db *v1alpha1.Database) {
		c.Add(cache.MetaObjectToName(db))
	}))
	// Sync the Database with the name of the StatefulSet, even if it does not own the StatefulSet.
	setHandler, errSets := statefulSets.TypedInformer().AddTypedEventHandler(worker.Follow(func(s *appsv1.StatefulSet) {
		c.Add(cache.MetaObjectToName(s))
	}))
	if err := errors.Join(errDatabases, errSets, statefulSets.Informer().SetTransform(strip)); err != nil {
		return nil, fmt.Errorf("setting up the informers: %w", err)
	}
	c.WaitFor(databaseHandler.HasSyncedChecker(), setHandler.HasSyncedChecker())
	return c, nil
}

// sync brings one Database closer to what its spec asks for.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Deferred(err)
	}
	observed, err := c.observe(name)
	if err != nil {
		return 0, err
	}
	if observed.Database == nil {
		c.writes.Clear(name)
		c.attempts.Forget(name)
		return 0, nil
	}
	if observed.Database.DeletionTimestamp != nil {
		return 0, nil // Its StatefulSet is left to the garbage collector.
	}
	plan := Decide(observed)
	isDue := plan.Request != nil && plan.Wait == 0
	if isDue {
		if observed, err = c.act(ctx, observed, plan); err != nil {
			return 0, err
		}
	}
	if err := c.report(ctx, observed.Database, Status(observed, plan)); err != nil {
		return 0, err
	}
	if plan.Request == nil {
		c.attempts.Settle(observed.Database)
		return 0, nil
	}
	// Look again when the same request could be sent: an accepted write that changed nothing causes no event.
	requeueAfter = observed.Last.Wait(plan.Wish, observed.Now)
	if isDue {
		return requeueAfter, worker.NoBackoff(observed.Last.Failure)
	}
	return requeueAfter, nil
}

// observe reads a Database and its StatefulSet from the caches. o.Database is nil if it is gone.
func (c *Controller) observe(name cache.ObjectName) (o Observed, err error) {
	o.Now = time.Now()
	o.Database, err = c.databases.Databases(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return Observed{}, nil
	} else if err != nil {
		return o, err
	}
	o.Last = c.attempts.Last(o.Database)
	o.Undecodable = lenient.DecodeError(o.Database, "spec")
	o.Live, err = c.statefulSets.StatefulSets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		o.Live, err = nil, nil
	}
	return o, err
}

// act sends the request of a plan and returns the new observation. A refusal is not an error: the status reports it.
func (c *Controller) act(ctx context.Context, o Observed, plan Plan) (Observed, error) {
	if o.Live == nil {
		if err := c.recheckLive(ctx, o.Database); err != nil {
			return o, err
		}
	}
	statefulSets, name := c.kube.AppsV1().StatefulSets(o.Database.Namespace), o.Database.Name
	stored, err := statefulSets.Patch(ctx, name, plan.Request.Type, plan.Request.Body, plan.Request.Options(fieldManager))
	switch {
	case response.IsStale(err, statefulSetResource, name), o.Live == nil && response.IsTaken(err):
		return o, worker.Deferred(err)
	case err == nil:
		c.writes.WroteAt(cache.MetaObjectToName(o.Database), statefulSetResource, stored.ResourceVersion)
		if o.Live == nil {
			c.recorder.Eventf(o.Database, corev1.EventTypeNormal, "Created", "Created StatefulSet %q", name)
		}
		o.Live = stored
	case !response.IsRefusal(err):
		return o, fmt.Errorf("writing StatefulSet %q: %w", name, err)
	}
	o.Last = o.Last.Then(plan.Wish, err, time.Now())
	c.attempts.Note(o.Database, o.Last)
	return o, nil
}

// recheckLive reads the Database from the API server, and returns an error if it is gone or being deleted. When a
// Database and its StatefulSet are deleted, the caches can show first that the StatefulSet is gone.
func (c *Controller) recheckLive(ctx context.Context, cached *v1alpha1.Database) error {
	live, err := c.client.DatabaseV1alpha1().Databases(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return worker.Deferred(err)
	case err != nil:
		return fmt.Errorf("checking that the Database still exists: %w", err)
	case live.UID != cached.UID || live.DeletionTimestamp != nil:
		return worker.Deferred(errors.New("the cache does not show the latest Database yet"))
	}
	return nil
}

// report writes the status if it has changed, and then records an event. The UID and the resource version are
// preconditions, so an old status never replaces a newer one.
func (c *Controller) report(ctx context.Context, db *v1alpha1.Database, status v1alpha1.DatabaseStatus) error {
	if equality.Semantic.DeepEqual(db.Status, status) {
		return nil
	}
	want := db.DeepCopy()
	want.Status = status
	updated, err := c.client.DatabaseV1alpha1().Databases(db.Namespace).UpdateStatus(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	c.metrics.StatusWrite(err)
	if response.IsStale(err, databaseResource, db.Name) {
		return worker.Deferred(err)
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	c.writes.WroteAt(cache.MetaObjectToName(db), databaseResource, updated.ResourceVersion)
	if eventType, reason, message := EventOf(db.Status, status); eventType != "" {
		c.recorder.Event(db, eventType, reason, message)
	}
	return nil
}
