// Package secretsync copies Secrets from one namespace to others.
//
// It decides which copies there should be: one of each marked Secret in the source
// namespace, in each marked namespace that may have that Secret. It writes these copies,
// and events about their sources and about namespaces. It never writes to kube-system,
// kube-public or the source namespace. It never changes or deletes a Secret that lacks the
// label of a copy or belongs to another instance. It holds deletions that hardly anyone can
// want until someone confirms them.
//
// No byte of a Secret appears in a log, an event or a metric.
package secretsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is the controller's name in flags, logs, metrics and events.
const Name = "secretsync"

const fieldManager = Name + "-controller"

// The reasons of events, which are about sources, even those that are gone, unless the
// comment says otherwise.
const (
	ReasonNameTaken   = "ErrResourceExists" // a Secret of that name is not a copy
	ReasonFailed      = "CopyFailed"        // the API server refused the copy
	ReasonReplaced    = "CopyReplaced"      // the copy was deleted and re-created, because it could not be updated
	ReasonDeleted     = "CopyDeleted"       // the copy was deleted
	ReasonAltered     = "CopyAltered"       // the API server stored something else than requested
	ReasonContested   = "CopyContested"     // someone keeps reverting the copy
	ReasonTerminating = "CopyTerminating"   // finalizers hold a copy that is wrong
	ReasonNotMade     = "NotACopy"          // about a Secret with the label of a copy that secretsync has not made
	ReasonHeld        = "DeletionsHeld"     // about the source namespace: deletions need a confirmation
	ReasonNoReceivers = "NoReceivers"       // the source does not say in an intelligible way who may have it
	ReasonUnclear     = "UnclearAnnotation" // the mark of a source or a namespace is neither yes nor no
)

