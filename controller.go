package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/flags"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/text"
	"nicoleh.io/k8s-controller/pkg/kit/throttle"
	"nicoleh.io/k8s-controller/pkg/kit/typed"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Controller gives each Icecream its Deployment and reports back what became of
// it. One sync of one Icecream goes
//
//	ensureCachesReady → observe → assess → decide → act → report
//
// First, it makes sure that the caches show what was written last time. Observe reads
// everything from the caches and adds what is remembered from the sync before. Assess
// and decide belong to package icecream, which is pure and holds all the rules: they
// say what is known and what should be written. Act writes it. Report writes what came
// of that to the status, if it is news, and then records the events.
//
// It writes Deployments, the status of Icecreams, and events. It never writes a Pod, the
// spec of an Icecream, or a Deployment that is not its own.
type Controller struct {
	*worker.Loop

	config   Config
	clients  func(namespace string) icecreamClient
	recorder events.EventRecorder
	clock    clock.WithTickerAndDelayedExecution
	metrics  metrics.Controller

	icecreams informer.Cache[*v1alpha1.Icecream]
	children  map[schema.GroupVersionResource]childKind
	pods      informer.Cache[*podproblem.Pod]

	writes   *consistency.Store
	writing  *throttle.Limiter
	memories sync.Map // icecream.Memory by name, compact
	untold   sync.Map // []children.Event by name: about writes whose report has to wait
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

var icecreamResource = v1alpha1.Resource("icecreams")

// What a cache can be asked for besides a name. Most values are the names of Icecreams, and
// an index has only the others: each entry takes a few hundred bytes.
const (
	byLabel = "label" // Icecreams and Pods: by namespace and the value of the Icecream's label
	byChild = "child" // Icecreams: by namespace, resource and name of a child that they ask for
	byOwner = "owner" // children: by namespace and the UID of their controller
)

// A rollout makes many changes in a moment, and each sync looks at all Pods. What becomes of
// a Pod shows in the Deployment a moment later, and both are best reported together: a change
// of a Pod waits for podPeriod, or the next sync.
const podPeriod = 100 * time.Millisecond

// NewDescriptor returns what a process needs to know to run the controller.
func NewDescriptor() manager.Descriptor {
	config := &Config{}
	return manager.Descriptor{
		Name:        "icecream",
		OnByDefault: true,
		AddToScheme: v1alpha1.Install,
		AddFlags:    func(fs *flag.FlagSet) { addFlags(fs, config) },
		Validate:    func() error { return config.Validate() },
		New:         func(d manager.Dependencies) (manager.Controller, error) { return newFor(*config, d) },
	}
}

// addFlags adds the controller's flags, and sets the defaults.
func addFlags(fs *flag.FlagSet, c *Config) {
	fs.DurationVar(&c.StatusWindow, "icecream-status-window", 2*time.Second, "The least time between two writes of an Icecream's status that are not urgent, such as progress.")
	fs.DurationVar(&c.StallAfter, "icecream-stall-after", time.Minute, "How long something may keep Pods from running before their Icecream counts as Stalled, and how long it must have been complete after a crash before it is Ready.")
	flags.Rename(fs, "status-window", "icecream-status-window")
	flags.Rename(fs, "stall-after", "icecream-stall-after")
}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error {
	if c.StatusWindow < 0 || c.StallAfter < 0 {
		return errors.New("-icecream-status-window and -icecream-stall-after must not be negative")
	}
	return nil
}

// newFor wires a controller to its clients and informers.
func newFor(config Config, d manager.Dependencies) (*Controller, error) {
	custom, err := lenient.NewForConfig(d.Config, v1alpha1.Install)
	if err != nil {
		return nil, err
	}
	kube, err := typed.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return nil, err
	}
	const permit = "kubectl apply -f artifacts/rbac-icecream.yaml, or -namespace for a single one"
	define := "kubectl apply -f artifacts/examples/crd-icecream.yaml"
	resource := icecreamResource.WithVersion(v1alpha1.GroupVersion.Version)
	clients := typed.Clients[v1alpha1.Icecream, v1alpha1.IcecreamList](custom, resource)
	icecreams := informer.NewCache[*v1alpha1.Icecream](d.Caches, preflight.Resource{GroupVersionResource: resource, Namespace: d.Namespace, Define: define, Permit: permit}, clients(d.Namespace), &v1alpha1.Icecream{}, d.Resync)
	children := childKinds(kube)
	for resource, kind := range children {
		kind.cache = kind.newCache(d.Caches, preflight.Resource{GroupVersionResource: resource, Namespace: d.Namespace, Permit: permit}, d.Resync)
		children[resource] = kind
	}
	podResource := corev1.SchemeGroupVersion.WithResource("pods")
	pods := informer.NewCache[*podproblem.Pod](d.Caches, preflight.Resource{GroupVersionResource: podResource, Namespace: d.Namespace, Selector: icecream.LabelIcecream, Permit: permit}, typed.Clients[corev1.Pod, corev1.PodList](kube, podResource)(d.Namespace), &corev1.Pod{}, d.Resync)
	c, err := NewController(config, clients, icecreams, children, pods, d.Recorder, d.Clock)
	if err != nil {
		return nil, err
	}
	metrics.Count("icecream_objects", "Icecreams, by status and reason of their Ready condition.", []string{"ready", "reason"}, c.Count)
	return c, nil
}

