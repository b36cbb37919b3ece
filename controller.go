// The Icecream controller. Read NewController, then sync and what it calls, from top to bottom. The rules
// are in pkg/icecream: decide.go comes next, then status.go.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	informers "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	listers "nicoleh.io/k8s-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller keeps a Deployment for each Icecream, and reports its progress in the Icecream's status. The steps of a
// sync are
//
//	ensure caches ready → observe → Decide → act → Status → report
//
// A sync is deferred until the caches show what this process last wrote for the Icecream. Decide says what to write,
// and Status what to report: all rules are in package icecream, which is pure. act writes the Deployment, and report
// writes the status if it differs. A refusal is reported in the same sync, an accepted write in a later one, when the
// caches show it. Each write causes at most one event.
//
// The controller writes Deployments, the status of Icecreams, and events. It never writes a Pod, the spec of an
// Icecream, or anyone else's Deployment.
type Controller struct {
	*worker.Loop

	client   versioned.Interface
	kube     kubernetes.Interface
	recorder record.EventRecorder
	metrics  metrics.Controller

	icecreams     listers.IcecreamLister
	deployments   appslisters.DeploymentLister
	icecreamIndex cache.TypedIndexer[*v1alpha1.Icecream] // byDeployment, byLabel
	podIndex      cache.TypedIndexer[*corev1.Pod]        // byLabel

	writes   *consistency.Store // what the caches must show before the next sync
	attempts pace.Attempts      // the last write and the last report for each Icecream
}

var (
	icecreamResource   = v1alpha1.Resource("icecreams")
	deploymentResource = appsv1.Resource("deployments")
)

// Names of indexes.
const (
	byDeployment = "deployment" // Icecreams by the name of the Deployment that they ask for
	byLabel      = "label"      // Icecreams and Pods by the value of LabelIcecream
)

// podPeriod delays the sync after a change to a Pod: a rollout changes many Pods at once, and each sync reads them all.
const podPeriod = 200 * time.Millisecond

// lookAgain is the longest time from an accepted write to the next sync. A write that changed nothing causes no watch
// event.
const lookAgain = time.Second

// NewController wires a controller to its clients and informers, and starts nothing. The informer of Pods must select
// icecream.LabelIcecream.
func NewController(
	client versioned.Interface,
	kube kubernetes.Interface,
	recorder record.EventRecorder,
	icecreams informers.TypedIcecreamInformer,
	deployments appsinformers.TypedDeploymentInformer,
	pods coreinformers.TypedPodInformer,
) (*Controller, error) {
	c := &Controller{
		client:        client,
		kube:          kube,
		recorder:      recorder,
		metrics:       metrics.For("icecream"),
		icecreams:     icecreams.Lister(),
		deployments:   deployments.Lister(),
		icecreamIndex: icecreams.TypedInformer().GetTypedIndexer(),
		podIndex:      pods.TypedInformer().GetTypedIndexer(),
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
		pods.TypedInformer().AddTypedIndexers(cache.TypedIndexers[*corev1.Pod]{byLabel: podKeys}),
	)
	if err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	// Nothing is decided in a handler: an event only says that something has changed.
	icecreamHandler, errIcecreams := icecreams.TypedInformer().AddTypedEventHandler(worker.Follow(c.followIcecream))
	deploymentHandler, errDeployments := deployments.TypedInformer().AddTypedEventHandler(worker.FollowBoth(c.followDeployment))
	podHandler, errPods := pods.TypedInformer().AddTypedEventHandler(worker.FollowBoth(c.followPod))
	if err := errors.Join(errIcecreams, errDeployments, errPods); err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	c.WaitFor(icecreamHandler.HasSyncedChecker(), deploymentHandler.HasSyncedChecker(), podHandler.HasSyncedChecker())
	return c, nil
}

// sync brings one Icecream closer to what its spec asks for. If err is nil or NoBackoff, the loop syncs it again after
// requeueAfter, if that is positive. After any other error it ignores requeueAfter and retries with back-off. It logs
// every error, a Deferred one at V(4) only.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Deferred(err)
	}
	observed, err := c.observe(name)
	if err != nil {
		return 0, err
	}
	if observed.Icecream == nil {
		c.writes.Clear(name)
		c.attempts.Forget(name)
		return 0, nil
	}
	if observed.Icecream.DeletionTimestamp != nil {
		return 0, nil // Its Deployment is left to the garbage collector.
	}
	plan := icecream.Decide(observed)
	if !plan.IsOpen() && plan.Held.Reason == "" {
		c.attempts.Settle(observed.Icecream) // The Deployment is as asked for, so an earlier failure is over.
	}
	if plan.IsOpen() && plan.Wait == 0 {
		if observed.Last, err = c.act(ctx, observed, plan); !observed.Last.IsWorthTelling() {
			return lookAgain, err // Nothing to tell yet: the caches will show an accepted write, and err makes the loop retry.
		}
		plan = icecream.Decide(observed) // again, for the wait until the next attempt
	}
	status, recheckAfter := icecream.Status(observed, plan)
	reportAfter, errReport := c.report(ctx, observed.Icecream, status)
	if err != nil && errReport != nil {
		return 0, errors.Join(err, errReport)
	}
	return pace.Sooner(recheckAfter, reportAfter), cmp.Or(err, errReport)
}

