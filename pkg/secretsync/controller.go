// Package secretsync copies Secrets of one namespace to others.
//
// It decides which copies there should be: one of each marked Secret of the source
// namespace in each marked namespace that the Secret is for. It writes these copies,
// and events about their sources and about namespaces. It never writes to kube-system,
// kube-public or, but for the key of content hashes, the source namespace; and it never
// writes to or deletes a Secret that does not have the label of a copy, or is the copy
// of another instance. Deletions that hardly anybody can want, it holds until somebody
// confirms them.
//
// No byte of a Secret gets into a log, an event or a metric.
package secretsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/throttle"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is what the controller is called.
const Name = "secretsync"

// The reasons of events, which are about sources unless they say something else.
const (
	ReasonNameTaken = "ErrResourceExists" // a Secret of that name is not a copy
	ReasonFailed    = "CopyFailed"        // the API server has refused
	ReasonReplaced  = "CopyReplaced"      // deleted and made again, as it could not be changed
	ReasonAltered   = "CopyAltered"       // the API server has stored something else
	ReasonContested = "CopyContested"     // somebody undoes what is written
	// ReasonTerminating is that a finalizer keeps a copy as it should not be.
	ReasonTerminating = "CopyTerminating"
	ReasonHeld        = "DeletionsHeld"     // of the source namespace: until somebody confirms them
	ReasonNoReceivers = "NoReceivers"       // a source says nothing that can be understood of who may have it
	ReasonUnclear     = "UnclearAnnotation" // a source's or namespace's mark is neither yes nor no
)

const (
	fieldManager = Name + "-controller"
	// burst is how long what happens to a copy is collected for one sync.
	burst = 50 * time.Millisecond
	// Nobody tells that a Secret that is not a copy has gone, or that a rule by
	// which a copy is invalid has changed.
	retryTaken   = time.Minute
	retryInvalid = 5 * time.Minute
)

var secretResource = corev1.Resource("secrets")

// Controller keeps copies of Secrets. What it syncs by is the namespace and name
// of a copy, so that one namespace that cannot be written to holds up no other.
// One sync goes
//
//	fresh → observe → decide → act → events
//
// and before anything is deleted the decision is made once more from what the API
// server itself says of the source and the namespaces. The answer to each write is
// compared with what was requested, and remembered.
type Controller struct {
	*worker.Loop

	config   Config
	kube     kubernetes.Interface
	metadata metadata.Interface
	recorder events.EventRecorder
	clock    clock.WithTickerAndDelayedExecution
	metrics  metrics.Controller
	written  metrics.Total // by action

	sources    coreinformers.TypedSecretInformer
	copies     coreinformers.TypedSecretInformer
	namespaces coreinformers.TypedNamespaceInformer

	writes    *consistency.Store // of copies
	keyWrites *consistency.Store
	making    sync.Mutex // of the key
	memories  memories
	retries   *throttle.Pace
	brake     brake
	isHolding atomic.Bool // people have been told
}

// NewController wires a controller to its informers and starts nothing. The informer of
// sources has to be restricted to the source namespace, that of copies to those
// that LabelSourceNamespace says are from there.
func NewController(
	config Config,
	kube kubernetes.Interface,
	metadata metadata.Interface,
	sources, copies coreinformers.TypedSecretInformer,
	namespaces coreinformers.TypedNamespaceInformer,
	recorder events.EventRecorder,
	clock clock.WithTickerAndDelayedExecution,
) (*Controller, error) {
	c := &Controller{
		config:     config,
		kube:       kube,
		metadata:   metadata,
		recorder:   recorder,
		clock:      clock,
		metrics:    metrics.For(Name),
		written:    metrics.NewTotal("secretsync_writes_total", "Copies of Secrets that were written, by action: create, update, replace (which is a deletion and a creation) or delete.", "action", string(Create), string(Update), string(Replace), string(Delete)),
		sources:    sources,
		copies:     copies,
		namespaces: namespaces,
	}
	c.Loop = worker.New(Name, c.sync, worker.WithClock(clock), worker.WithObserver(c.metrics.Sync), worker.WithKeys(c.names))
	c.retries = throttle.New(0, clock, c.AddAfter)
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{secretResource: copies.Informer().GetStore()})
	c.keyWrites = consistency.New(map[schema.GroupResource]consistency.Seen{secretResource: sources.Informer().GetStore()})
	if err := c.fillCaches(); err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	if err := c.followEvents(); err != nil {
		return nil, fmt.Errorf("following events: %w", err)
	}
	c.count()
	return c, nil
}

