// The Icecream controller. Read NewController, then sync and what it calls, from top to
// bottom. Skip the key functions at the end. The rules are in pkg/icecream: decide.go
// comes next, then status.go.

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	listers "nicoleh.io/k8s-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/pacing"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/text"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller gives each Icecream its Deployment and reports its state. The steps of a sync
// are
//
//	ensure caches ready → observe → Decide → act → Status → report
//
// A sync first makes sure that the caches show its last writes. Observe reads the caches
// and adds what is remembered from the last sync. Decide and Status belong to package
// icecream, which is pure and contains all rules: they say what to write and what to
// report. Act writes the Deployment, and report writes the status if it differs. Each
// records at most one event.
//
// The controller writes Deployments, the status of Icecreams, and events. It never writes a
// Pod, the spec of an Icecream, or a Deployment that is not its own.
type Controller struct {
	*worker.Loop

	config   Config
	client   versioned.Interface
	kube     kubernetes.Interface
	recorder record.EventRecorder
	metrics  metrics.Controller

	icecreams   listers.IcecreamLister
	deployments appslisters.DeploymentLister
	asking      cache.TypedIndexer[*v1alpha1.Icecream] // by the name of their Deployment, and by their label
	owned       cache.TypedIndexer[*appsv1.Deployment] // by namespace and the UID of their controller
	pods        cache.TypedIndexer[*corev1.Pod]        // by the label of their Icecream

	writes   *consistency.Store // what the caches must show before the next sync
	memories sync.Map           // icecream.Memory by name
	pace     *pacing.Limiter    // when an Icecream may cause the next write
	retries  *rate.Limiter      // of writes that the API server refuses, of all Icecreams
	retrying atomic.Int64       // how many syncs repeat such a write now
}

// Config contains the flags of the controller.
type Config struct {
	// StatusWindow is the minimum time between two writes of an Icecream's status that are
	// not urgent, such as progress.
	StatusWindow time.Duration
	// StallAfter is how long a problem can last before the Icecream is Stalled, and how
	// long the Icecream must have been complete after a crash before it is Ready.
	StallAfter time.Duration
}

var (
	icecreamResource   = v1alpha1.Resource("icecreams")
	deploymentResource = appsv1.Resource("deployments")
)

// The indexes of the caches.
const (
	byDeployment = "deployment" // Icecreams: by the name of the Deployment that they ask for
	byOwner      = "owner"      // Deployments: by their namespace and the UID of their controller
	byLabel      = "label"      // Icecreams and Pods: by the value of the Icecream's label
)

// A rollout changes many Pods at once, and each sync looks at all of them. So a change of a
// Pod is synced after podPeriod, or with the next sync.
const podPeriod = 100 * time.Millisecond

// All Icecreams together retry refused writes at this rate. A write that succeeds does not
// count, so everything continues at once when the obstacle is gone.
const (
	retriesPerSecond = 2
	retriesAtOnce    = 10
)