// icecreamClient is what the controller needs of a typed client of Icecreams.
type icecreamClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1alpha1.Icecream, error)
	UpdateStatus(ctx context.Context, ice *v1alpha1.Icecream, opts metav1.UpdateOptions) (*v1alpha1.Icecream, error)
}

// NewController wires a controller to its clients and caches, and starts nothing. Each kind
// of child needs its cache, and the cache of Pods has to be restricted to those with
// icecream.LabelIcecream.
func NewController[C icecreamClient](
	config Config,
	clients func(namespace string) C,
	icecreams informer.Cache[*v1alpha1.Icecream],
	children map[schema.GroupVersionResource]childKind,
	pods informer.Cache[*podproblem.Pod],
	recorder events.EventRecorder,
	clock clock.WithTickerAndDelayedExecution,
) (*Controller, error) {
	c := &Controller{
		config:    config,
		clients:   func(namespace string) icecreamClient { return clients(namespace) },
		recorder:  recorder,
		clock:     clock,
		metrics:   metrics.For("icecream"),
		icecreams: icecreams,
		children:  children,
		pods:      pods,
	}
	c.Loop = worker.New("icecream", c.sync, worker.WithClock(clock), worker.WithObserver(c.metrics.Sync), worker.WithKeys(c.names))
	c.writing = throttle.New(config.StatusWindow, clock, c.AddAfter)
	seen := map[schema.GroupResource]consistency.Seen{icecreamResource: icecreams.GetStore()}
	for resource, kind := range children {
		seen[resource.GroupResource()] = kind.cache.GetStore()
	}
	c.writes = consistency.New(seen)
	if err := c.setUpCaches(); err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	if err := c.addHandlers(); err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	return c, nil
}

// names yields the names of all Icecreams in the cache.
func (c *Controller) names(yield func(cache.ObjectName) bool) {
	for ice := range c.icecreams.All() {
		if !yield(nameOf(ice)) {
			return
		}
	}
}

// Count adds up the Icecreams by status and reason of their Ready condition.
func (c *Controller) Count(add func(n int, values ...string)) {
	count := map[kstatus.Readiness]int{}
	for ice := range c.icecreams.All() {
		count[kstatus.ReadinessOf(ice.Status.Conditions)]++
	}
	for ready, n := range count {
		add(n, string(ready.Status), ready.Reason)
	}
}