// Run syncs copies with that many workers until ctx ends, and returns when the
// last of them has finished. The informers are started by the caller.
func (c *Controller) Run(ctx context.Context, workers int) error {
	if cache.WaitFor(ctx, "", c.Ready()...) {
		if err := c.brakeAtStart(); err != nil {
			return fmt.Errorf("looking at the copies that there are: %w", err)
		}
	}
	return c.Loop.Run(ctx, workers)
}

// sync brings one name in one namespace closer to what should be there.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Requeue(err)
	}
	if name.Namespace == metav1.NamespaceNone || name.Namespace == c.config.SourceNamespace {
		return 0, c.review(name)
	}
	observed, err := c.observe(name)
	if err != nil {
		return 0, err
	}
	observed, decision, err := c.decide(ctx, name, observed)
	if err == nil {
		observed.Memory, err = c.act(ctx, name, observed, &decision)
	}
	return c.report(ctx, name, observed, decision, discreet(err, observed.shown()))
}

// observe reads from the caches what a decision depends on.
func (c *Controller) observe(name cache.ObjectName) (o Observed, err error) {
	o.Config, o.Now, o.Memory, o.Brake = c.config, c.clock.Now(), c.memories.get(name), c.brake.whyHeld(name)
	if o.Namespace, err = found(c.namespaces.Lister().Get(name.Namespace)); err != nil {
		return o, err
	}
	if o.Home, err = found(c.namespaces.Lister().Get(c.config.SourceNamespace)); err != nil {
		return o, err
	}
	if o.Source, err = found(c.sources.Lister().Secrets(c.config.SourceNamespace).Get(name.Name)); err != nil {
		return o, err
	}
	o.Copy, err = found(c.copies.Lister().Secrets(name.Namespace).Get(name.Name))
	return o, err
}

// decide decides, and confirms what would be destructive: caches may be behind
// each other, and what another process has written for a namespace that this one
// does not know to be marked yet is not to be deleted.
func (c *Controller) decide(ctx context.Context, name cache.ObjectName, o Observed) (Observed, Decision, error) {
	o, d, err := c.decideOnce(ctx, o)
	switch {
	case !d.IsRetry:
		c.retries.NothingToRetry(name)
	case !c.retries.Retry(name):
		return o, o.later(d, 0), err
	}
	if err != nil || d.Action != Delete && d.Action != Replace && d.Problem.Reason != ReasonHeld {
		return o, d, err
	}
	namespace, err := found(c.kube.CoreV1().Namespaces().Get(ctx, name.Namespace, metav1.GetOptions{}))
	if err != nil {
		return o, d, fmt.Errorf("confirming what is known of the namespace: %w", err)
	}
	source, unknown := found(c.kube.CoreV1().Secrets(c.config.SourceNamespace).Get(ctx, name.Name, metav1.GetOptions{}))
	// After the source: one that has gone with its namespace, was in one that was
	// being deleted already.
	home, err := found(c.kube.CoreV1().Namespaces().Get(ctx, c.config.SourceNamespace, metav1.GetOptions{}))
	if err != nil {
		return o, d, fmt.Errorf("confirming what is known of the source namespace: %w", err)
	}
	o.Home, o.Namespace = home, namespace
	switch {
	case unknown == nil:
		o.Source = source
	case !isGoing(home) || o.IsWanted(): // the permission to read it goes with its namespace
		return o, d, fmt.Errorf("confirming what is known of the source: %w", unknown)
	}
	return c.decideOnce(ctx, o)
}

