package main

import (
	"context"
	"errors"
	"flag"
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
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	icecreamscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	informers "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/throttle"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller gives each Icecream its Deployment and reports back what became of
// it. One sync of one Icecream goes
//
//	fresh → observe → assess → decide → act → status → events
//
// Fresh: nothing is decided before the caches show what was written last time.
// Observe: everything is read from the caches, and what is remembered from the
// sync before is added. Assess and decide: package icecream says what is known and
// what should be written; it is pure and holds all the rules. Act: it is written.
// Status: what came of it is reported, if it is news. Events: people are told, after
// the status says so too.
//
// It writes Deployments, the status of Icecreams, and events. It never writes an
// Icecream's spec, a Pod, or a Deployment that is not its own.
type Controller struct {
	*worker.Loop

	config   Config
	kube     kubernetes.Interface
	client   versioned.Interface
	recorder events.EventRecorder
	clock    clock.WithTickerAndDelayedExecution
	metrics  metrics.Controller

	icecreams   informers.TypedIcecreamInformer
	deployments appsinformers.TypedDeploymentInformer
	pods        coreinformers.TypedPodInformer

	writes   *consistency.Store
	writing  *throttle.Pace
	memories sync.Map // icecream.Memory by name
}

// Config is what an operator can choose.
type Config struct {
	// StatusWindow is the least time between two writes of one Icecream's status
	// that are not urgent, such as progress.
	StatusWindow time.Duration
	// StallAfter is how long something may keep Pods from running before their
	// Icecream counts as Stalled, and how long the Icecream must have been complete
	// after a crash before it is Ready.
	StallAfter time.Duration
}

// The resources whose writes are remembered until the caches show them.
var (
	icecreamResource   = v1alpha1.Resource("icecreams")
	deploymentResource = appsv1.Resource("deployments")
)

// What a cache can be asked for besides a name.
const (
	byLabel      = "label"      // Icecreams and Pods: by namespace and the value of the Icecream's label
	byDeployment = "deployment" // Icecreams: by namespace and the name of the Deployment that they ask for
	byOwner      = "owner"      // Deployments: by namespace and the UID of their controller
)

// A rollout touches a Deployment and its Pods many times in a moment; burst is
// that moment. What happens in it leads to one sync.
const burst = 100 * time.Millisecond

// NewDescriptor returns what a process needs to know to run the controller.
func NewDescriptor() manager.Descriptor {
	config := &Config{}
	return manager.Descriptor{
		Name:        "icecream",
		OnByDefault: true,
		AddToScheme: icecreamscheme.AddToScheme,
		AddFlags:    func(flags *flag.FlagSet) { addFlags(flags, config) },
		Validate:    func() error { return config.Validate() },
		New:         func(d manager.Dependencies) (manager.Controller, error) { return newFor(*config, d) },
	}
}

// addFlags adds the controller's flags, and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	flags.DurationVar(&c.StatusWindow, "status-window", 2*time.Second, "The least time between two writes of an Icecream's status that are not urgent, such as progress.")
	flags.DurationVar(&c.StallAfter, "stall-after", time.Minute, "How long something may keep Pods from running before their Icecream counts as Stalled, and how long it must have been complete after a crash before it is Ready.")
}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error {
	if c.StatusWindow < 0 || c.StallAfter < 0 {
		return errors.New("-status-window and -stall-after must not be negative")
	}
	return nil
}

// newFor wires a controller to its clients and informers.
func newFor(config Config, d manager.Dependencies) (*Controller, error) {
	custom, err := lenient.RESTClientFor(d.Config, schema.GroupVersion(v1alpha1.GroupVersion), icecreamscheme.Codecs)
	if err != nil {
		return nil, err
	}
	client := versioned.New(custom)
	kube, err := kubernetes.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return nil, err
	}
	const permit = "kubectl apply -f artifacts/rbac-icecream.yaml, or -namespace for a single one"
	define := "kubectl apply -f artifacts/examples/crd-icecream.yaml"
	icecreams, others := externalversions.NewSharedInformerFactory(client, d.Resync), kubeinformers.NewSharedInformerFactory(kube, d.Resync)
	informer.Install(d.Caches, icecreams, preflight.Resource{GroupVersionResource: v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), Namespace: d.Namespace, Define: define, Permit: permit}, client.ControllerV1alpha1().Icecreams(d.Namespace), &v1alpha1.Icecream{})
	informer.Install(d.Caches, others, preflight.Resource{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments"), Namespace: d.Namespace, Permit: permit}, kube.AppsV1().Deployments(d.Namespace), &appsv1.Deployment{})
	informer.Install(d.Caches, others, preflight.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: d.Namespace, Selector: icecream.LabelIcecream, Permit: permit}, kube.CoreV1().Pods(d.Namespace), &corev1.Pod{})
	c, err := NewController(config, kube, client, icecreams.Controller().V1alpha1().Icecreams(), others.Apps().V1().Deployments(), others.Core().V1().Pods(), d.Recorder, d.Clock)
	if err != nil {
		return nil, err
	}
	metrics.Count("icecream_objects", "Icecreams, by status and reason of their Ready condition.", []string{"ready", "reason"}, c.Count)
	return c, nil
}