// observe reads an Icecream, and what concerns it, from the caches. o.Icecream is nil if it is gone.
func (c *Controller) observe(name cache.ObjectName) (o icecream.Observed, err error) {
	o.Now = time.Now()
	if o.Icecream, err = orNil(c.icecreams.Icecreams(name.Namespace).Get(name.Name)); o.Icecream == nil {
		return o, err
	}
	o.Last = c.attempts.Last(o.Icecream)
	if o.Undecodable = lenient.DecodeError(o.Icecream, "spec"); o.Undecodable != "" {
		o.Live, err = c.ownedBy(o.Icecream)
	} else {
		o.Live, err = orNil(c.deployments.Deployments(name.Namespace).Get(icecream.DeploymentName(o.Icecream)))
	}
	if err != nil {
		return o, err
	}
	o.Older = c.older(o.Icecream)
	pods, err := c.podIndex.ByTypedIndex(byLabel, key(name.Namespace, icecream.LabelValue(name.Name)))
	o.Pods = make([]icecream.Pod, 0, len(pods))
	for _, pod := range pods {
		if p, counts := icecream.PodOf(pod, o.Now); counts {
			o.Pods = append(o.Pods, p)
		}
	}
	return o, err
}

// ownedBy returns the Deployment that an Icecream owns; nil if there is none.
func (c *Controller) ownedBy(ice *v1alpha1.Icecream) (*appsv1.Deployment, error) {
	deployments, err := c.deployments.Deployments(ice.Namespace).List(labels.Everything())
	i := slices.IndexFunc(deployments, func(d *appsv1.Deployment) bool { return icecream.IsControlledBy(d, ice) })
	if i < 0 {
		return nil, err
	}
	return deployments[i], err
}

// older returns an older rival that is not being deleted; nil if there is none.
func (c *Controller) older(ice *v1alpha1.Icecream) *v1alpha1.Icecream {
	for _, other := range c.rivals(ice) {
		if other.DeletionTimestamp == nil && icecream.IsOlder(other, ice) {
			return other
		}
	}
	return nil
}

// rivals returns the other Icecreams that ask for the same Deployment.
func (c *Controller) rivals(ice *v1alpha1.Icecream) []*v1alpha1.Icecream {
	asking, _ := c.icecreamIndex.ByTypedIndex(byDeployment, key(ice.Namespace, icecream.DeploymentName(ice))) // The index exists.
	return slices.DeleteFunc(slices.Clone(asking), func(other *v1alpha1.Icecream) bool { return other.Name == ice.Name })
}

// act writes the Deployment and returns the attempt: the zero value if nothing was sent, or if the write failed only
// because the caches are behind.
func (c *Controller) act(ctx context.Context, o icecream.Observed, plan icecream.Plan) (last pace.Attempt, err error) {
	// Before a Deployment is created or adopted, the API server must still have the Icecream. A new one needs no recheck: it
	// has no status, and this process has written nothing for it, so it has had no Deployment.
	isNew := o.Live == nil && o.Icecream.Status.ObservedGeneration <= 0 && o.Last.Count == 0
	if o.Own() == nil && !isNew {
		if err := c.recheckIcecream(ctx, o.Icecream); err != nil {
			return pace.Attempt{}, err
		}
	}
	if err = c.write(ctx, o, cmp.Or(plan.Apply, plan.Scale)); isStale(o, err) {
		return pace.Attempt{}, worker.Deferred(err)
	}
	last = o.Last.Then(plan.Wish, err, time.Now())
	if plan.Apply != nil && plan.Scale != nil && last.IsWorthTelling() {
		// The replicas must not have to wait for an edit that is refused, or that keeps failing.
		switch err := c.write(ctx, o, plan.Scale); {
		case isStale(o, err):
			return pace.Attempt{}, worker.Deferred(err)
		case err != nil && !response.IsRefusal(err):
			return last, err // The attempt is not noted, and the loop retries both writes.
		}
	}
	c.attempts.Note(o.Icecream, last)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // not worth an error in the log
		return last, nil
	case response.IsRefusal(err):
		return last, worker.NoBackoff(err)
	default:
		return last, err
	}
}

// recheckIcecream reads the Icecream from the API server, and returns an error if the cached one is out of date or being
// deleted. When an Icecream and its Deployment are deleted, the caches can show first that the Deployment is gone.
func (c *Controller) recheckIcecream(ctx context.Context, cached *v1alpha1.Icecream) error {
	latest, err := c.client.SamplecontrollerV1alpha1().Icecreams(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return worker.Deferred(err)
	case err != nil:
		return fmt.Errorf("checking that the Icecream still exists: %w", err)
	case latest.UID != cached.UID || latest.Generation != cached.Generation || latest.DeletionTimestamp != nil:
		return worker.Deferred(errors.New("the cache does not show the latest Icecream yet"))
	}
	return nil
}