// sync brings one Icecream closer to what its spec asks for.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.ensureCachesReady(name); err != nil {
		return 0, err
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
	now, requeueAfter := icecream.Remember(known, decision, outcome)
	c.memories.Store(name, now.Memory.Compact())

	status, events := icecream.Status(known, now, decision, outcome)
	err = c.report(ctx, known, status, events)
	if apierrors.IsConflict(err) {
		now.Memory.Outdated = children.NewOutdated(observed.Icecream, observed.Now)
		c.memories.Store(name, now.Memory.Compact())
	}
	if err != nil {
		return 0, err
	}
	return requeueAfter, worker.Terminal(outcome.Err)
}

// ensureCachesReady returns an error while the caches do not show what was written for
// the Icecream last.
func (c *Controller) ensureCachesReady(name cache.ObjectName) error {
	return c.metrics.StaleCacheWait(c.writes.EnsureReady(name))
}

// forget drops what is remembered of an Icecream that is gone.
func (c *Controller) forget(name cache.ObjectName) {
	c.writes.Clear(name)
	c.writing.Forget(name)
	c.memories.Delete(name)
	c.untold.Delete(name)
}

// pace returns the decision, or the one to wait if it repeats what was refused and
// others go first. isTurn is false if nothing may be written for now; the Icecream is
// synced again when it may.
func (c *Controller) pace(name cache.ObjectName, d children.Decision) (paced children.Decision, isTurn bool) {
	if !d.IsRetry {
		c.writing.CancelRetry(name)
		return d, d.Verdict != children.Act || c.writing.AllowUrgent(name)
	}
	if !c.writing.AllowRetry(name) {
		return d.Postponed(), true
	}
	return d, true
}

// observe reads from the caches what there is to know about an Icecream. If the
// Icecream is gone, the result has none.
func (c *Controller) observe(name cache.ObjectName) (o icecream.Observed, err error) {
	o.Now = c.clock.Now()
	o.StallAfter = c.config.StallAfter

	o.Icecream = c.icecreams.Get(name.Namespace, name.Name)
	if o.Icecream == nil {
		return o, nil
	}
	if why := lenient.Problem(o.Icecream, "spec"); why != "" {
		o = o.WithUndecodable(why)
	}
	for resource := range c.children {
		if o, err = c.observeChildren(o, resource); err != nil {
			return o, err
		}
	}
	memory, _ := c.memories.Load(name)
	o.Memory = icecream.MemoryOf(memory)
	for _, pod := range c.pods.By(byLabel, key(name.Namespace, text.LabelValue(name.Name))) {
		if p, counts := icecream.PodOf(pod); counts {
			o.Pods = append(o.Pods, p)
		}
	}
	return o, nil
}

// observeChildren adds the objects of a kind that the Icecream controls, and the one
// whose name it asks for, whoever controls that.
func (c *Controller) observeChildren(o icecream.Observed, resource schema.GroupVersionResource) (icecream.Observed, error) {
	kind, ice := c.children[resource], o.Icecream
	named := kind.cache.Get(ice.Namespace, kind.nameFor(ice))
	observed := c.ownedBy(ice, kind)
	if named != nil && !slices.Contains(observed, named) {
		observed = append(observed, named)
	}
	for _, packed := range observed {
		child, err := packed.Unpack()
		if err != nil {
			return o, err
		}
		o = o.WithChild(resource, child, packed == named && c.isOwnerGone(child))
	}
	return o, nil
}

// ownedBy returns the children of a kind that the Icecream controls.
func (c *Controller) ownedBy(ice *v1alpha1.Icecream, kind childKind) []*informer.Packed {
	owned := kind.cache.By(byOwner, key(ice.Namespace, string(ice.UID)))
	if child := kind.cache.Get(ice.Namespace, ice.Name); child != nil {
		if name, uid := child.Owner(); name == ice.Name && uid == ice.UID {
			owned = append(owned, child)
		}
	}
	return owned
}