// NewController wires a controller to its informers and starts nothing. The
// informer of Pods has to be restricted to those with icecream.LabelIcecream.
func NewController(
	config Config,
	kube kubernetes.Interface,
	client versioned.Interface,
	icecreams informers.TypedIcecreamInformer,
	deployments appsinformers.TypedDeploymentInformer,
	pods coreinformers.TypedPodInformer,
	recorder events.EventRecorder,
	clock clock.WithTickerAndDelayedExecution,
) (*Controller, error) {
	c := &Controller{
		config:      config,
		kube:        kube,
		client:      client,
		recorder:    recorder,
		clock:       clock,
		metrics:     metrics.For("icecream"),
		icecreams:   icecreams,
		deployments: deployments,
		pods:        pods,
	}
	c.Loop = worker.New("icecream", c.sync, worker.WithClock(clock), worker.WithObserver(c.metrics.Sync), worker.WithKeys(c.names))
	c.writing = throttle.New(config.StatusWindow, clock, c.AddAfter)
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{
		icecreamResource:   icecreams.Informer().GetStore(),
		deploymentResource: deployments.Informer().GetStore(),
	})
	if err := c.fillCaches(); err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	if err := c.followEvents(); err != nil {
		return nil, fmt.Errorf("following events: %w", err)
	}
	return c, nil
}

// all are the Icecreams in the cache.
func (c *Controller) all() []*v1alpha1.Icecream {
	icecreams, err := c.icecreams.Lister().List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(err)
	}
	return icecreams
}

// names are those of all Icecreams in the cache.
func (c *Controller) names(yield func(cache.ObjectName) bool) {
	for _, ice := range c.all() {
		if !yield(nameOf(ice)) {
			return
		}
	}
}

// Count adds up the Icecreams by status and reason of their Ready condition.
func (c *Controller) Count(add func(n int, values ...string)) {
	for ready, n := range icecream.CountByReady(c.all()) {
		add(n, string(ready.Status), ready.Reason)
	}
}

// sync brings one Icecream closer to what its spec asks for.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
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
	if observed.IsOutdated() {
		return 0, worker.Requeue(errors.New("what has changed or was deleted is not in the cache yet"))
	}
	known := icecream.Assess(observed)

	decision, isTurn := c.pace(name, icecream.Decide(known))
	if !isTurn {
		return 0, nil
	}

	outcome, err := c.act(ctx, known, decision)
	if err != nil {
		return 0, err
	}
	now, again := icecream.Remember(known, decision, outcome)
	c.memories.Store(name, now.Memory)

	status, news := icecream.Status(known, now, decision, outcome)
	err = c.report(ctx, known, status, news)
	if apierrors.IsConflict(err) {
		c.memories.Store(name, now.Memory.WithOutdated(observed))
	}
	if err != nil {
		return 0, err
	}
	return again, worker.Terminal(outcome.Err)
}

// forget drops what is remembered of an Icecream that is gone.
func (c *Controller) forget(name cache.ObjectName) {
	c.writes.Clear(name)
	c.writing.Forget(name)
	c.memories.Delete(name)
}

// pace is the decision, or to wait where it repeats what was refused and others go
// first. isTurn is false when nothing may be written for now; the Icecream is looked
// at again when it may.
func (c *Controller) pace(name cache.ObjectName, d icecream.Decision) (paced icecream.Decision, isTurn bool) {
	if !d.IsRetry {
		c.writing.NothingToRetry(name)
		return d, d.Verdict != icecream.Act || c.writing.Urgent(name)
	}
	if !c.writing.Retry(name) {
		return d.Later(), true
	}
	return d, true
}

