// The Icecream controller. Read NewController, then sync and what it calls, from top to
// bottom. Skip the key functions at the end. The rules are in pkg/icecream: decide.go
// comes next, then write.go and status.go.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	listers "nicoleh.io/k8s-controller/pkg/generated/listers/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller gives each Icecream its Deployment and reports its state. The steps of a sync
// are
//
//	ensure caches ready → observe → Decide → act → Status → report
//
// A sync first makes sure that the caches show its last writes. Observe reads the caches.
// Decide and Status belong to package icecream, which is pure and contains all rules: they
// say what should be written and what to report. Act asks the ledger, which remembers the
// writes, what is due, and writes that. Report writes the status if it differs. Each write
// is followed by at most one event.
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
	pods        cache.TypedIndexer[*corev1.Pod]        // by the label of their Icecream

	writes   *consistency.Store // what the caches must show before the next sync
	ledger   *ledger.Ledger     // what was asked for last, what came of it, and when it may be asked again
	memories sync.Map           // icecream.Memory by name
}

var (
	icecreamResource   = v1alpha1.Resource("icecreams")
	deploymentResource = appsv1.Resource("deployments")
)

// The indexes of the caches.
const (
	byDeployment = "deployment" // Icecreams: by the name of the Deployment that they ask for
	byLabel      = "label"      // Icecreams and Pods: by the value of the Icecream's label
)

// A rollout changes many Pods at once, and each sync looks at all of them. So a change of a
// Pod is synced after podPeriod, or with the next sync.
const podPeriod = 100 * time.Millisecond

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
		pods:        pods.TypedInformer().GetTypedIndexer(),
		ledger:      ledger.New(),
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
	follow := worker.Follow(c.followIcecream)
	handlers := cache.TypedResourceEventHandlerDetailedFuncs[*v1alpha1.Icecream]{
		AddFunc: c.addIcecream, UpdateFunc: follow.UpdateFunc, DeleteFunc: follow.DeleteFunc,
	}
	ofIcecreams, errIcecreams := icecreams.TypedInformer().AddTypedEventHandler(handlers)
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
		return 0, worker.Deferred(err)
	}
	observed, err := c.observe(name)
	if err != nil {
		return 0, err
	}
	if observed.Icecream == nil {
		c.forget(name)
		return 0, nil
	}
	plan := icecream.Decide(observed)
	observed, refusal, err := c.act(ctx, observed, plan)
	if err != nil {
		return 0, err
	}
	report := icecream.Status(observed, plan)
	c.memories.Store(name, report.Memory)
	if requeueAfter, err = c.writeStatus(ctx, observed, report); err != nil {
		return requeueAfter, err
	}
	return requeueAfter, worker.NoBackoff(refusal)
}