func (c *Controller) decideOnce(ctx context.Context, o Observed) (Observed, Decision, error) {
	if o.IsWanted() && o.Home == nil {
		return o, Decision{}, fmt.Errorf("%w the source namespace", errUnseen)
	}
	if o.IsWanted() {
		var err error
		if o.Key, err = c.hashKey(ctx); err != nil {
			return o, Decision{}, err
		}
	}
	return o, Decide(o), nil
}

// act does what was decided, and returns what is remembered of the copy then. What
// has become of a write, it adds to the decision.
func (c *Controller) act(ctx context.Context, name cache.ObjectName, o Observed, d *Decision) (Memory, error) {
	if !d.writes() {
		return o.Memory, nil
	}
	altered, err := c.write(ctx, name, o, *d)
	if d.IsRetry {
		c.retries.Wrote(name, true)
	}
	if err != nil {
		return o.Memory, err
	}
	c.written.Inc(string(d.Action))
	klog.FromContext(ctx).V(2).Info("Written", "action", d.Action)
	now := c.clock.Now()
	memory := o.Memory.after(*d, o.undoer(), altered, now)
	if d.Problem = memory.lasting(now); d.Problem != (Problem{}) {
		d.Again = memory.wait(now)
	}
	return memory, nil
}

// write makes the writes that were decided on. altered is in what the API server has
// stored the copy otherwise than requested.
func (c *Controller) write(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (altered []string, err error) {
	switch d.Action {
	case Delete:
		return nil, c.delete(ctx, o.Copy)
	case Update:
		return c.update(ctx, name, d.Want)
	case Replace:
		if err := c.delete(ctx, o.Copy); err != nil {
			return nil, err
		}
		c.tell(o.Source, name, corev1.EventTypeNormal, ReasonReplaced, "Replace", "Namespace %q: the copy is deleted and made again, because %s", name.Namespace, d.Why)
	default:
	}
	return c.create(ctx, name, o.Memory.Problem.Reason == ReasonNameTaken, d.Want)
}

// create makes a copy where there is no Secret of that name. If there is one after
// all, it is not touched. Where one was in the way before, that is asked first.
func (c *Controller) create(ctx context.Context, name cache.ObjectName, wasTaken bool, want *corev1.Secret) (altered []string, err error) {
	if wasTaken {
		if err := c.requireFree(ctx, name); err != nil {
			return nil, err
		}
	}
	made, err := c.kube.CoreV1().Secrets(name.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		if taken := c.requireFree(ctx, name); taken != nil {
			return nil, taken
		}
		return nil, err // a copy that the cache does not show yet, or gone already
	}
	if err != nil {
		return nil, fmt.Errorf("creating the copy: %w", err)
	}
	c.writes.WroteAt(name, secretResource, made.ResourceVersion)
	return alteredIn(want, made), nil
}

// requireFree is errTaken if there is a Secret of that name that is not a copy. It
// sees no data. It lists, because getting would take one more permission.
func (c *Controller) requireFree(ctx context.Context, name cache.ObjectName) error {
	secrets := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource(secretResource.Resource)).Namespace(name.Namespace)
	found, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()})
	if err != nil {
		return fmt.Errorf("looking for a Secret of that name: %w", err)
	}
	for _, other := range found.Items {
		if other.Labels[LabelSourceNamespace] != c.config.SourceNamespace {
			return errTaken
		}
	}
	return nil
}

// update sets a copy right. Its UID and resource version keep it from what has
// changed since, or is another one by now.
func (c *Controller) update(ctx context.Context, name cache.ObjectName, want *corev1.Secret) (altered []string, err error) {
	updated, err := c.kube.CoreV1().Secrets(name.Namespace).Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, fmt.Errorf("updating the copy: %w", err)
	}
	c.writes.WroteAt(name, secretResource, updated.ResourceVersion)
	return alteredIn(want, updated), nil
}

// delete deletes a copy, if it is still as the cache shows it.
func (c *Controller) delete(ctx context.Context, old *corev1.Secret) error {
	err := c.kube.CoreV1().Secrets(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("deleting the copy: %w", err)
	}
	return nil
}