// NewController wires a controller to its clients and informers, and starts nothing. The
// factories are those of Icecreams, of all Deployments, and of objects with the label
// icecream.LabelIcecream, which are Pods.
func NewController(
	config Config,
	client versioned.Interface,
	kube kubernetes.Interface,
	recorder record.EventRecorder,
	own externalversions.SharedInformerFactory,
	all, labeled kubeinformers.SharedInformerFactory,
) (*Controller, error) {
	icecreams, deployments, pods := own.Samplecontroller().V1alpha1().Icecreams(), all.Apps().V1().Deployments(), labeled.Core().V1().Pods()
	c := &Controller{
		config:      config,
		client:      client,
		kube:        kube,
		recorder:    recorder,
		metrics:     metrics.For("icecream"),
		icecreams:   icecreams.Lister(),
		deployments: deployments.Lister(),
		asking:      icecreams.TypedInformer().GetTypedIndexer(),
		owned:       deployments.TypedInformer().GetTypedIndexer(),
		pods:        pods.TypedInformer().GetTypedIndexer(),
		pace:        pacing.New(config.StatusWindow),
		retries:     rate.NewLimiter(retriesPerSecond, retriesAtOnce),
	}
	c.Loop = worker.New("icecream", c.sync)
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{
		icecreamResource:   icecreams.Informer().GetStore(),
		deploymentResource: deployments.Informer().GetStore(),
	})

	err := errors.Join(
		icecreams.Informer().SetTransform(icecream.StripIcecream),
		deployments.Informer().SetTransform(icecream.StripDeployment),
		pods.Informer().SetTransform(icecream.StripPod),
		icecreams.TypedInformer().AddTypedIndexers(cache.TypedIndexers[*v1alpha1.Icecream]{byDeployment: deploymentKeys, byLabel: labelKeys}),
		deployments.TypedInformer().AddTypedIndexers(cache.TypedIndexers[*appsv1.Deployment]{byOwner: ownerKeys}),
		pods.TypedInformer().AddTypedIndexers(cache.TypedIndexers[*corev1.Pod]{byLabel: podKeys}),
	)
	if err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	// Nothing is decided in a handler: an event only says that something has changed.
	ofIcecreams, errIcecreams := icecreams.TypedInformer().AddTypedEventHandler(worker.Follow(c.followIcecream))
	ofDeployments, errDeployments := deployments.TypedInformer().AddTypedEventHandler(worker.FollowBoth(c.followDeployment))
	ofPods, errPods := pods.TypedInformer().AddTypedEventHandler(worker.FollowBoth(c.followPod))
	if err := errors.Join(errIcecreams, errDeployments, errPods); err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	c.WaitFor(ofIcecreams.HasSyncedChecker(), ofDeployments.HasSyncedChecker(), ofPods.HasSyncedChecker())
	return c, nil
}

// sync brings one Icecream closer to what its spec asks for.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Requeue(err)
	}
	observed, err := c.observe(name)
	if err != nil {
		return 0, err
	}
	if observed.Icecream == nil {
		c.forget(name)
		return 0, nil
	}
	plan, err := icecream.Decide(observed)
	if err != nil {
		return 0, err
	}
	if plan.IsRetry() {
		defer c.retrying.Add(-1)
		if c.retries.Tokens() < float64(c.retrying.Add(1)) {
			plan = plan.Postponed(wait.Jitter(time.Minute/2, 1))
		}
	}
	if plan.IsWrite() {
		if wait := c.pace.Write(name); wait > 0 {
			return wait, nil
		}
	}
	observed, refusal, err := c.act(ctx, observed, plan)
	if err != nil {
		return 0, err
	}
	report := icecream.Status(observed, plan)
	c.memories.Store(name, report.Memory)
	if requeueAfter, err = c.report(ctx, observed, report); err != nil {
		return 0, err
	}
	return requeueAfter, worker.Terminal(refusal)
}

// observe reads from the caches what there is to know about an Icecream. If the Icecream is
// gone, the result has none.
func (c *Controller) observe(name cache.ObjectName) (o icecream.Observed, err error) {
	o.Now, o.StallAfter = time.Now(), c.config.StallAfter
	if o.Icecream, err = orNil(c.icecreams.Icecreams(name.Namespace).Get(name.Name)); o.Icecream == nil {
		return o, err
	}
	if memory, ok := c.memories.Load(name); ok {
		o.Memory = memory.(icecream.Memory)
	}
	if why := lenient.Problem(o.Icecream, "spec"); why != "" {
		o = o.WithUndecodable(why)
	}
	if o.Named, err = orNil(c.deployments.Deployments(name.Namespace).Get(icecream.DeploymentName(o.Icecream))); err != nil {
		return o, err
	}
	o.OwnerIsGone = o.Named != nil && c.isOwnerGone(o.Named)
	if o.Owned, err = c.owned.ByTypedIndex(byOwner, key(name.Namespace, string(o.Icecream.UID))); err != nil {
		return o, err
	}
	pods, err := c.pods.ByTypedIndex(byLabel, key(name.Namespace, text.LabelValue(name.Name)))
	for _, pod := range pods {
		if p, counts := icecream.PodOf(pod); counts {
			o.Pods = append(o.Pods, p)
		}
	}
	return o, err
}