const (
	// No event arrives when a Secret that is not a copy is deleted, or when a rule by
	// which a copy is invalid changes. So both are retried after some time.
	retryTaken   = time.Minute
	retryInvalid = 5 * time.Minute
	// The cache shows soon that a namespace is being deleted. Until then, a copy that was
	// refused for that reason is retried this rarely.
	retryEnding = time.Minute
	// A new copy is synced once more even if there is no event: if it is deleted before the
	// cache shows it, and the watch breaks off at the same time, no event ever says so.
	recheckCreated = time.Minute
	// All copies that are altered or contested share a limit of writes: two per second, and
	// ten at once.
	contestedRate, contestedBurst = 2, 10
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

// Controller maintains copies of Secrets. Its keys are the namespaces and names of
// copies, so that a namespace that cannot be written to delays no other. One sync goes
//
//	EnsureReady → observe → Decide → act → report
//
// Before anything is deleted, the source and the namespaces are read from the API server,
// and Decide is asked again. The response to each write is compared with what was
// requested, and the result is remembered.
type Controller struct {
	*worker.Loop

	config   Config
	kube     kubernetes.Interface
	metadata metadata.Interface
	recorder record.EventRecorder
	metrics  metrics.Controller
	written  metrics.Total // by action

	sources    corelisters.SecretLister
	copies     corelisters.SecretLister
	namespaces corelisters.NamespaceLister
	ready      []cache.DoneChecker

	writes    *consistency.Store
	contested *rate.Limiter
	memories  sync.Map   // Memory by the name of the copy
	noticing  sync.Mutex // guards what is news
}

// NewController wires a controller to its informers and starts nothing. The informer of
// sources must be restricted to the source namespace, and that of copies to Secrets
// whose LabelSourceNamespace names it.
func NewController(config Config, kube kubernetes.Interface, metadata metadata.Interface, recorder record.EventRecorder,
	sources, copies coreinformers.TypedSecretInformer, namespaces coreinformers.TypedNamespaceInformer,
) (*Controller, error) {
	c := &Controller{
		config:     config,
		kube:       kube,
		metadata:   metadata,
		recorder:   recorder,
		metrics:    metrics.For(Name),
		written:    metrics.NewTotal("secretsync_writes_total", "Writes of copies of Secrets, by action: create, update, replace (which is a deletion and a creation) or delete.", "action", string(Create), string(Update), string(Replace), string(Delete)),
		sources:    sources.Lister(),
		copies:     copies.Lister(),
		namespaces: namespaces.Lister(),
		writes:     consistency.New(map[schema.GroupResource]consistency.Seen{secretResource.GroupResource(): copies.Informer().GetStore()}),
		contested:  rate.NewLimiter(contestedRate, contestedBurst),
	}
	c.Loop = worker.New(Name, c.sync)
	if err := errors.Join(
		sources.Informer().SetTransform(stripped(config.StripSource)),
		copies.Informer().SetTransform(stripped(StripCopy)),
		namespaces.Informer().SetTransform(stripped(config.StripNamespace)),
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

// addHandlers queues the names of the copies that a change of a source, a copy or a
// namespace can affect, and records warnings about annotations.
func (c *Controller) addHandlers(sources, copies coreinformers.SecretIndexInformer, namespaces coreinformers.NamespaceIndexInformer) error {
	ofSources, errSources := sources.AddTypedEventHandler(worker.Follow(c.followSource))
	ofCopies, errCopies := copies.AddTypedEventHandler(worker.Follow(func(secret *corev1.Secret) { c.Add(cache.MetaObjectToName(secret)) }))
	ofNamespaces, errNamespaces := namespaces.AddTypedEventHandler(worker.FollowBoth(c.followNamespace))
	_, errWarnings := sources.AddTypedEventHandler(warnAbout(c.recorder, c.config.warningAboutSource))
	_, errMoreWarnings := namespaces.AddTypedEventHandler(warnAbout(c.recorder, c.config.warningAboutNamespace))
	if err := errors.Join(errSources, errCopies, errNamespaces, errWarnings, errMoreWarnings); err != nil {
		return err
	}
	c.ready = []cache.DoneChecker{ofSources.HasSyncedChecker(), ofCopies.HasSyncedChecker(), ofNamespaces.HasSyncedChecker()}
	c.WaitFor(c.ready...)
	return nil
}

// followSource queues the copies of a source in all marked namespaces. Those in others
// were queued when the namespace lost its mark.
func (c *Controller) followSource(source *corev1.Secret) {
	for _, namespace := range cached(c.namespaces.List(labels.Everything())) {
		if c.config.IsTarget(namespace) {
			c.Add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// followNamespace queues the copies that exist in a namespace, and those that may have to. A
// change of the source namespace affects all copies: someone may have confirmed that they
// should be deleted.
func (c *Controller) followNamespace(namespace *corev1.Namespace) {
	affected := namespace.Name
	if affected == c.config.SourceNamespace {
		affected = metav1.NamespaceAll
	}
	for _, secret := range cached(c.copies.Secrets(affected).List(labels.Everything())) {
		c.Add(cache.MetaObjectToName(secret))
	}
	if c.config.IsTarget(namespace) {
		for _, source := range cached(c.sources.List(labels.Everything())) {
			c.Add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// warnAbout returns handlers that record what is wrong with the annotations of an object, if
// that was not wrong before.
func warnAbout[T interface {
	cache.Object
	runtime.Object
}](recorder record.EventRecorder, problemOf func(T) Problem) cache.TypedResourceEventHandlerFuncs[T] {
	warn := func(about T, before Problem) {
		if now := problemOf(about); now != before && now != (Problem{}) {
			recorder.Event(about, corev1.EventTypeWarning, now.Reason, now.Message)
		}
	}
	return cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc:    func(obj T) { warn(obj, Problem{}) },
		UpdateFunc: func(before, after T) { warn(after, problemOf(before)) },
	}
}

// Run syncs copies with that many workers until ctx ends, and returns when the last
// worker has finished.
func (c *Controller) Run(ctx context.Context, workers int) error {
	if cache.WaitFor(ctx, "", c.ready...) {
		c.brakeAtStart()
	}
	return c.Loop.Run(ctx, workers)
}

// sync brings one copy closer to what it should be.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.writes.EnsureReady(name); err != nil {
		c.metrics.StaleCacheWait()
		return 0, worker.Deferred(err)
	}
	o := c.observe(name)
	d := Decide(o)
	if d.isDestructive() {
		if o, err = c.recheckLive(ctx, name, o); err == nil {
			d = Decide(o)
		}
	}
	if err == nil && d.writes() {
		err = c.act(ctx, name, &o, &d)
	}
	return c.report(ctx, name, o, d, o.redact(err))
}

// observe reads what a decision depends on from the caches.
func (c *Controller) observe(name cache.ObjectName) Observed {
	memory, _ := c.memories.Load(name)
	remembered, _ := memory.(Memory)
	return Observed{
		Config:   c.config,
		Now:      time.Now(),
		TargetNS: cached(c.namespaces.Get(name.Namespace)),
		SourceNS: cached(c.namespaces.Get(c.config.SourceNamespace)),
		Source:   cached(c.sources.Secrets(c.config.SourceNamespace).Get(name.Name)),
		Copy:     cached(c.copies.Secrets(name.Namespace).Get(name.Name)),
		Memory:   remembered,
	}
}

// recheckLive replaces what is known of the source and of both namespaces by live reads.
// Each cache may be older than another: a copy that another process has just written for
// a namespace that this process does not know to be marked yet must not be deleted.
func (c *Controller) recheckLive(ctx context.Context, name cache.ObjectName, o Observed) (Observed, error) {
	core := c.kube.CoreV1()
	target, err := orNil(core.Namespaces().Get(ctx, name.Namespace, metav1.GetOptions{}))
	if err != nil {
		return o, fmt.Errorf("rechecking the namespace: %w", err)
	}
	source, sourceErr := orNil(core.Secrets(c.config.SourceNamespace).Get(ctx, name.Name, metav1.GetOptions{}))
	// The source namespace is read after the source: if the source was deleted with its
	// namespace, that namespace was being deleted by then.
	sourceNS, err := orNil(core.Namespaces().Get(ctx, c.config.SourceNamespace, metav1.GetOptions{}))
	if err != nil {
		return o, fmt.Errorf("rechecking the source namespace: %w", err)
	}
	o.SourceNS, o.TargetNS = sourceNS, target
	switch {
	case sourceErr == nil:
		o.Source = source
	case !isGone(sourceNS) || o.IsWanted(): // the permission to read the source goes with its namespace
		return o, fmt.Errorf("rechecking the source: %w", sourceErr)
	}
	return o, nil
}

// orNil returns nil instead of the error that there is no such object.
func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// act makes the writes that were decided on. It changes what is remembered of the copy, and
// adds to the decision what became of the writes.
func (c *Controller) act(ctx context.Context, name cache.ObjectName, o *Observed, d *Decision) error {
	altered, err := c.write(ctx, name, *o, *d)
	if err != nil {
		return err
	}
	c.written.Inc(string(d.Action))
	klog.FromContext(ctx).V(2).Info("Wrote the copy", "action", d.Action)
	now := time.Now()
	o.Memory = o.Memory.after(*d, o.revertedBy(), altered, now)
	if o.Memory.isContested() {
		o.Memory.Queued = c.contested.Reserve().Delay()
	}
	if d.Problem = o.Memory.ongoing(now); d.Problem != (Problem{}) {
		d.RequeueAfter = o.Memory.wait(now)
	}
	if d.Action == Create {
		d.RequeueAfter = backoff.MinRequeue(d.RequeueAfter, recheckCreated)
	}
	return nil
}

// write returns the parts of the copy that the API server has stored differently than
// requested. An update has the UID and the resource version of the copy as preconditions, as
// has a deletion.
func (c *Controller) write(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (altered []string, err error) {
	secrets := c.kube.CoreV1().Secrets(name.Namespace)
	if d.Action == Delete || d.Action == Replace {
		only := &metav1.Preconditions{UID: &o.Copy.UID, ResourceVersion: &o.Copy.ResourceVersion}
		if err := secrets.Delete(ctx, name.Name, metav1.DeleteOptions{Preconditions: only}); err != nil {
			return nil, fmt.Errorf("deleting the copy: %w", err)
		}
		reason, did := ReasonDeleted, "deleted the copy"
		if d.Action == Replace {
			reason, did = ReasonReplaced, "deleting and re-creating the copy"
		}
		c.recorder.Eventf(c.sourceOf(name, o.Source), corev1.EventTypeNormal, reason, "Namespace %q: %s, because %s", name.Namespace, did, d.Why)
	}
	var stored *corev1.Secret
	switch d.Action {
	case Delete:
		return nil, nil
	case Update:
		if stored, err = secrets.Update(ctx, d.Want, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
			return nil, fmt.Errorf("updating the copy: %w", err)
		}
	default:
		if stored, err = c.create(ctx, name, o.Memory.Problem.Reason == ReasonNameTaken, d.Want); err != nil {
			return nil, err
		}
	}
	c.writes.WroteAt(name, secretResource.GroupResource(), stored.ResourceVersion)
	return alteredIn(d.Want, stored), nil
}

// create creates a copy where the cache shows no Secret of that name. If there is one
// after all, it is left alone. Where one was in the way before, create looks first.
func (c *Controller) create(ctx context.Context, name cache.ObjectName, wasTaken bool, want *corev1.Secret) (*corev1.Secret, error) {
	if wasTaken {
		if err := c.requireFree(ctx, name); err != nil {
			return nil, err
		}
	}
	created, err := c.kube.CoreV1().Secrets(name.Namespace).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) { // If it is a copy, the cache does not show it yet, or it is gone again.
		if taken := c.requireFree(ctx, name); taken != nil {
			return nil, taken
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating the copy: %w", err)
	}
	return created, nil
}

// requireFree returns errTaken if there is a Secret of that name that is not a copy. It
// reads no data. It lists rather than gets, which would need another permission.
func (c *Controller) requireFree(ctx context.Context, name cache.ObjectName) error {
	found, err := c.metadata.Resource(secretResource).Namespace(name.Namespace).
		List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()})
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

// report remembers what keeps the copy from being as it should be, records it if that is
// news, and returns what should follow. What says nothing about the copy, such as a stale
// cache, leaves the problem as it was.
func (c *Controller) report(ctx context.Context, name cache.ObjectName, o Observed, d Decision, err error) (requeueAfter time.Duration, _ error) {
	before := o.Memory.Problem
	problem := before
	switch {
	case err == nil:
		problem, requeueAfter = d.Problem, d.RequeueAfter
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		requeueAfter, err = retryEnding, nil
	case response.IsStale(err):
		err = worker.Deferred(err)
	case errors.Is(err, errTaken):
		problem, requeueAfter, err = Problem{ReasonNameTaken, err.Error()}, retryTaken, nil
	case ctx.Err() != nil:
	case apierrors.IsInvalid(err):
		problem, requeueAfter, err = Problem{ReasonFailed, err.Error()}, retryInvalid, worker.NoBackoff(err)
	default:
		problem = Problem{ReasonFailed, err.Error()}
	}
	c.noticing.Lock() // Of several copies that are held at the same time, one is news.
	isNews := c.isNews(before, problem)
	o.Memory.Problem = problem
	requeueAfter = backoff.MinRequeue(requeueAfter, c.remember(name, o))
	c.noticing.Unlock()
	if isNews {
		c.recordProblem(name, o, problem)
		if err == nil {
			err = worker.NoBackoff(errors.New(problem.Message))
		}
	}
	return requeueAfter, err
}

// isNews reports whether a problem of a copy has not been recorded yet. That deletions are
// held is recorded once for all copies.
func (c *Controller) isNews(before, problem Problem) bool {
	if problem.Reason == ReasonHeld && c.problems()[ReasonHeld] > 0 {
		return false
	}
	return problem != before && problem != Problem{}
}

// recordProblem records what is wrong with a copy in an event about its source, or, if
// deletions are held, about the source namespace. What is no copy gets the event itself.
func (c *Controller) recordProblem(name cache.ObjectName, o Observed, problem Problem) {
	switch problem.Reason {
	case ReasonHeld:
		const until = "$(date -u -d +1hour +%Y-%m-%dT%H:%M:%SZ)"
		c.recorder.Eventf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.config.SourceNamespace}}, corev1.EventTypeWarning, ReasonHeld,
			"Copies are not deleted, because %s. To confirm their deletion: kubectl annotate --overwrite namespace %s %s=%s", problem.Message, c.config.SourceNamespace, AnnotationConfirm, until)
	case ReasonNotMade:
		c.recorder.Event(o.Copy, corev1.EventTypeWarning, problem.Reason, problem.Message)
	default:
		c.recorder.Eventf(c.sourceOf(name, o.Source), corev1.EventTypeWarning, problem.Reason, "Namespace %q: %s", name.Namespace, problem.Message)
	}
}

// sourceOf returns what to record events about a copy on: its source, even if that is gone.
func (c *Controller) sourceOf(name cache.ObjectName, source *corev1.Secret) *corev1.Secret {
	return cmp.Or(source, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.config.SourceNamespace, Name: name.Name}})
}

// remember stores what is remembered of a copy, and returns when to check whether it can
// be forgotten; zero if an event will say so.
func (c *Controller) remember(name cache.ObjectName, o Observed) (requeueAfter time.Duration) {
	if o.Copy == nil || o.IsWanted() {
		o.Memory.Brake = ""
	}
	if o.Copy == nil && !o.IsWanted() && o.Memory.Problem == (Problem{}) {
		if requeueAfter = o.Memory.forgetAfter(o.Now); requeueAfter == 0 {
			o.Memory = Memory{}
		}
	}
	if o.Memory == (Memory{}) {
		c.memories.Delete(name)
	} else {
		c.memories.Store(name, o.Memory)
	}
	return requeueAfter
}

// problems returns how many copies have a problem, by reason.
func (c *Controller) problems() map[string]int {
	counts := map[string]int{}
	c.memories.Range(func(_, memory any) bool {
		counts[memory.(Memory).Problem.Reason]++
		return true
	})
	return counts
}

// addGauges adds the gauges, which are counted whenever metrics are read.
func (c *Controller) addGauges() {
	metrics.Count("secretsync_copies", "Copies of Secrets that exist and belong to this instance.", nil, func(add func(n float64, values ...string)) {
		ours := 0
		for _, secret := range cached(c.copies.List(labels.Everything())) {
			if c.config.isOurs(secret) {
				ours++
			}
		}
		add(float64(ours))
	})
	metrics.Count("secretsync_troubles", "Copies of Secrets that cannot be created, corrected or deleted, or do not stay as they were written, by reason; and sources that no namespace may have (NoReceivers).", []string{"reason"}, func(add func(n float64, values ...string)) {
		counts := c.problems()
		counts[ReasonNoReceivers] = c.warnings()[ReasonNoReceivers]
		for _, reason := range []string{ReasonNameTaken, ReasonFailed, ReasonAltered, ReasonContested, ReasonTerminating, ReasonHeld, ReasonNoReceivers} {
			add(float64(counts[reason]), reason)
		}
	})
	metrics.Count("secretsync_unclear_annotations", "Sources and namespaces whose annotation means neither yes nor no.", nil, func(add func(n float64, values ...string)) {
		add(float64(c.warnings()[ReasonUnclear]))
	})
}

// warnings returns how many sources and namespaces have wrong annotations, by reason.
func (c *Controller) warnings() map[string]int {
	counts := map[string]int{}
	for _, source := range cached(c.sources.List(labels.Everything())) {
		counts[c.config.warningAboutSource(source).Reason]++
	}
	for _, namespace := range cached(c.namespaces.List(labels.Everything())) {
		counts[c.config.warningAboutNamespace(namespace).Reason]++
	}
	return counts
}
