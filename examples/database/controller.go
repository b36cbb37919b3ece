package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned"
	informers "nicoleh.io/k8s-controller/examples/database/generated/informers/externalversions/database/v1alpha1"
	listers "nicoleh.io/k8s-controller/examples/database/generated/listers/database/v1alpha1"
	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller gives each Database its StatefulSet and reports back what became of it. One
// sync of one Database goes
//
//	ensure caches ready → observe → Decide → act → Status → report
type Controller struct {
	*worker.Loop

	client       versioned.Interface
	kube         kubernetes.Interface
	databases    listers.DatabaseLister
	statefulSets appslisters.StatefulSetLister
	writes       *consistency.Store // what the caches must show before the next sync
}

var (
	databaseResource    = v1alpha1.Resource("databases")
	statefulSetResource = appsv1.Resource("statefulsets")
)

// NewController wires a controller to its clients and informers, and starts nothing.
func NewController(
	client versioned.Interface,
	kube kubernetes.Interface,
	databases informers.TypedDatabaseInformer,
	statefulSets appsinformers.TypedStatefulSetInformer,
) (*Controller, error) {
	c := &Controller{client: client, kube: kube, databases: databases.Lister(), statefulSets: statefulSets.Lister()}
	c.Loop = worker.New("database", c.sync)
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{
		databaseResource:    databases.Informer().GetStore(),
		statefulSetResource: statefulSets.Informer().GetStore(),
	})
	ofDatabases, errDatabases := databases.TypedInformer().AddTypedEventHandler(worker.Follow(func(db *v1alpha1.Database) { c.Add(cache.MetaObjectToName(db)) }))
	// Sync the Database with the name of the StatefulSet, even if it does not own the StatefulSet.
	ofSets, errSets := statefulSets.TypedInformer().AddTypedEventHandler(worker.Follow(func(s *appsv1.StatefulSet) { c.Add(cache.MetaObjectToName(s)) }))
	if err := errors.Join(errDatabases, errSets, statefulSets.Informer().SetTransform(strip)); err != nil {
		return nil, fmt.Errorf("setting up the informers: %w", err)
	}
	c.WaitFor(ofDatabases.HasSyncedChecker(), ofSets.HasSyncedChecker())
	return c, nil
}

// sync brings one Database closer to what its spec asks for.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		return 0, worker.Deferred(err)
	}
	observed, err := c.observe(name)
	if err != nil {
		return 0, err
	}
	if observed.Database == nil {
		c.writes.Clear(name)
		return 0, nil
	}
	plan, err := Decide(observed)
	if err != nil {
		return 0, err
	}
	if observed, err = c.act(ctx, observed, plan); err != nil {
		return 0, err
	}
	if err := c.report(ctx, observed.Database, Status(observed, plan)); err != nil {
		return 0, err
	}
	return 0, observed.Refusal // which is retried, with a back-off
}

// observe reads from the caches what there is to know about a Database. If the Database is
// gone, the result has none.
func (c *Controller) observe(name cache.ObjectName) (o Observed, err error) {
	o.Now = time.Now()
	o.Database, err = c.databases.Databases(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return Observed{}, nil
	} else if err != nil {
		return o, err
	}
	o.Undecodable = lenient.DecodeError(o.Database, "spec")
	o.Live, err = c.statefulSets.StatefulSets(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		o.Live, err = nil, nil
	}
	return o, err
}

// act carries out a plan and returns what is known then.
func (c *Controller) act(ctx context.Context, o Observed, plan Plan) (Observed, error) {
	if plan.Request == nil {
		return o, nil
	}
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
	case response.IsRefusal(err):
		o.Refusal = err
	case err != nil:
		return o, fmt.Errorf("writing StatefulSet %q: %w", name, err)
	default:
		o.Live = stored
		c.writes.WroteAt(cache.MetaObjectToName(o.Database), statefulSetResource, stored.ResourceVersion)
	}
	return o, nil
}

// recheckLive returns an error unless the Database still exists: its StatefulSet may be
// missing because both were deleted, and the caches may show that in another order.
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

// report writes the status if it differs from the present one. The UID and the resource
// version are preconditions, so a stale cache cannot bring back the past.
func (c *Controller) report(ctx context.Context, db *v1alpha1.Database, status v1alpha1.DatabaseStatus) error {
	if equality.Semantic.DeepEqual(db.Status, status) {
		return nil
	}
	want := db.DeepCopy()
	want.Status = status
	updated, err := c.client.DatabaseV1alpha1().Databases(db.Namespace).UpdateStatus(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	if response.IsStale(err, databaseResource, db.Name) {
		return worker.Deferred(err)
	}
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	c.writes.WroteAt(cache.MetaObjectToName(db), databaseResource, updated.ResourceVersion)
	return nil
}