// report tells what keeps a copy from being as it should be, if that is news, and
// says what is to follow.
func (c *Controller) report(ctx context.Context, name cache.ObjectName, o Observed, d Decision, err error) (again time.Duration, _ error) {
	problem, again := d.Problem, d.Again
	switch {
	case informer.IsBehind(err) || errors.Is(err, errUnseen):
		problem, err = o.Memory.Problem, worker.Requeue(err)
	case errors.Is(err, errTaken):
		problem, err = Problem{ReasonNameTaken, err.Error()}, nil
	case err != nil && ctx.Err() != nil:
		problem = o.Memory.Problem
	case err != nil:
		problem = Problem{ReasonFailed, err.Error()}
	}
	isNews := problem != o.Memory.Problem && problem != Problem{}
	wasHeld, isHeld := o.Memory.Problem.Reason == ReasonHeld, problem.Reason == ReasonHeld
	o.Memory.Problem = problem
	again = worker.MinRequeue(again, c.remember(name, o))
	switch {
	case isHeld:
		if isNews = !c.isHolding.Swap(true); isNews {
			c.tellHeld(problem)
		}
	case wasHeld && c.memories.count()[ReasonHeld] == 0:
		c.isHolding.Store(false)
	}
	if isNews && !isHeld && o.Source != nil {
		c.tell(o.Source, name, corev1.EventTypeWarning, problem.Reason, "Copy", "Namespace %q: %s", name.Namespace, problem.Words)
	}
	if problem.Reason == ReasonNameTaken {
		again = retryTaken
	}
	switch {
	case apierrors.IsInvalid(err):
		return retryInvalid, worker.Terminal(err)
	case err == nil && isNews:
		return again, worker.Terminal(errors.New(problem.Words))
	}
	return again, err
}

// review warns of the annotations of a source or a namespace, if they are not what
// they should be and that is news.
func (c *Controller) review(name cache.ObjectName) (err error) {
	var about runtime.Object
	var problem Problem
	if name.Namespace == metav1.NamespaceNone {
		var namespace *corev1.Namespace
		if namespace, err = found(c.namespaces.Lister().Get(name.Name)); namespace != nil {
			about, problem = namespace, c.warningOfNamespace(namespace)
		}
	} else {
		var source *corev1.Secret
		if source, err = found(c.sources.Lister().Secrets(name.Namespace).Get(name.Name)); source != nil {
			about, problem = source, c.config.warningOf(source)
		}
	}
	if before := c.memories.get(name).Problem; err != nil || problem == before {
		return err
	}
	c.memories.set(name, Memory{Problem: problem})
	if problem == (Problem{}) {
		return nil
	}
	c.recorder.Eventf(about, nil, corev1.EventTypeWarning, problem.Reason, "Copy", "%s", upperFirst(problem.Words))
	return worker.Terminal(errors.New(problem.Words))
}

// upperFirst is a text that begins with a capital.
func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// remember keeps what is remembered of a copy, and says when to look again whether it
// can be forgotten; zero if that will be seen.
func (c *Controller) remember(name cache.ObjectName, o Observed) (again time.Duration) {
	if o.Copy == nil || o.IsWanted() {
		c.brake.release(name)
	}
	if o.Copy == nil && !o.IsWanted() && o.Memory.Problem == (Problem{}) {
		if again = o.Memory.left(o.Now); again == 0 {
			o.Memory = Memory{}
			c.retries.Forget(name)
		}
	}
	c.memories.set(name, o.Memory)
	return again
}

// tell tells the people who look at a source about the copy of that name.
func (c *Controller) tell(source *corev1.Secret, name cache.ObjectName, kind, reason, action, note string, args ...any) {
	c.recorder.Eventf(source, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, kind, reason, action, note, args...)
}