// isOwnerGone reports whether a child is controlled by an Icecream that no longer
// exists.
func (c *Controller) isOwnerGone(child metav1.Object) bool {
	if !isControlledByIcecream(child) {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(child)
	ice := c.icecreams.Get(child.GetNamespace(), owner.Name)
	return ice == nil || ice.UID != owner.UID
}

// act writes what was decided. What the API server refuses is part of the
// outcome, to be reported; an error means that there is nothing to report yet.
func (c *Controller) act(ctx context.Context, known icecream.Assessment, d children.Decision) (out children.Outcome, err error) {
	if d.Verdict != children.Act {
		return out, nil
	}
	if d.RecheckLive {
		if err := c.recheckLive(ctx, known.Icecream); err != nil {
			return out, err
		}
	}
	name := nameOf(known.Icecream)
	err = c.write(ctx, name, d, &out)
	c.writing.Wrote(name, err != nil)
	switch {
	case response.IsStale(err):
		return out, worker.Requeue(err)
	case response.IsRefusal(err):
		out.Err = err
		return out, nil
	default:
		return out, err
	}
}

// recheckLive asks the API server whether the Icecream is still what the cache says.
// A deletion reaches the API server before it reaches anything that belongs to
// the Icecream, but the caches may show these in another order.
func (c *Controller) recheckLive(ctx context.Context, cached *v1alpha1.Icecream) error {
	fresh, err := c.clients(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return worker.Requeue(fmt.Errorf("the Icecream is gone, as the cache will show: %w", err))
	case err != nil:
		return fmt.Errorf("checking that the Icecream still exists: %w", err)
	case fresh.UID != cached.UID || fresh.Generation != cached.Generation || fresh.DeletionTimestamp != nil:
		return worker.Requeue(errors.New("the Icecream has changed, as the cache will show"))
	}
	return nil
}

// write writes the decision's children and then carries out its deletions, up to the
// first that fails.
func (c *Controller) write(ctx context.Context, name cache.ObjectName, d children.Decision, out *children.Outcome) error {
	for _, child := range d.Children {
		written, err := c.children[child.Resource].Write(ctx, child)
		if err != nil {
			return err
		}
		c.writes.WroteAt(name, child.Resource.GroupResource(), written.GetResourceVersion())
		out.Written = append(out.Written, written)
	}
	for _, old := range d.Deletions {
		if err := c.children[old.Resource].Delete(ctx, old); err != nil {
			return err
		}
		out.Deleted = append(out.Deleted, old.UID)
	}
	return nil
}

// report writes the status if it differs from the present one, and then records what has
// happened since the last report as one event. What is not urgent may have to wait; the
// Icecream is synced again when it no longer has to. Until then, the events about writes
// wait as well.
func (c *Controller) report(ctx context.Context, known icecream.Assessment, status v1alpha1.IcecreamStatus, recordable []children.Event) (err error) {
	name, reported := nameOf(known.Icecream), known.Icecream
	if untold, ok := c.untold.LoadAndDelete(name); ok {
		recordable = slices.Concat(untold.([]children.Event), recordable)
	}
	switch may := c.mayReport(reported.Status, status); {
	case may == nil:
		c.writing.CancelReport(name)
	case may(name):
		if reported, err = c.writeStatus(ctx, known.Icecream, status); err != nil {
			c.tellLater(name, recordable)
			return err
		}
	default:
		c.tellLater(name, recordable)
		return nil
	}
	for _, event := range children.Merge(recordable) {
		c.recorder.Eventf(reported, nil, event.Type, event.Reason, event.Action, "%s", event.Note)
		if event.Log != nil {
			klog.FromContext(ctx).Info(event.Log.Message, event.Log.Values...)
		}
	}
	return nil
}

// tellLater keeps the events about writes for the next report. What else there is to tell
// follows from the status.
func (c *Controller) tellLater(name cache.ObjectName, recordable []children.Event) {
	if writes := slices.DeleteFunc(slices.Clone(recordable), func(e children.Event) bool { return !e.IsWrite }); len(writes) > 0 {
		c.untold.Store(name, writes)
	}
}

// mayReport returns what to ask before the change from one status to another is
// written; nil if nothing has changed.
func (c *Controller) mayReport(from, to v1alpha1.IcecreamStatus) func(cache.ObjectName) bool {
	switch {
	case equality.Semantic.DeepEqual(from, to):
		return nil
	case kstatus.IsUrgent(from.Conditions, to.Conditions):
		return c.writing.AllowUrgent
	default:
		return c.writing.AllowReport
	}
}

// writeStatus replaces the status, whoever has written to it before. The API server
// refuses that if the Icecream has changed since the status was made from it, so
// neither a lost response nor a stale cache can bring back the past.
func (c *Controller) writeStatus(ctx context.Context, ice *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) (*v1alpha1.Icecream, error) {
	c.writing.Reported(nameOf(ice))
	updated, err := c.clients(ice.Namespace).UpdateStatus(ctx, newStatus(ice, status), metav1.UpdateOptions{FieldManager: icecream.FieldManager})
	c.metrics.StatusWrite(err)
	if response.IsStale(err) {
		return nil, worker.Requeue(err)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the status: %w", err)
	}
	c.writes.WroteAt(nameOf(ice), icecreamResource, updated.ResourceVersion)
	return updated, nil
}

// newStatus returns the object to PUT to the Icecream's status subresource. The API
// server takes nothing but the status from it, and refuses it for any other
// Icecream of the name and for any other version than the one it was made from.
func newStatus(ice *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{
			Name:            ice.Name,
			Namespace:       ice.Namespace,
			UID:             ice.UID,
			ResourceVersion: ice.ResourceVersion,
		},
		Status: status,
	}
}

