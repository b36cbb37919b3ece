// Command secretsync copies Secrets from one namespace to others, by five rules:
//
//  1. One annotation for both sides. On a source, its value lists the namespaces that get the Secret, such as
//     "team-a, web-*", or is "*" for all or "false" for none. On a namespace, an empty value, "true", "yes", "on" or
//     "1" means yes, and "false" means no. A source must list its namespaces, so a restriction cannot be lost,
//     misspelt or contradicted. On a source, an empty value, "true", "yes", "on", "1", "no", "off", "0" and anything
//     else that is not a list are unclear, with or without copies: one Warning.
//  2. A copy exists where both sides say yes. Both are read live before any data is written. After a write, the copy
//     has exactly the source's data.
//  3. A copy is deleted, after live reads, if one side says "false" (at once), or if the list no longer contains the
//     namespace or the source itself was deleted (a minute after this process first saw that: many tools delete and
//     create). Only a Secret that says that it was made for this very place is ever deleted.
//  4. Silence freezes, unless one side says "false", which always deletes. Silence is a missing annotation, on either
//     side; an unclear value; or a source that is missing from a namespace that is gone, being deleted, or younger
//     than the copy (a source that is still in such a namespace counts as usual). Nothing is written or deleted, and
//     one Warning and one metric say so. The Warning contains the command that deletes the copies. (Terraform and
//     Argo CD remove annotations that they do not know and set them again.)
//  5. A Secret with the label is a copy and can be overwritten, unless it was made for another place. Any other
//     Secret with the name of the copy is left alone and reported.
//
// A copy is written at most every five seconds, the first time at once.
//
// The queue has an entry for each copy, even before it exists, so a namespace that refuses its copy does not delay
// the others. The caches say when there may be something to do, and live reads decide. Nothing is written to
// kube-system, kube-public or the source namespace. No byte of a Secret appears in a log, an event or a metric.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is the controller's name in flags, logs, metrics and events.
const Name = "secretsync"

const fieldManager = Name + "-controller"