// observe reads from the caches what there is to know about an Icecream. When the
// Icecream is gone, the result has none.
func (c *Controller) observe(name cache.ObjectName) (o icecream.Observed, err error) {
	o.Now = c.clock.Now()
	o.StallAfter = c.config.StallAfter

	o.Icecream, err = c.icecreams.Lister().Icecreams(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return icecream.Observed{}, nil
	} else if err != nil {
		return o, err
	}
	if o.Undecodable = lenient.Problem(o.Icecream, "spec"); o.Undecodable != "" {
		// What it asks for is unknown, but not what it has.
		o.Icecream = o.Icecream.DeepCopy()
		o.Icecream.Spec.DeploymentName = o.Icecream.Status.DeploymentName
	}
	o.Named, err = c.deployments.Lister().Deployments(name.Namespace).Get(icecream.DeploymentName(o.Icecream))
	if apierrors.IsNotFound(err) {
		o.Named = nil
	} else if err != nil {
		return o, err
	}
	o.Owned, err = c.deployments.TypedInformer().GetTypedIndexer().ByTypedIndex(byOwner, key(name.Namespace, string(o.Icecream.UID)))
	if err != nil {
		return o, err
	}
	o.OwnerIsGone = c.isOwnerGone(o.Named)
	if memory, ok := c.memories.Load(name); ok {
		o.Memory = memory.(icecream.Memory)
	}
	pods, err := c.pods.TypedInformer().GetTypedIndexer().ByTypedIndex(byLabel, key(name.Namespace, icecream.LabelValue(name.Name)))
	if err != nil {
		return o, err
	}
	for _, pod := range pods {
		if p, counts := icecream.PodOf(pod); counts {
			o.Pods = append(o.Pods, p)
		}
	}
	return o, nil
}