// setUpCaches says what the caches keep of each object and what they find it by.
func (c *Controller) setUpCaches() error {
	var errs []error
	for _, kind := range c.children {
		errs = append(errs,
			kind.cache.SetTransform(kind.pack),
			kind.cache.AddTypedIndexers(cache.TypedIndexers[*informer.Packed]{byOwner: ownerKeys}))
	}
	return errors.Join(append(errs,
		c.icecreams.SetTransform(informer.Stripped(icecream.CompactIcecream)),
		c.icecreams.AddTypedIndexers(cache.TypedIndexers[*v1alpha1.Icecream]{byLabel: labelKeys, byChild: c.childKeys}),
		c.pods.SetTransform(informer.Converted(icecream.CachePod)),
		c.pods.AddTypedIndexers(cache.TypedIndexers[*podproblem.Pod]{byLabel: podKeys}),
	)...)
}

func labelKeys(ice *v1alpha1.Icecream) ([]string, error) {
	if value := text.LabelValue(ice.Name); value != ice.Name {
		return []string{key(ice.Namespace, value)}, nil
	}
	return nil, nil
}

func podKeys(pod *podproblem.Pod) ([]string, error) {
	return []string{key(pod.GetNamespace(), pod.Value(icecream.LabelIcecream))}, nil
}

func (c *Controller) childKeys(ice *v1alpha1.Icecream) (keys []string, err error) {
	for resource, kind := range c.children {
		if name := kind.nameFor(ice); name != ice.Name {
			keys = append(keys, childKey(resource, ice.Namespace, name))
		}
	}
	return keys, nil
}

func ownerKeys(child *informer.Packed) ([]string, error) {
	if name, uid := child.Owner(); uid != "" && name != child.GetName() {
		return []string{key(child.GetNamespace(), string(uid))}, nil
	}
	return nil, nil
}