const (
	// interval is the shortest time between two writes of a copy.
	interval = 5 * time.Second
	// quiet is how long the last write of a copy that is gone is remembered.
	quiet = 10 * time.Minute
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

var writesTotal = promauto.With(legacyregistry.Registerer()).NewCounterVec(prometheus.CounterOpts{
	Name: "secretsync_writes_total",
	Help: "Writes of copies of Secrets, by action: create, update, replace (which is a deletion and a creation) or delete.",
}, []string{"action"})

// Controller maintains copies of Secrets. Its keys are the namespaces and names of copies. One sync goes
//
//	EnsureReady → observe → Decide → wait → read live → Decide → write → report
type Controller struct {
	*worker.Loop

	sourceNamespace string
	kube            kubernetes.Interface
	recorder        record.EventRecorder
	metrics         metrics.Controller

	sources    corelisters.SecretLister
	copies     corelisters.SecretLister
	namespaces corelisters.NamespaceLister

	writes   *consistency.Store
	attempts pace.Attempts // for each copy, as long as its namespace exists
	troubles *troubles
}

// NewController wires a controller to its informers and starts nothing. The informer of sources must be
// restricted to the source namespace, and the informer of copies to Secrets whose LabelSourceNamespace names it.
func NewController(sourceNamespace string, kube kubernetes.Interface, recorder record.EventRecorder,
	sources, copies coreinformers.TypedSecretInformer, namespaces coreinformers.TypedNamespaceInformer,
) (*Controller, error) {
	c := &Controller{
		sourceNamespace: sourceNamespace,
		kube:            kube,
		recorder:        recorder,
		metrics:         metrics.For(Name),
		sources:         sources.Lister(),
		copies:          copies.Lister(),
		namespaces:      namespaces.Lister(),
		writes:          consistency.New(map[schema.GroupResource]consistency.Seen{secretResource.GroupResource(): copies.Informer().GetStore()}),
		troubles:        newTroubles(),
	}
	for _, action := range []Action{Create, Update, Replace, Delete} {
		writesTotal.WithLabelValues(string(action)) // from the start: a rate cannot see the step from nothing to one
	}
	c.Loop = worker.New(Name, c.sync)
	if err := errors.Join(
		sources.Informer().SetTransform(stripped(stripSource)),
		copies.Informer().SetTransform(stripped(stripCopy)),
		namespaces.Informer().SetTransform(stripped(stripNamespace)),
		c.addHandlers(sources.TypedInformer(), copies.TypedInformer(), namespaces.TypedInformer()),
	); err != nil {
		return nil, err
	}
	c.addGauges()
	return c, nil
}

// stripped returns the transform of a cache that keeps what strip leaves of each object.
func stripped[T runtime.Object](strip func(T)) cache.TransformFunc {
	return func(obj any) (any, error) {
		if obj, ok := obj.(T); ok {
			strip(obj)
		}
		return obj, nil
	}
}

// cached returns what a lister found; nil if nothing. A lister has no other errors.
func cached[T any](found T, _ error) T { return found }

// addHandlers queues the copies that a change of a source, a copy or a namespace can affect, and
// records unclear annotations.
func (c *Controller) addHandlers(sources, copies coreinformers.SecretIndexInformer, namespaces coreinformers.NamespaceIndexInformer) error {
	sourceHandler, errSources := sources.AddTypedEventHandler(worker.Follow(c.followSource))
	copyHandler, errCopies := copies.AddTypedEventHandler(worker.Follow(func(secret *corev1.Secret) { c.Add(cache.MetaObjectToName(secret)) }))
	following := worker.Follow(c.followNamespace)
	following.UpdateFunc = c.followChange
	namespaceHandler, errNamespaces := namespaces.AddTypedEventHandler(following)
	_, errWarnings := sources.AddTypedEventHandler(warnAbout(c.recorder, unclearSource))
	_, errMoreWarnings := namespaces.AddTypedEventHandler(warnAbout(c.recorder, c.unclearNamespace))
	if err := errors.Join(errSources, errCopies, errNamespaces, errWarnings, errMoreWarnings); err != nil {
		return err
	}
	c.WaitFor(sourceHandler.HasSyncedChecker(), copyHandler.HasSyncedChecker(), namespaceHandler.HasSyncedChecker())
	return nil
}

// followSource queues the copies of a source: those that exist, and those that may have to be created.
func (c *Controller) followSource(source *corev1.Secret) {
	for _, namespace := range cached(c.namespaces.List(labels.Everything())) {
		if answerOf(namespace) == yes || cached(c.copies.Secrets(namespace.Name).Get(source.Name)) != nil {
			c.Add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// followNamespace queues the copies in a namespace: those that exist, and those that may have to be created.
// Whether the source namespace exists affects all copies.
func (c *Controller) followNamespace(namespace *corev1.Namespace) {
	affected := namespace.Name
	if affected == c.sourceNamespace {
		affected = metav1.NamespaceAll
	}
	for _, secret := range cached(c.copies.Secrets(affected).List(labels.Everything())) {
		c.Add(cache.MetaObjectToName(secret))
	}
	if answerOf(namespace) == yes {
		for _, source := range cached(c.sources.List(labels.Everything())) {
			c.Add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// followChange queues the copies that a change of a namespace affects. Most changes affect none.
func (c *Controller) followChange(before, after *corev1.Namespace) {
	isSame := before.UID == after.UID && answerOf(before) == answerOf(after) && isGone(before) == isGone(after)
	if isSame && before.ResourceVersion != after.ResourceVersion { // otherwise it is a resync
		return
	}
	c.followNamespace(before)
	c.followNamespace(after)
}

// warnAbout returns handlers that record what is wrong with the annotation of an object, when
// it becomes wrong.
func warnAbout[T interface {
	cache.Object
	runtime.Object
}](recorder record.EventRecorder, whyUnclear func(T) string) cache.TypedResourceEventHandlerFuncs[T] {
	warn := func(about T, before string) {
		if now := whyUnclear(about); now != before && now != "" {
			recorder.Event(about, corev1.EventTypeWarning, ReasonUnclear, now)
			klog.Background().WithName(Name).Info("An annotation is unclear", "object", klog.KObj(about), "message", now) //nolint:forbidigo // a handler has no context
		}
	}
	return cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc:    func(obj T) { warn(obj, "") },
		UpdateFunc: func(before, after T) { warn(after, whyUnclear(before)) },
	}
}

func (c *Controller) unclearNamespace(namespace *corev1.Namespace) string {
	return unclearNamespace(namespace, c.sourceNamespace)
}

// sync brings one copy closer to what it should be.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Deferred(err)
	}
	o := c.observe(name)
	if o.TargetNS == nil {
		c.writes.Clear(name)
		c.attempts.Forget(name)
		c.troubles.note(name, Problem{}, "", time.Now())
		return 0, nil
	}
	d := Decide(o)
	if d.Action != None && c.wait(o, d, time.Now()) == 0 {
		if o, err = c.readLive(ctx, o); err != nil {
			return 0, err
		}
		if d = Decide(o); d.Action != None {
			err = c.act(ctx, o, d)
		}
	}
	return c.report(ctx, o, d, err)
}

// observe reads what a decision depends on from the caches.
func (c *Controller) observe(name cache.ObjectName) Observed {
	unwanted, known := c.troubles.unwanted(name, time.Now())
	return Observed{
		Name:            name.AsNamespacedName(),
		SourceNamespace: c.sourceNamespace,
		TargetNS:        cached(c.namespaces.Get(name.Namespace)),
		SourceNS:        cached(c.namespaces.Get(c.sourceNamespace)),
		Source:          cached(c.sources.Secrets(c.sourceNamespace).Get(name.Name)),
		Copy:            cached(c.copies.Secrets(name.Namespace).Get(name.Name)),
		Unwanted:        unwanted,
		UnwantedFor:     known,
	}
}

// readLive reads the source and the namespaces from the API server. Any cache can be behind, and data cannot be taken back
// after it was copied or deleted.
func (c *Controller) readLive(ctx context.Context, o Observed) (_ Observed, err error) {
	namespaces := c.kube.CoreV1().Namespaces()
	if o.TargetNS, err = orNil(namespaces.Get(ctx, o.Name.Namespace, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("reading the namespace: %w", err)
	}
	if o.Source, err = orNil(c.kube.CoreV1().Secrets(c.sourceNamespace).Get(ctx, o.Name.Name, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("reading the source: %w", err)
	}
	if o.Source != nil {
		return o, nil
	}
	if o.SourceNS, err = orNil(namespaces.Get(ctx, c.sourceNamespace, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("reading the source namespace: %w", err)
	}
	return o, nil
}

// orNil returns nil instead of a not-found error.
func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

func (o Observed) key() cache.ObjectName { return cache.NewObjectName(o.Name.Namespace, o.Name.Name) }

// place identifies a copy in the attempts, even if it does not exist: by its name, and the UID of its namespace.
func (o Observed) place() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.Name.Namespace, Name: o.Name.Name, UID: o.TargetNS.UID}
}

// wait returns how long to wait before a copy is written: the pause of a write that was refused or reverted, and at
// least five seconds after any other.
func (c *Controller) wait(o Observed, d Decision, now time.Time) time.Duration {
	last, asked := c.attempts.Last(o.place()), o.asked(d)
	pause := last.Wait(asked, now)
	if last.Count > 0 && (last.Failure == nil || last.Wish != asked) {
		pause = max(pause, min(interval, last.At.Add(interval).Sub(now)))
	}
	return pause
}

// act carries out a decision, and notes the outcome.
func (c *Controller) act(ctx context.Context, o Observed, d Decision) error {
	stored, err := c.write(ctx, o, d)
	c.attempts.Note(o.place(), c.attempts.Last(o.place()).Then(o.asked(d), err, time.Now()))
	if err != nil {
		return err
	}
	if stored != nil {
		c.writes.WroteAt(o.key(), secretResource.GroupResource(), stored.ResourceVersion)
	}
	writesTotal.WithLabelValues(string(d.Action)).Inc()
	klog.FromContext(ctx).V(2).Info("Wrote the copy", "action", d.Action)
	return nil
}

// write returns the copy as the API server has stored it; nil for a deletion. An update and a deletion have the
// UID and the resource version of the copy as preconditions.
func (c *Controller) write(ctx context.Context, o Observed, d Decision) (stored *corev1.Secret, err error) {
	secrets := c.kube.CoreV1().Secrets(o.Name.Namespace)
	switch d.Action {
	case Create:
		stored, err = secrets.Create(ctx, o.want(), metav1.CreateOptions{FieldManager: fieldManager})
		return stored, redact("creating the copy", err)
	case Update:
		kind, body, err := o.patch()
		if err != nil {
			return nil, err
		}
		stored, err = secrets.Patch(ctx, o.Name.Name, kind, body, metav1.PatchOptions{FieldManager: fieldManager})
		return stored, redact("updating the copy", err)
	case Replace: // An outdated copy is better than none, so the API server is asked first.
		_, err := secrets.Create(ctx, o.want(), metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
		if err != nil && !response.IsAlreadyExists(err, secretResource.GroupResource(), o.Name.Name) {
			return nil, redact("asking whether the copy can be created again", err)
		}
	default:
	}
	only := &metav1.Preconditions{UID: &o.Copy.UID, ResourceVersion: &o.Copy.ResourceVersion}
	if err := secrets.Delete(ctx, o.Name.Name, metav1.DeleteOptions{Preconditions: only}); err != nil {
		return nil, redact("deleting the copy", err)
	}
	if d.Action == Delete {
		c.tell(corev1.EventTypeNormal, o.about(ReasonDeleted, "deleted the copy, because "+d.Why))
		return nil, nil
	}
	c.tell(corev1.EventTypeNormal, o.about(ReasonReplaced, "deleting and creating the copy again, because "+d.Why))
	// The API server may have called webhooks twice since the live reads.
	if o, err = c.readLive(ctx, o); err != nil || !o.IsWanted() {
		return nil, err
	}
	stored, err = secrets.Create(ctx, o.want(), metav1.CreateOptions{FieldManager: fieldManager})
	return stored, redact("creating the copy again", err)
}

// report records a new problem of the copy, and returns the result of the sync.
func (c *Controller) report(ctx context.Context, o Observed, d Decision, err error) (requeueAfter time.Duration, _ error) {
	now, problem, requeueAfter := time.Now(), d.Problem, d.RequeueAfter
	if o.TargetNS == nil {
		return 0, nil // The cache will show it.
	}
	switch {
	case d.Action != None:
		requeueAfter = c.wait(o, d, now)
	case o.Copy != nil: // Without a copy, a refusal still counts: the copy can be wanted again in a moment.
		c.attempts.Settle(o.place())
	}
	last := c.attempts.Last(o.place())
	isContested, quietAfter := last.IsContested(d.Action != None, now)
	switch {
	case isContested:
		problem = o.about(ReasonContested, "the copy does not stay as it is written: someone, or an admission webhook, changes it each time; retrying with back-off")
		requeueAfter = pace.Sooner(requeueAfter, quietAfter)
	case d.Action != None && last.Count > 1 && response.IsRefusal(last.Failure): // A policy or a cache that is behind can cause the first.
		problem = o.about(ReasonFailed, last.Failure.Error())
		if d.Action == Create && isNameTaken(last.Failure) {
			problem.Reason = ReasonNameTaken
		}
	}
	if o.Copy == nil && d.Action == None {
		if left := last.At.Add(quiet).Sub(now); left > 0 {
			requeueAfter = pace.Sooner(requeueAfter, left)
		} else {
			c.attempts.Forget(o.key())
		}
	}
	if c.troubles.note(o.key(), problem, d.Unwanted, now) {
		c.tell(corev1.EventTypeWarning, problem)
		klog.FromContext(ctx).Info("The copy is not as it should be", "reason", problem.Reason, "message", problem.Message)
	}
	switch {
	case response.IsStale(err, secretResource.GroupResource(), o.Name.Name):
		return requeueAfter, worker.Deferred(err)
	case response.IsRefusal(err):
		return requeueAfter, worker.NoBackoff(err)
	}
	return requeueAfter, err
}

// tell records an event.
func (c *Controller) tell(kind string, problem Problem) {
	c.recorder.Event(&problem.About, kind, problem.Reason, problem.Message)
}

// addGauges adds the gauges, which are counted whenever metrics are read.
func (c *Controller) addGauges() {
	metrics.Count("secretsync_copies", "Copies of Secrets that exist and should.", nil, func(add func(n float64, values ...string)) {
		copies := 0
		for _, secret := range cached(c.copies.List(labels.Everything())) {
			if o := c.observe(cache.MetaObjectToName(secret)); o.Copy != nil && o.isMade() && o.IsWanted() {
				copies++
			}
		}
		add(float64(copies))
	})
	// Not "namespace": Prometheus sets that label to the namespace of this process.
	metrics.Count("secretsync_troubles", "Copies that cannot be written, do not stay as they are written or are frozen, by their namespace (* if it is about all of them) and reason. UnclearAnnotation counts sources and namespaces.",
		[]string{"copy_namespace", "reason"}, c.countTroubles)
}

// countTroubles adds up what is in trouble. A namespace has no series while nothing is.
func (c *Controller) countTroubles(add func(n float64, values ...string)) {
	counts := c.troubles.counts()
	for _, source := range cached(c.sources.List(labels.Everything())) {
		if unclearSource(source) != "" {
			counts[counted{everywhere, ReasonUnclear}]++
		}
	}
	for _, namespace := range cached(c.namespaces.List(labels.Everything())) {
		if c.unclearNamespace(namespace) != "" {
			counts[counted{namespace.Name, ReasonUnclear}]++
		}
	}
	for _, reason := range []string{ReasonFailed, ReasonContested, ReasonNameTaken, ReasonUnclear, ReasonMarkMissing, ReasonSourceNamespaceGone} {
		counts[counted{everywhere, reason}] += 0 // from the start: dashboards show zeros
	}
	for is, n := range counts {
		add(float64(n), is.namespace, is.reason)
	}
}