// found turns the error that there is no such object into no object.
func found[T any](object *T, err error) (*T, error) {
	if err != nil {
		object = nil
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return object, err
}

// fillCaches says what the caches keep of each object.
func (c *Controller) fillCaches() error {
	return errors.Join(
		c.sources.Informer().SetTransform(informer.Stripped(c.config.StripSource)),
		c.copies.Informer().SetTransform(informer.Stripped(StripCopy)),
		c.namespaces.Informer().SetTransform(informer.Stripped(c.config.StripNamespace)),
	)
}

// followEvents turns what happens to an object into the names of the copies that
// it matters to. Nothing is decided here.
func (c *Controller) followEvents() error {
	sources, err := c.sources.TypedInformer().AddTypedEventHandler(coreinformers.SecretHandlerFuncs{
		AddFunc: func(source *corev1.Secret) {
			c.followReview(source, c.config.warningOf(source))
			c.followSource(source, c.AddUrgent)
		},
		UpdateFunc: func(before, after *corev1.Secret) {
			add := c.AddUrgent
			if c.config.isSame(before, after) {
				add = c.Add
			}
			c.followReview(after, c.config.warningOf(before), c.config.warningOf(after))
			if c.config.IsSource(before) {
				after = before // what depends on it after, depended on it before
			}
			c.followSource(after, add)
		},
		DeleteFunc: func(source coreinformers.DeletedSecret) {
			c.Add(source.GetObjectName())
			c.followSource(source.OptionalObj, c.AddUrgent)
		},
	})
	if err != nil {
		return err
	}
	copies, err := c.copies.TypedInformer().AddTypedEventHandler(coreinformers.SecretHandlerFuncs{
		AddFunc:    func(secret *corev1.Secret) { c.AddAfter(cache.MetaObjectToName(secret), burst) },
		UpdateFunc: func(_, secret *corev1.Secret) { c.AddAfter(cache.MetaObjectToName(secret), burst) },
		DeleteFunc: func(secret coreinformers.DeletedSecret) { c.AddAfter(secret.GetObjectName(), burst) },
	})
	if err != nil {
		return err
	}
	namespaces, err := c.namespaces.TypedInformer().AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc: func(namespace *corev1.Namespace) {
			c.followReview(namespace, c.warningOfNamespace(namespace))
			c.followNamespace(namespace, c.AddUrgent)
			c.followHome(namespace)
		},
		UpdateFunc: func(before, after *corev1.Namespace) {
			c.followReview(after, c.warningOfNamespace(before), c.warningOfNamespace(after))
			if before.UID != after.UID || before.Annotations[AnnotationConfirm] != after.Annotations[AnnotationConfirm] {
				c.followHome(after)
			}
			wasTarget := c.config.IsTarget(before)
			if before.UID == after.UID && wasTarget == c.config.IsTarget(after) && maps.Equal(before.Labels, after.Labels) {
				return
			}
			if wasTarget {
				after = before
			}
			c.followNamespace(after, c.AddUrgent)
		},
		DeleteFunc: func(namespace coreinformers.DeletedNamespace) {
			c.Add(namespace.GetObjectName())
			c.followNamespace(namespace.OptionalObj, c.AddUrgent)
		},
	})
	if err != nil {
		return err
	}
	c.WaitFor(sources.HasSyncedChecker(), copies.HasSyncedChecker(), namespaces.HasSyncedChecker())
	return nil
}

// followReview asks for a look at the annotations of a source or a namespace if there
// is, or was, something wrong with them.
func (c *Controller) followReview(obj metav1.Object, warnings ...Problem) {
	if slices.ContainsFunc(warnings, func(warning Problem) bool { return warning != Problem{} }) {
		c.Add(cache.MetaObjectToName(obj))
	}
}

// warningOfNamespace is what is wrong with the annotations of a namespace now; none if
// nothing is.
func (c *Controller) warningOfNamespace(namespace *corev1.Namespace) Problem {
	if namespace.Name == c.config.SourceNamespace {
		return warningOfConfirm(namespace, c.clock.Now())
	}
	return c.config.warningOfNamespace(namespace)
}