// isOwnerGone reports whether the Deployment, which may be nil, is controlled by an
// Icecream that no longer exists.
func (c *Controller) isOwnerGone(d *appsv1.Deployment) bool {
	if d == nil || !icecream.IsControlledByAnIcecream(d) {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(d)
	ice, err := c.icecreams.Lister().Icecreams(d.Namespace).Get(owner.Name)
	return apierrors.IsNotFound(err) || err == nil && ice.UID != owner.UID
}

// act writes what was decided. What the API server refuses is part of the
// outcome, to be reported; an error means that there is nothing to report yet.
func (c *Controller) act(ctx context.Context, known icecream.Assessment, d icecream.Decision) (out icecream.Outcome, err error) {
	if d.Verdict != icecream.Act {
		return out, nil
	}
	if d.Confirm {
		if err := c.confirm(ctx, known.Icecream); err != nil {
			return out, err
		}
	}
	name := nameOf(known.Icecream)
	switch {
	case d.Apply == nil:
	case d.Apply.UID == nil:
		out.Deployment, err = c.create(ctx, d.Apply)
	default:
		out.Deployment, err = c.apply(ctx, known.Named, d)
	}
	if out.Deployment != nil {
		c.writes.WroteAt(name, deploymentResource, out.Deployment.ResourceVersion)
	}
	for _, old := range d.Delete {
		if err != nil {
			break
		}
		if err = c.delete(ctx, old); err == nil {
			out.Removed = append(out.Removed, old.UID)
		}
	}
	c.writing.Wrote(name, err != nil)
	switch {
	case isBehind(err):
		return out, worker.Requeue(err)
	case response.IsRefusal(err):
		out.Err = err
		return out, nil
	default:
		return out, err
	}
}

// confirm asks the API server whether the Icecream is still what the cache says.
// A deletion reaches the API server before it reaches anything that belongs to
// the Icecream, but the caches may show these in another order.
func (c *Controller) confirm(ctx context.Context, cached *v1alpha1.Icecream) error {
	live, err := c.client.ControllerV1alpha1().Icecreams(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return worker.Requeue(fmt.Errorf("the Icecream is gone, as the cache will show: %w", err))
	case err != nil:
		return fmt.Errorf("confirming that the Icecream still exists: %w", err)
	case live.UID != cached.UID || live.Generation != cached.Generation || live.DeletionTimestamp != nil:
		return worker.Requeue(errors.New("the Icecream has changed, as the cache will show"))
	}
	return nil
}

// create makes a Deployment that does not exist. Should there be one after all,
// it is not touched.
func (c *Controller) create(ctx context.Context, want *appsv1ac.DeploymentApplyConfiguration) (*appsv1.Deployment, error) {
	deployment, err := icecream.NewDeployment(want)
	if err != nil {
		return nil, err
	}
	created, err := c.kube.AppsV1().Deployments(deployment.Namespace).Create(ctx, deployment, metav1.CreateOptions{FieldManager: icecream.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating Deployment %q: %w", deployment.Name, err)
	}
	return created, nil
}

// apply sets right what is ours in an existing Deployment, and leaves the rest.
// The UID in the configuration makes it fail on any other Deployment of the name.
func (c *Controller) apply(ctx context.Context, live *appsv1.Deployment, d icecream.Decision) (*appsv1.Deployment, error) {
	deployments := c.kube.AppsV1().Deployments(live.Namespace)
	if d.Claim != nil {
		patch, err := icecream.ClaimPatch(live, d.Claim)
		if err != nil {
			return nil, err
		}
		if _, err := deployments.Patch(ctx, live.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: icecream.FieldManager}); err != nil {
			return nil, fmt.Errorf("claiming fields of Deployment %q: %w", live.Name, err)
		}
	}
	applied, err := deployments.Apply(ctx, d.Apply, metav1.ApplyOptions{FieldManager: icecream.FieldManager, Force: true})
	if err != nil {
		return nil, fmt.Errorf("updating Deployment %q: %w", live.Name, err)
	}
	return applied, nil
}

// delete removes a Deployment of the Icecream that another has replaced, if it is
// still as the cache shows it: somebody may have taken it over.
func (c *Controller) delete(ctx context.Context, old *appsv1.Deployment) error {
	err := c.kube.AppsV1().Deployments(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if err != nil {
		return fmt.Errorf("deleting Deployment %q: %w", old.Name, err)
	}
	return nil
}

// isBehind says whether the API server's answer means no more than that it knows
// something that the caches do not show yet.
func isBehind(err error) bool { return response.IsStale(err) || isOfAnother(err) }

// isOfAnother says whether an apply was refused because the object of that name
// has another UID: the API server calls that an invalid change of the UID.
func isOfAnother(err error) bool {
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return apierrors.IsInvalid(err) && ok && cause.Field == "metadata.uid"
}

// report writes the status if it differs from the present one, and then tells the
// news. What is not urgent may have to wait; the Icecream is looked at again when it
// need not, and only what was done is told by then.
func (c *Controller) report(ctx context.Context, known icecream.Assessment, status v1alpha1.IcecreamStatus, news []icecream.Event) (err error) {
	name, reported := nameOf(known.Icecream), known.Icecream
	switch may := c.mayReport(reported.Status, status); {
	case may == nil:
		c.writing.NothingToReport(name)
	case may(name):
		reported, err = c.writeStatus(ctx, known.Icecream, status)
		if err != nil {
			return err
		}
	default:
		news = slices.DeleteFunc(news, func(e icecream.Event) bool { return !e.IsDeed })
	}
	for _, event := range news {
		c.recorder.Eventf(reported, nil, event.Type, event.Reason, event.Action, "%s", event.Note)
		if event.Reason == v1alpha1.ReasonScheduled {
			klog.FromContext(ctx).Info("Placement changed", "placement", icecream.Roster(known.Observed))
		}
	}
	return nil
}

// mayReport is what to ask before the change from one status to another is written;
// nil when there is none.
func (c *Controller) mayReport(from, to v1alpha1.IcecreamStatus) func(cache.ObjectName) bool {
	switch {
	case equality.Semantic.DeepEqual(from, to):
		return nil
	case icecream.IsUrgent(from, to):
		return c.writing.Urgent
	default:
		return c.writing.Report
	}
}

// writeStatus replaces the status, whoever has written to it before. The API server
// refuses it if the Icecream is no longer the one that the status was made from, so
// a lost answer or a stale cache cannot bring back the past.
func (c *Controller) writeStatus(ctx context.Context, ice *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) (*v1alpha1.Icecream, error) {
	c.writing.Reported(nameOf(ice))
	updated, err := c.client.ControllerV1alpha1().Icecreams(ice.Namespace).UpdateStatus(ctx, icecream.NewStatus(ice, status), metav1.UpdateOptions{FieldManager: icecream.FieldManager})
	c.metrics.StatusWrite(err)
	if isBehind(err) {
		return nil, worker.Requeue(err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the status: %w", err)
	}
	c.writes.WroteAt(nameOf(ice), icecreamResource, updated.ResourceVersion)
	return updated, nil
}

// fillCaches says what the caches keep of each object and what they find it by.
func (c *Controller) fillCaches() error {
	return errors.Join(
		c.icecreams.TypedInformer().AddTypedIndexers(informers.IcecreamIndexers{
			byLabel: func(ice *v1alpha1.Icecream) ([]string, error) {
				return []string{key(ice.Namespace, icecream.LabelValue(ice.Name))}, nil
			},
			byDeployment: func(ice *v1alpha1.Icecream) ([]string, error) {
				return []string{key(ice.Namespace, icecream.DeploymentName(ice))}, nil
			},
		}),
		c.deployments.TypedInformer().AddTypedIndexers(appsinformers.DeploymentIndexers{
			byOwner: func(d *appsv1.Deployment) ([]string, error) {
				if owner := metav1.GetControllerOfNoCopy(d); owner != nil {
					return []string{key(d.Namespace, string(owner.UID))}, nil
				}
				return nil, nil
			},
		}),
		c.pods.TypedInformer().AddTypedIndexers(coreinformers.PodIndexers{
			byLabel: func(pod *corev1.Pod) ([]string, error) {
				return []string{key(pod.Namespace, pod.Labels[icecream.LabelIcecream])}, nil
			},
		}),
		c.icecreams.Informer().SetTransform(informer.Stripped(icecream.StripIcecream)),
		c.deployments.Informer().SetTransform(informer.Stripped(icecream.StripDeployment)),
		c.pods.Informer().SetTransform(informer.Stripped(icecream.StripPod)),
	)
}

// followEvents turns what happens to an object into the names of the Icecreams
// that it matters to. Nothing is decided here: an event only says that there may
// be something to see.
func (c *Controller) followEvents() error {
	icecreams, err := c.icecreams.TypedInformer().AddTypedEventHandler(informers.IcecreamHandlerFuncs{
		AddFunc: func(ice *v1alpha1.Icecream) { c.AddUrgent(nameOf(ice)) },
		UpdateFunc: func(before, after *v1alpha1.Icecream) {
			if asksForTheSame(before, after) {
				c.Add(nameOf(after)) // such as the echo of a status that was written here
			} else {
				c.AddUrgent(nameOf(after))
			}
		},
		DeleteFunc: func(ice informers.DeletedIcecream) { c.AddUrgent(ice.GetObjectName()) },
	})
	if err != nil {
		return err
	}
	deployments, err := c.deployments.TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: c.followDeployment,
		UpdateFunc: func(before, after *appsv1.Deployment) {
			c.followDeployment(before)
			c.followDeployment(after)
		},
		DeleteFunc: func(d appsinformers.DeletedDeployment) { c.followDeployment(d.OptionalObj) },
	})
	if err != nil {
		return err
	}
	pods, err := c.pods.TypedInformer().AddTypedEventHandler(coreinformers.PodHandlerFuncs{
		AddFunc: c.followPod,
		UpdateFunc: func(before, after *corev1.Pod) {
			c.followPod(before)
			c.followPod(after)
		},
		DeleteFunc: func(pod coreinformers.DeletedPod) { c.followPod(pod.OptionalObj) },
	})
	if err != nil {
		return err
	}
	c.WaitFor(icecreams.HasSyncedChecker(), deployments.HasSyncedChecker(), pods.HasSyncedChecker())
	return nil
}

// asksForTheSame reports whether nothing has changed that somebody else decides: a
// sync that failed would only fail again.
func asksForTheSame(before, after *v1alpha1.Icecream) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		before.DeletionTimestamp.Equal(after.DeletionTimestamp)
}