// isOwnerGone reports whether a Deployment is controlled by an Icecream that no longer exists.
func (c *Controller) isOwnerGone(d *appsv1.Deployment) bool {
	if !icecream.IsControlledByIcecream(d) {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(d)
	ice, err := c.icecreams.Icecreams(d.Namespace).Get(owner.Name)
	return err != nil || ice.UID != owner.UID
}

// act carries out a plan and returns what is known afterwards. A refusal by the API server
// is part of that; after any other error there is nothing to report yet.
func (c *Controller) act(ctx context.Context, o icecream.Observed, plan icecream.Plan) (after icecream.Observed, refusal, err error) {
	if plan.RecheckLive {
		if err := c.recheckLive(ctx, o, plan); err != nil {
			return o, nil, err
		}
	}
	result, err := c.write(ctx, o, plan)
	switch {
	case response.IsStale(err), patch.IsOfAnotherUID(err):
		return o, nil, worker.Requeue(err)
	case response.IsRefusal(err):
		result.Refusal = err
		c.retries.Allow()
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // which is nobody's fault
			refusal = err
		}
	case err != nil:
		return o, nil, err
	}
	after, event := o.With(plan, result)
	c.record(o.Icecream, event)
	return after, refusal, nil
}

// recheckLive returns an error unless the API server has the Icecream as the cache shows it
// and, before a deletion, the Deployment that takes the place of the deleted one. Two caches
// can show events in another order than they happened.
func (c *Controller) recheckLive(ctx context.Context, o icecream.Observed, plan icecream.Plan) error {
	ice, err := c.client.SamplecontrollerV1alpha1().Icecreams(o.Icecream.Namespace).Get(ctx, o.Icecream.Name, metav1.GetOptions{})
	if err := requireSame(o.Icecream, ice, err); err != nil || len(plan.Delete) == 0 {
		return err
	}
	named, err := c.kube.AppsV1().Deployments(o.Named.Namespace).Get(ctx, o.Named.Name, metav1.GetOptions{})
	return requireSame(o.Named, named, err)
}

// requireSame returns an error unless what was read from the API server is what the cache
// shows, and is not being deleted.
func requireSame(cached, live metav1.Object, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return worker.Requeue(err)
	case err != nil:
		return fmt.Errorf("checking that %s still exists: %w", cached.GetName(), err)
	case live.GetUID() != cached.GetUID() || live.GetGeneration() != cached.GetGeneration() || live.GetDeletionTimestamp() != nil:
		return worker.Requeue(fmt.Errorf("the cache does not show the latest %s yet", cached.GetName()))
	}
	return nil
}

// write writes the Deployment of a plan, and then deletes, until a request fails.
func (c *Controller) write(ctx context.Context, o icecream.Observed, plan icecream.Plan) (result icecream.Result, err error) {
	deployments := c.kube.AppsV1().Deployments(o.Icecream.Namespace)
	switch {
	case plan.Want == nil:
	case plan.Live == nil:
		options := metav1.CreateOptions{FieldManager: icecream.FieldManager}
		result.Stored, err = deployments.Create(ctx, plan.Want, options)
		if plan.Bare != nil && response.IsByPolicy(err) {
			result.IsBare = true
			result.Stored, err = deployments.Create(ctx, plan.Bare, options)
		}
		if err != nil {
			return icecream.Result{}, fmt.Errorf("creating Deployment %q: %w", plan.Want.Name, err)
		}
	default:
		if plan.IsFight { // The cache keeps no managedFields.
			if live, err := deployments.Get(ctx, plan.Live.Name, metav1.GetOptions{}); err == nil {
				result.Other = icecream.LastWriter(live)
			}
		}
		result.Stored, err = deployments.Patch(ctx, plan.Live.Name, types.StrategicMergePatchType, plan.Patch, metav1.PatchOptions{FieldManager: icecream.FieldManager})
		if err != nil {
			return icecream.Result{Other: result.Other}, fmt.Errorf("updating Deployment %q: %w", plan.Live.Name, err)
		}
	}
	if result.Stored != nil {
		c.writes.WroteAt(nameOf(o.Icecream), deploymentResource, result.Stored.ResourceVersion)
	}
	for _, old := range plan.Delete {
		err := deployments.Delete(ctx, old.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		})
		if err != nil {
			return result, fmt.Errorf("deleting Deployment %q: %w", old.Name, err)
		}
	}
	return result, nil
}