// followHome asks for a look at all copies if that is the source namespace: deletions
// may be confirmed.
func (c *Controller) followHome(namespace *corev1.Namespace) {
	if namespace.Name != c.config.SourceNamespace {
		return
	}
	for _, copied := range list(c.copies.Lister().List(labels.Everything())) {
		c.AddUrgent(cache.MetaObjectToName(copied))
	}
}

// followSource asks for a look at the copies of a Secret of the source namespace,
// those that there are and those that there should be, or at all copies if it is
// the key of their hashes. Those in namespaces that are no targets have been looked
// at since these were.
func (c *Controller) followSource(source *corev1.Secret, add func(cache.ObjectName)) {
	if source == nil {
		return // deleted without ever having been seen
	}
	for _, namespace := range list(c.namespaces.Lister().List(labels.Everything())) {
		switch {
		case !c.config.IsTarget(namespace):
		case source.Name == HashKey:
			c.followNamespace(namespace, add)
		case c.config.IsSource(source):
			add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// followNamespace asks for a look at the copies in a namespace, those that there
// are and those that there should be, at each once: for a second time, a worker
// that has begun would have to look again.
func (c *Controller) followNamespace(namespace *corev1.Namespace, add func(cache.ObjectName)) {
	if namespace == nil {
		return
	}
	names := sets.New[cache.ObjectName]()
	for _, copied := range list(c.copies.Lister().Secrets(namespace.Name).List(labels.Everything())) {
		names.Insert(cache.MetaObjectToName(copied))
	}
	for _, source := range list(c.sources.Lister().List(labels.Everything())) {
		if c.config.IsSource(source) && c.config.IsTarget(namespace) {
			names.Insert(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
	for name := range names {
		add(name)
	}
}

// names are those of the copies that there are and of those that there should be,
// many of them twice; and those of sources and namespaces that there is something
// wrong with.
func (c *Controller) names(yield func(cache.ObjectName) bool) {
	for _, copied := range list(c.copies.Lister().List(labels.Everything())) {
		if !yield(cache.MetaObjectToName(copied)) {
			return
		}
	}
	sources := list(c.sources.Lister().List(labels.Everything()))
	for _, source := range sources {
		if c.config.warningOf(source) != (Problem{}) && !yield(cache.MetaObjectToName(source)) {
			return
		}
	}
	for _, namespace := range list(c.namespaces.Lister().List(labels.Everything())) {
		if c.warningOfNamespace(namespace) != (Problem{}) && !yield(cache.MetaObjectToName(namespace)) {
			return
		}
		for _, source := range sources {
			if c.config.IsTarget(namespace) && c.config.IsSource(source) && !yield(cache.NewObjectName(namespace.Name, source.Name)) {
				return
			}
		}
	}
}

// list is what a cache has. The only error is that of an index that was never set
// up.
func list[T any](found []T, err error) []T {
	if err != nil {
		utilruntime.HandleError(err)
	}
	return found
}

// count has the gauges counted whenever they are asked for.
func (c *Controller) count() {
	metrics.Count("secretsync_copies", "Copies of Secrets that there are, and that this instance looks after.", nil, func(add func(n int, values ...string)) {
		ours := 0
		for _, secret := range list(c.copies.Lister().List(labels.Everything())) {
			if c.config.isOurs(secret) {
				ours++
			}
		}
		add(ours)
	})
	metrics.Count("secretsync_troubles", "Copies of Secrets that cannot be made, set right or deleted, or do not stay so, by reason; and sources that nobody may have copies of (NoReceivers).", []string{"reason"}, func(add func(n int, values ...string)) {
		counts := c.memories.count()
		for _, reason := range []string{ReasonNameTaken, ReasonFailed, ReasonAltered, ReasonContested, ReasonTerminating, ReasonHeld, ReasonNoReceivers} {
			add(counts[reason], reason)
		}
	})
	metrics.Count("secretsync_unclear_annotations", "Sources and namespaces whose annotation is neither a yes nor a no.", nil, func(add func(n int, values ...string)) {
		add(c.memories.count()[ReasonUnclear])
	})
}