// observe reads from the caches what there is to know about an Icecream. If the Icecream is
// gone, the result has none.
func (c *Controller) observe(name cache.ObjectName) (o icecream.Observed, err error) {
	o.Now = time.Now()
	if o.Icecream, err = orNil(c.icecreams.Icecreams(name.Namespace).Get(name.Name)); o.Icecream == nil {
		return o, err
	}
	if memory, ok := c.memories.Load(name); ok {
		o.Memory = memory.(icecream.Memory)
	}
	if o.Undecodable = lenient.DecodeError(o.Icecream, "spec"); o.Undecodable != "" {
		o.Live, err = c.ownedBy(o.Icecream)
	} else {
		o.Live, err = orNil(c.deployments.Deployments(name.Namespace).Get(icecream.DeploymentName(o.Icecream)))
	}
	if err != nil {
		return o, err
	}
	o.OwnerIsGone = o.Live != nil && c.isOwnerGone(o.Live)
	o.Older = c.older(o.Icecream)
	pods, err := c.pods.ByTypedIndex(byLabel, key(name.Namespace, icecream.LabelValue(name.Name)))
	for _, pod := range pods {
		if p, counts := icecream.PodOf(pod); counts {
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

// isOwnerGone reports whether a Deployment is controlled by an Icecream that no longer exists.
func (c *Controller) isOwnerGone(d *appsv1.Deployment) bool {
	if !icecream.IsControlledByIcecream(d) {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(d)
	ice, err := c.icecreams.Icecreams(d.Namespace).Get(owner.Name)
	return err != nil || ice.UID != owner.UID
}

// older returns an Icecream that asks for the same Deployment, was created before and is not being
// deleted; nil if there is none.
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
	asking, _ := c.asking.ByTypedIndex(byDeployment, key(ice.Namespace, icecream.DeploymentName(ice))) // The index exists.
	return slices.DeleteFunc(slices.Clone(asking), func(other *v1alpha1.Icecream) bool { return other.Name == ice.Name })
}

// act writes what is due of a plan, and returns what is known afterwards. A refusal by the API
// server is part of that; after any other error there is nothing to report yet.
func (c *Controller) act(ctx context.Context, o icecream.Observed, plan icecream.Plan) (_ icecream.Observed, refusal, err error) {
	if plan.Asks == nil {
		return o, nil, nil
	}
	account, isCreation := c.account(o.Icecream), o.Live == nil
	o.Standing = account.Standing(o.Now, plan.Asks)
	due := o.Standing.Due
	if len(due) == 0 {
		return o, nil, nil
	}
	if o.Standing.Wait = account.Spend(o.Now); o.Standing.Wait > 0 {
		return o, nil, nil
	}
	// Of an Icecream that nothing was asked for yet, the cache shows what has only just happened.
	isFirst := !account.IsKnown() && o.Icecream.Status.ObservedGeneration <= 0
	if plan.Adopts || isCreation && !isFirst {
		if err := c.recheckIcecream(ctx, o.Icecream); err != nil {
			return o, nil, err
		}
	}
	if isCreation { // which is of the whole Deployment
		due = plan.Asks
	}
	for len(due) > 0 {
		result, err := c.write(ctx, o, due)
		if err != nil {
			return o, nil, err
		}
		asked := due
		due = nil
		// The API server refuses a patch as a whole, and an edit that it refuses must not keep the replicas
		// from arriving: they are asked for alone.
		if result.Refusal != nil && !isCreation && len(asked) > 1 {
			asked, due = asked[:1], asked[1:]
		}
		refusal = cmp.Or(refusal, result.Refusal)
		after, outcomes, event := o.With(asked, result)
		for i, ask := range asked {
			account.Note(time.Now(), ask, outcomes[i])
		}
		c.record(o.Icecream, event)
		o = after
	}
	o.Standing = account.Standing(time.Now(), o.Asks())
	if apierrors.HasStatusCause(refusal, corev1.NamespaceTerminatingCause) { // which is nobody's fault
		refusal = nil
	}
	return o, refusal, nil
}

// account returns what the ledger has about an Icecream.
func (c *Controller) account(ice *v1alpha1.Icecream) *ledger.Account {
	return c.ledger.Of(nameOf(ice), ice.UID)
}

// recheckIcecream returns an error unless the API server has the Icecream as the cache shows it, and
// it is not being deleted. Two caches can show events in another order than they happened.
func (c *Controller) recheckIcecream(ctx context.Context, cached *v1alpha1.Icecream) error {
	live, err := c.client.SamplecontrollerV1alpha1().Icecreams(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return worker.Deferred(err)
	case err != nil:
		return fmt.Errorf("checking that the Icecream still exists: %w", err)
	case live.UID != cached.UID || live.Generation != cached.Generation || live.DeletionTimestamp != nil:
		return worker.Deferred(errors.New("the cache does not show the latest Icecream yet"))
	}
	return nil
}

// write writes the parts of the Deployment that are due. A refusal is a result.
func (c *Controller) write(ctx context.Context, o icecream.Observed, due []ledger.Ask) (r icecream.Result, err error) {
	deployments, verb := c.kube.AppsV1().Deployments(o.Icecream.Namespace), "updating"
	if o.Live == nil {
		verb = "creating"
		r.Stored, err = deployments.Create(ctx, icecream.NewDeployment(o.Icecream), metav1.CreateOptions{FieldManager: icecream.FieldManager})
	} else {
		if o.Standing.IsAgain { // Who it is, is for the message alone. The cache keeps no managedFields.
			if live, err := deployments.Get(ctx, o.Live.Name, metav1.GetOptions{}); err == nil {
				r.Other = icecream.LastWriter(live)
			}
		}
		var body []byte
		if body, err = o.Patch(due); err != nil {
			return r, err
		}
		options := metav1.PatchOptions{FieldManager: icecream.FieldManager}
		r.Stored, err = deployments.Patch(ctx, o.Live.Name, types.StrategicMergePatchType, body, options)
	}
	if err == nil {
		c.writes.WroteAt(nameOf(o.Icecream), deploymentResource, r.Stored.ResourceVersion)
		return r, nil
	}
	err = fmt.Errorf("%s Deployment %q: %w", verb, icecream.DeploymentName(o.Icecream), err)
	switch {
	case response.IsStale(err, deploymentResource, icecream.DeploymentName(o.Icecream)):
		return r, worker.Deferred(err)
	case response.IsRefusal(err):
		r.Refusal = err
		return r, nil
	default:
		return r, err
	}
}

// writeStatus writes the status if it differs from the present one, and then records what has
// happened. What is not urgent may have to wait (see window); the Icecream is synced again then.
//
// The API server takes nothing but the status from the object, and refuses it for another
// Icecream of the name and for another version than the one that the status was made from.
// So neither a lost response nor a stale cache can bring back the past.
func (c *Controller) writeStatus(ctx context.Context, o icecream.Observed, report icecream.Report) (requeueAfter time.Duration, err error) {
	ice, before, after := o.Icecream, o.Icecream.Status, report.Status
	account := c.account(ice)
	if equality.Semantic.DeepEqual(before, after) {
		account.Settle()
		return report.RequeueAfter, nil
	}
	if delay := account.SpendStatus(o.Now, c.window(before, after)); delay > 0 {
		return backoff.MinRequeue(report.RequeueAfter, delay), nil
	}
	updated, err := c.client.SamplecontrollerV1alpha1().Icecreams(ice.Namespace).UpdateStatus(ctx, &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: ice.Name, UID: ice.UID, ResourceVersion: ice.ResourceVersion},
		Status:     after,
	}, metav1.UpdateOptions{FieldManager: icecream.FieldManager})
	c.metrics.StatusWrite(err)
	switch {
	case response.IsStale(err, icecreamResource, ice.Name):
		return 0, worker.Deferred(err)
	case response.IsRefusal(err): // for example, while a field that a rule of the schema reads cannot be decoded
		account.Reported(time.Now(), err)
		c.record(ice, icecream.StatusEvent(o, after))
		return account.SpendStatus(time.Now(), 0), worker.NoBackoff(fmt.Errorf("writing the status: %w", err))
	case err != nil:
		return 0, fmt.Errorf("writing the status: %w", err)
	}
	account.Reported(time.Now(), nil)
	c.writes.WroteAt(nameOf(ice), icecreamResource, updated.ResourceVersion)
	c.record(ice, icecream.StatusEvent(o, after))
	if icecream.HasMoved(before, after) {
		klog.FromContext(ctx).Info("Placement changed", "placement", icecream.Roster(o))
	}
	return report.RequeueAfter, nil
}

// otherWords is the window of a status that says the same in other words, such as a message with a
// time or the number of a process.
const otherWords = 5 * time.Minute

// window returns the minimum time between the last write of a status and this one. Urgent is another
// reason, or another condition that is True, unless it is only that a new spec is Progressing. Anything
// else, such as progress, also waits for half a window, since more of it often follows.
func (c *Controller) window(before, after v1alpha1.IcecreamStatus) time.Duration {
	switch {
	case kstatus.IsUrgent(before.Conditions, after.Conditions):
		return 0
	case icecream.SaysTheSame(before, after):
		return otherWords
	default:
		return c.config.StatusWindow
	}
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
	c.ledger.Forget(name)
}

// addIcecream notes which Icecreams were there before this process worked.
func (c *Controller) addIcecream(ice *v1alpha1.Icecream, isInInitialList bool) {
	if isInInitialList {
		c.account(ice).Inherit()
	}
	c.followIcecream(ice)
}

// followIcecream queues an Icecream, and all that ask for the Deployment of the same name.
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