// write sends a request, and then records the resource version of the stored Deployment, and an event.
func (c *Controller) write(ctx context.Context, o icecream.Observed, request *patch.Request) error {
	deployments, name := c.kube.AppsV1().Deployments(o.Icecream.Namespace), icecream.DeploymentName(o.Icecream)
	stored, err := deployments.Patch(ctx, name, request.Type, request.Body, request.Options(icecream.FieldManager))
	if err != nil {
		return fmt.Errorf("writing Deployment %q: %w", name, err)
	}
	c.writes.WroteAt(nameOf(o.Icecream), deploymentResource, stored.ResourceVersion)
	c.record(o.Icecream, o.WriteEvent(stored, request.Type == types.ApplyPatchType))
	return nil
}

// isStale reports whether a write failed only because the cache of Deployments is behind. An apply that should create a
// Deployment has no UID that could conflict. If somebody else has just created a Deployment of that name, the API server
// calls the apply invalid: a selector cannot change, and there can be only one controller.
func isStale(o icecream.Observed, err error) bool {
	return response.IsStale(err, deploymentResource, icecream.DeploymentName(o.Icecream)) || o.Live == nil && response.IsTaken(err)
}

// report writes the status if it has changed, and then records an event. While no condition has a new status or
// reason, it writes at most every two seconds.
//
// The API server takes only the status from this object, and refuses it if the Icecream's UID or resource version
// differs. So an old status never replaces a newer one.
func (c *Controller) report(ctx context.Context, ice *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) (after time.Duration, err error) {
	if equality.Semantic.DeepEqual(ice.Status, status) {
		return 0, nil
	}
	if wait := c.attempts.ReportAfter(ice, icecream.HasTurned(ice.Status, status), time.Now()); wait > 0 {
		return wait, nil
	}
	updated, err := c.client.SamplecontrollerV1alpha1().Icecreams(ice.Namespace).UpdateStatus(ctx, &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: ice.Name, UID: ice.UID, ResourceVersion: ice.ResourceVersion},
		Status:     status,
	}, metav1.UpdateOptions{FieldManager: icecream.FieldManager})
	c.metrics.StatusWrite(err)
	switch {
	case response.IsStale(err, icecreamResource, ice.Name):
		return 0, worker.Deferred(err)
	case err != nil && (!response.IsRefusal(err) || apierrors.IsInternalError(err)):
		return 0, fmt.Errorf("writing the status: %w", err)
	}
	event := icecream.StatusEvent(ice.Status, status)
	isNew, again := c.attempts.NoteReport(ice, err, event.Reason, time.Now())
	if isNew {
		c.record(ice, event)
	}
	if err != nil { // refused, for example by a schema rule about a field that cannot be decoded
		return again, worker.NoBackoff(fmt.Errorf("writing the status: %w", err))
	}
	c.writes.WroteAt(nameOf(ice), icecreamResource, updated.ResourceVersion)
	if icecream.HasMoved(ice.Status, status) {
		klog.FromContext(ctx).Info("Placement changed", "placement", status.Placement)
	}
	return 0, nil
}

// record records an event about an Icecream, unless it is zero.
func (c *Controller) record(ice *v1alpha1.Icecream, event icecream.Event) {
	if event != (icecream.Event{}) {
		c.recorder.Event(ice, event.Type, event.Reason, event.Message)
	}
}

// followIcecream queues an Icecream and its rivals.
func (c *Controller) followIcecream(ice *v1alpha1.Icecream) {
	c.Add(nameOf(ice))
	for _, rival := range c.rivals(ice) {
		c.Add(nameOf(rival))
	}
}

// followDeployment queues the Icecream that controls a Deployment, and the Icecreams that ask
// for a Deployment with its name.
func (c *Controller) followDeployment(d *appsv1.Deployment) {
	if icecream.IsControlledByIcecream(d) {
		c.Add(cache.NewObjectName(d.Namespace, metav1.GetControllerOfNoCopy(d).Name))
	}
	asking, _ := c.icecreamIndex.ByTypedIndex(byDeployment, key(d.Namespace, d.Name)) // The index exists.
	for _, ice := range asking {
		c.Add(nameOf(ice))
	}
}

// followPod queues the Icecream that the Pod's label names, after podPeriod.
func (c *Controller) followPod(pod *corev1.Pod) {
	labeled, _ := c.icecreamIndex.ByTypedIndex(byLabel, key(pod.Namespace, pod.Labels[icecream.LabelIcecream])) // The index exists.
	for _, ice := range labeled {
		c.AddAfter(nameOf(ice), podPeriod)
	}
}

func deploymentKeys(ice *v1alpha1.Icecream) ([]string, error) {
	return []string{key(ice.Namespace, icecream.DeploymentName(ice))}, nil
}

func labelKeys(ice *v1alpha1.Icecream) ([]string, error) {
	return []string{key(ice.Namespace, icecream.LabelValue(ice.Name))}, nil
}

func podKeys(pod *corev1.Pod) ([]string, error) {
	return []string{key(pod.Namespace, pod.Labels[icecream.LabelIcecream])}, nil
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