// followDeployment asks for a look at the Icecream that controls the Deployment,
// if there is one, and at those that would like to have its name.
func (c *Controller) followDeployment(d *appsv1.Deployment) {
	if d == nil {
		return // deleted without ever having been seen
	}
	if owner := metav1.GetControllerOfNoCopy(d); owner != nil {
		ice, err := c.icecreams.Lister().Icecreams(d.Namespace).Get(owner.Name)
		if err == nil && ice.UID == owner.UID {
			c.AddAfter(nameOf(ice), burst)
		}
	}
	c.follow(byDeployment, key(d.Namespace, d.Name))
}

// followPod asks for a look at the Icecream whose label the Pod carries.
func (c *Controller) followPod(pod *corev1.Pod) {
	if pod == nil {
		return // deleted without ever having been seen
	}
	c.follow(byLabel, key(pod.Namespace, pod.Labels[icecream.LabelIcecream]))
}

// follow asks for a look, in a moment, at the Icecreams that the index finds. An
// Icecream that is not in the cache yet will be looked at when it is.
func (c *Controller) follow(index, key string) {
	// The only error is that of an index that was never set up.
	icecreams, err := c.icecreams.TypedInformer().GetTypedIndexer().ByTypedIndex(index, key)
	if err != nil {
		utilruntime.HandleError(err)
	}
	for _, ice := range icecreams {
		c.AddAfter(nameOf(ice), burst)
	}
}

func nameOf(obj metav1.Object) cache.ObjectName { return cache.MetaObjectToName(obj) }

func key(namespace, value string) string { return cache.NewObjectName(namespace, value).String() }