// addHandlers turns what happens to an object into the names of the Icecreams
// that it matters to. Nothing is decided here: an event only says that there may
// be something to see.
func (c *Controller) addHandlers() error {
	icecreams, err := c.icecreams.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*v1alpha1.Icecream]{
		AddFunc: func(ice *v1alpha1.Icecream) { c.AddUrgent(nameOf(ice)) },
		UpdateFunc: func(before, after *v1alpha1.Icecream) {
			switch {
			case !asksForTheSame(before, after):
				c.AddUrgent(nameOf(after))
			case !c.writes.IsEcho(nameOf(after), icecreamResource, after.ResourceVersion):
				c.Add(nameOf(after))
			}
		},
		DeleteFunc: func(ice cache.DeletedObject[*v1alpha1.Icecream]) { c.AddUrgent(ice.GetObjectName()) },
	})
	if err != nil {
		return err
	}
	pods, err := c.pods.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*podproblem.Pod]{
		AddFunc: c.followPod,
		UpdateFunc: func(before, after *podproblem.Pod) {
			if !after.IsAs(before) {
				c.followPod(before)
				c.followPod(after)
			}
		},
		DeleteFunc: func(pod cache.DeletedObject[*podproblem.Pod]) { c.followPod(pod.OptionalObj) },
	})
	if err != nil {
		return err
	}
	c.WaitFor(icecreams.HasSyncedChecker(), pods.HasSyncedChecker())
	for resource, kind := range c.children {
		follow := func(child *informer.Packed) { c.followChild(resource, child) }
		children, err := kind.cache.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*informer.Packed]{
			AddFunc:    follow,
			UpdateFunc: func(before, after *informer.Packed) { follow(before); follow(after) },
			DeleteFunc: func(child cache.DeletedObject[*informer.Packed]) { follow(child.OptionalObj) },
		})
		if err != nil {
			return err
		}
		c.WaitFor(children.HasSyncedChecker())
	}
	return nil
}

// asksForTheSame reports whether nothing has changed that somebody else decides: a
// sync that failed would only fail again.
func asksForTheSame(before, after *v1alpha1.Icecream) bool {
	return before.UID == after.UID && before.Generation == after.Generation &&
		before.DeletionTimestamp.Equal(after.DeletionTimestamp)
}

// followChild adds the Icecream that controls the object, if there is one, and those
// that ask for an object of its name. An object that was written here is news, too: another
// child may have waited for it.
func (c *Controller) followChild(resource schema.GroupVersionResource, child *informer.Packed) {
	if child == nil {
		return // deleted without ever having been seen
	}
	namespace, name := child.GetNamespace(), child.GetName()
	concerned := c.icecreams.By(byChild, childKey(resource, namespace, name))
	if ice := c.icecreams.Get(namespace, name); ice != nil && c.children[resource].nameFor(ice) == name {
		concerned = append(concerned, ice)
	}
	owner, uid := child.Owner()
	if ice := c.icecreams.Get(namespace, owner); ice != nil && ice.UID == uid {
		concerned = append(concerned, ice)
	}
	for _, ice := range concerned {
		c.Add(nameOf(ice))
	}
}

// followPod adds the Icecream whose label the Pod carries.
func (c *Controller) followPod(pod *podproblem.Pod) {
	if pod == nil {
		return // deleted without ever having been seen
	}
	label := pod.Value(icecream.LabelIcecream)
	concerned := c.icecreams.By(byLabel, key(pod.GetNamespace(), label))
	if ice := c.icecreams.Get(pod.GetNamespace(), label); ice != nil {
		concerned = append(concerned, ice)
	}
	for _, ice := range concerned {
		c.AddAfter(nameOf(ice), podPeriod)
	}
}

func nameOf(obj metav1.Object) cache.ObjectName { return cache.MetaObjectToName(obj) }

func key(namespace, value string) string { return cache.NewObjectName(namespace, value).String() }

func childKey(resource schema.GroupVersionResource, namespace, name string) string {
	return key(namespace, resource.Resource+"/"+name)
}