// report writes the status if it differs from the present one, and then records what has
// happened. What is not urgent may have to wait; the Icecream is synced again then.
//
// The API server takes nothing but the status from the object, and refuses it for another
// Icecream of the name and for another version than the one that the status was made from.
// So neither a lost response nor a stale cache can bring back the past.
func (c *Controller) report(ctx context.Context, o icecream.Observed, report icecream.Report) (requeueAfter time.Duration, err error) {
	ice, before, after := o.Icecream, o.Icecream.Status, report.Status
	name := nameOf(ice)
	if equality.Semantic.DeepEqual(before, after) {
		c.pace.Cancel(name)
		return report.RequeueAfter, nil
	}
	if wait := c.pace.Report(name, kstatus.IsUrgent(before.Conditions, after.Conditions)); wait > 0 {
		return backoff.MinRequeue(report.RequeueAfter, wait), nil
	}
	updated, err := c.client.SamplecontrollerV1alpha1().Icecreams(ice.Namespace).UpdateStatus(ctx, &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: ice.Name, UID: ice.UID, ResourceVersion: ice.ResourceVersion},
		Status:     after,
	}, metav1.UpdateOptions{FieldManager: icecream.FieldManager})
	c.metrics.StatusWrite(err)
	switch {
	case response.IsStale(err):
		return 0, worker.Requeue(err)
	case err != nil:
		return 0, fmt.Errorf("writing the status: %w", err)
	}
	c.writes.WroteAt(name, icecreamResource, updated.ResourceVersion)
	c.record(ice, icecream.StatusEvent(o, after))
	if icecream.HasMoved(before, after) {
		klog.FromContext(ctx).Info("Placement changed", "placement", icecream.Roster(o))
	}
	return report.RequeueAfter, nil
}

// record records an event about an Icecream, if there is one.
func (c *Controller) record(ice *v1alpha1.Icecream, event icecream.Event) {
	if event != (icecream.Event{}) {
		c.recorder.Event(ice, event.Type, event.Reason, event.Message)
	}
}

// forget drops what is remembered about an Icecream that is gone.
func (c *Controller) forget(name cache.ObjectName) {
	c.writes.Clear(name)
	c.memories.Delete(name)
	c.pace.Forget(name)
}

func (c *Controller) followIcecream(ice *v1alpha1.Icecream) { c.Add(nameOf(ice)) }

// followDeployment queues the Icecream that controls a Deployment, and the Icecreams that ask
// for a Deployment with its name.
func (c *Controller) followDeployment(d *appsv1.Deployment) {
	if icecream.IsControlledByIcecream(d) {
		c.Add(cache.NewObjectName(d.Namespace, metav1.GetControllerOfNoCopy(d).Name))
	}
	asking, _ := c.asking.ByTypedIndex(byDeployment, key(d.Namespace, d.Name)) // The index exists.
	for _, ice := range asking {
		c.Add(nameOf(ice))
	}
}

// followPod queues the Icecream whose label the Pod carries.
func (c *Controller) followPod(pod *corev1.Pod) {
	labeled, _ := c.asking.ByTypedIndex(byLabel, key(pod.Namespace, pod.Labels[icecream.LabelIcecream])) // The index exists.
	for _, ice := range labeled {
		c.AddAfter(nameOf(ice), podPeriod)
	}
}

func deploymentKeys(ice *v1alpha1.Icecream) ([]string, error) {
	return []string{key(ice.Namespace, icecream.DeploymentName(ice))}, nil
}

func labelKeys(ice *v1alpha1.Icecream) ([]string, error) {
	return []string{key(ice.Namespace, text.LabelValue(ice.Name))}, nil
}

func podKeys(pod *corev1.Pod) ([]string, error) {
	return []string{key(pod.Namespace, pod.Labels[icecream.LabelIcecream])}, nil
}

func ownerKeys(d *appsv1.Deployment) ([]string, error) {
	if !icecream.IsControlledByIcecream(d) {
		return nil, nil
	}
	return []string{key(d.Namespace, string(metav1.GetControllerOfNoCopy(d).UID))}, nil
}

func nameOf(obj metav1.Object) cache.ObjectName { return cache.MetaObjectToName(obj) }

func key(namespace, value string) string { return cache.NewObjectName(namespace, value).String() }

// orNil returns the result of a lister, with nil instead of a not-found error.
func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}
