// Command secretsync copies Secrets from one namespace to others.
//
// It decides which copies there should be: one of each marked Secret in the source
// namespace, in each marked namespace that may have that Secret. It writes these copies,
// and events about their sources and about namespaces. It never writes to kube-system,
// kube-public or the source namespace. It never changes or deletes a Secret that lacks the
// label of a copy or was made for another name or namespace. Nothing is shown to a namespace
// unless the API server has just confirmed that it asks for it. It holds deletions that hardly
// anyone can want until someone confirms them.
//
// The queue has an entry for each copy, also for one that does not exist yet, so a namespace that
// refuses its copy delays no other. The caches say when there may be something to do, and live
// reads decide: of the source and the namespace before data is written or a copy is deleted, and of the
// source namespace if the source is gone.
//
// The source is read first and its namespace after that. A namespace is marked as being deleted
// before anything in it is. So if the source was deleted with its namespace, the second read shows
// that the namespace was being deleted, is gone, or has another UID, and the deletion of the copies
// is held. What happened while no process was running, such as a change of flags, is seen at
// startup. Deletions are counted by namespace, so a tenant who plants Secrets that look like copies
// changes nothing in other namespaces.
//
// No byte of a Secret appears in a log, an event or a metric.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
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
	ReasonFailed      = "CopyFailed"        // the API server refuses the copy
	ReasonReplaced    = "CopyReplaced"      // the copy was deleted and re-created, because it could not be updated
	ReasonDeleted     = "CopyDeleted"       // the copy was deleted
	ReasonAltered     = "CopyAltered"       // the API server stored something else than requested
	ReasonContested   = "CopyContested"     // someone keeps reverting the copy
	ReasonTerminating = "CopyTerminating"   // finalizers hold a copy that is wrong
	ReasonNotMade     = "NotACopy"          // about a Secret with the label of a copy that secretsync has not made
	ReasonHeld        = "DeletionsHeld"     // about the source namespace: deletions need a confirmation
	ReasonMarkMissing = "MarkMissing"       // a source that has copies has lost its mark
	ReasonUnclear     = "UnclearAnnotation" // also about namespaces: what an annotation says is unclear
)

const (
	// No event arrives when a Secret that is not a copy is deleted. So once a minute, one list
	// for each source shows where its name is free again. A list for a name that has just turned
	// out to be taken must be newer.
	retryTaken, freshLook = time.Minute, 10 * time.Second
	// A new copy is synced once more even if there is no event: if it is deleted before the
	// cache shows it, and the watch breaks off at the same time, no event ever says so.
	recheckCreated = time.Minute
)

var secretResource = corev1.SchemeGroupVersion.WithResource("secrets")

var writesTotal = promauto.With(legacyregistry.Registerer()).NewCounterVec(prometheus.CounterOpts{
	Name: "secretsync_writes_total",
	Help: "Writes of copies of Secrets, by action: create, update, replace (which is a deletion and a creation) or delete.",
}, []string{"action"})

// Controller maintains copies of Secrets. Its keys are the namespaces and names of
// copies, so that a namespace that cannot be written to delays no other. One sync goes
//
//	EnsureReady → observe → Decide → ask the ledger → read live, Decide → write → report
//
// What was shown cannot be taken back, nor what was deleted. So before either, the source and the
// namespaces are read from the API server, and Decide is asked again.
type Controller struct {
	*worker.Loop

	config   Config
	kube     kubernetes.Interface
	metadata metadata.Interface
	recorder record.EventRecorder
	metrics  metrics.Controller

	sources    corelisters.SecretLister
	copies     corelisters.SecretLister
	namespaces corelisters.NamespaceLister
	ready      []cache.DoneChecker

	writes   *consistency.Store
	ledger   *ledger.Ledger // of a copy in one namespace, as long as that exists
	memories *memories

	looking chan struct{}   // has room for the one who uses what follows
	looks   map[string]look // where Secrets are that are not copies, by the name of the source
}

// look is what a list of all Secrets of one name has shown.
type look struct {
	at      time.Time
	strange map[string]bool // the namespaces in which that Secret is not a copy
	err     error
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
		sources:    sources.Lister(),
		copies:     copies.Lister(),
		namespaces: namespaces.Lister(),
		writes:     consistency.New(map[schema.GroupResource]consistency.Seen{secretResource.GroupResource(): copies.Informer().GetStore()}),
		ledger:     ledger.New(), // Copies have no status.
		memories:   newMemories(),
		looking:    make(chan struct{}, 1),
		looks:      map[string]look{},
	}
	for _, action := range []Action{Create, Update, Replace, Delete} {
		writesTotal.WithLabelValues(string(action)) // from the start: a rate cannot see the step from nothing to one
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
// namespace can affect, and memories warnings about annotations.
func (c *Controller) addHandlers(sources, copies coreinformers.SecretIndexInformer, namespaces coreinformers.NamespaceIndexInformer) error {
	ofSources, errSources := sources.AddTypedEventHandler(worker.Follow(c.followSource))
	ofCopies, errCopies := copies.AddTypedEventHandler(worker.Follow(func(secret *corev1.Secret) { c.Add(cache.MetaObjectToName(secret)) }))
	following := worker.Follow(c.followNamespace)
	following.UpdateFunc = c.followChange
	ofNamespaces, errNamespaces := namespaces.AddTypedEventHandler(following)
	_, errWarnings := sources.AddTypedEventHandler(warnAbout(c.recorder, c.config.warningAboutSource))
	_, errMoreWarnings := namespaces.AddTypedEventHandler(warnAbout(c.recorder, c.config.warningAboutNamespace))
	if err := errors.Join(errSources, errCopies, errNamespaces, errWarnings, errMoreWarnings); err != nil {
		return err
	}
	c.ready = []cache.DoneChecker{ofSources.HasSyncedChecker(), ofCopies.HasSyncedChecker(), ofNamespaces.HasSyncedChecker()}
	c.WaitFor(c.ready...)
	return nil
}

// followSource queues the copies of a source that there are, and those that there may have to be.
func (c *Controller) followSource(source *corev1.Secret) {
	for _, namespace := range cached(c.namespaces.List(labels.Everything())) {
		if c.config.isTarget(namespace) || cached(c.copies.Secrets(namespace.Name).Get(source.Name)) != nil {
			c.Add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// followNamespace queues the copies that exist in a namespace, and those that may have to. The
// existence of the source namespace affects all copies.
func (c *Controller) followNamespace(namespace *corev1.Namespace) {
	affected := namespace.Name
	if affected == c.config.SourceNamespace {
		affected = metav1.NamespaceAll
	}
	for _, secret := range cached(c.copies.Secrets(affected).List(labels.Everything())) {
		c.Add(cache.MetaObjectToName(secret))
	}
	if c.config.isTarget(namespace) {
		c.followSources(namespace.Name)
	}
}

// followSources queues the copies of all sources in a namespace.
func (c *Controller) followSources(namespace string) {
	for _, source := range cached(c.sources.List(labels.Everything())) {
		c.Add(cache.NewObjectName(namespace, source.Name))
	}
}

// followChange queues the copies that a change of a namespace affects: few changes do.
func (c *Controller) followChange(before, after *corev1.Namespace) {
	if after.Name == c.config.SourceNamespace {
		c.confirm(before, after)
	}
	isSame := before.UID == after.UID && isGone(before) == isGone(after) && before.ResourceVersion != after.ResourceVersion && // or it is a resync
		c.config.answerOf(before) == c.config.answerOf(after) && equality.Semantic.DeepEqual(before.Labels, after.Labels)
	if isSame {
		return
	}
	c.followNamespace(after)
	if c.config.isTarget(before) {
		c.followSources(before.Name)
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
	if o.TargetNS == nil {
		c.forget(name)
		return 0, nil
	}
	d := c.paced(name, o, Decide(o))
	if d.isWrite() {
		o, d, err = c.act(ctx, name, o, d)
	}
	return c.report(name, o, d, err)
}

// forget drops what is remembered of a copy whose namespace is gone.
func (c *Controller) forget(name cache.ObjectName) {
	c.writes.Clear(name)
	c.ledger.Forget(name)
	c.memories.change(name, func(r *memory) { *r = memory{} })
}

// observe reads what a decision depends on from the caches.
func (c *Controller) observe(name cache.ObjectName) Observed {
	remembered := c.memories.of(name)
	o := Observed{
		Config:    c.config,
		TargetNS:  cached(c.namespaces.Get(name.Namespace)),
		SourceNS:  cached(c.namespaces.Get(c.config.SourceNamespace)),
		Source:    cached(c.sources.Secrets(c.config.SourceNamespace).Get(name.Name)),
		Copy:      cached(c.copies.Secrets(name.Namespace).Get(name.Name)),
		Brake:     remembered.Brake,
		Confirmed: remembered.Confirmed,
	}
	if since := remembered.GoneSince; !since.IsZero() {
		o.GoneFor = time.Since(since)
	}
	return o
}

// edit is what the ledger is asked about changes of the goal, which follow each other as slowly as
// repairs do if a source changes all the time.
func edit(d Decision) ledger.Ask { return ledger.Ask{Part: "edits", Left: d.Ask.Goal} }

// paced returns the decision, or that it has to wait, by what became of earlier writes.
func (c *Controller) paced(name cache.ObjectName, o Observed, d Decision) Decision {
	account := c.ledger.Find(name, o.TargetNS.UID)
	if account == nil || d.Ask.Goal == "" {
		return d
	}
	now := time.Now()
	s := account.Standing(now, []ledger.Ask{d.Ask})
	edits := account.Standing(now, []ledger.Ask{edit(d)})
	switch {
	case !d.isWrite():
		if s.Undone != "" {
			d.Problem, d.RequeueAfter = contested(s.Undone), s.Wait
		}
		return d
	case !s.IsOpen: // What admission has made of it is accepted until either side changes.
		return Decision{Action: Later}
	case len(s.Due) == 0 && s.Undone != "":
		return Decision{Action: Later, Problem: contested(s.Undone), RequeueAfter: s.Wait}
	case len(s.Due) == 0:
		return Decision{Action: Later, RequeueAfter: s.Wait}
	case edits.IsOpen && len(edits.Due) == 0:
		return Decision{Action: Later, RequeueAfter: edits.Wait}
	}
	if wait := account.Spend(now); wait > 0 {
		return Decision{Action: Later, RequeueAfter: wait}
	}
	return d
}

func contested(by string) Problem {
	return Problem{ReasonContested, "the copy keeps being reverted, last by " + by + "; retrying with back-off"}
}

// act makes the writes that were decided on, if the API server says that they are right, and
// returns the decision with what came of it.
func (c *Controller) act(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (Observed, Decision, error) {
	if d.Action == Create && c.memories.of(name).Problem.Reason == ReasonNameTaken {
		if isTaken, err := c.isTaken(ctx, name, retryTaken); err != nil || isTaken {
			return o, inTheWay(), err
		}
	}
	live, err := c.recheckLive(ctx, name, o, d.Action)
	if err != nil {
		return o, Decision{Action: Later}, err
	}
	o = live
	if d = Decide(o); !d.isWrite() {
		return o, d, nil
	}
	stored, err := c.write(ctx, name, o, d)
	if isInTheWay(err, name) { // If it is a copy, the cache does not show it yet, or it is gone again.
		if isTaken, lookErr := c.isTaken(ctx, name, freshLook); lookErr != nil || isTaken {
			return o, inTheWay(), lookErr
		}
	}
	if err == nil && stored != nil {
		c.writes.WroteAt(name, secretResource.GroupResource(), stored.ResourceVersion)
	}
	d, err = c.note(name, o, d, stored, err)
	if err == nil && d.isWrite() {
		writesTotal.WithLabelValues(string(d.Action)).Inc()
		klog.FromContext(ctx).V(2).Info("Wrote the copy", "action", d.Action)
	}
	return o, d, err
}

// isInTheWay reports whether the API server says that there is a Secret of the copy's name.
func isInTheWay(err error, copied cache.ObjectName) bool {
	return response.IsAlreadyExists(err, secretResource.GroupResource(), copied.Name)
}

func inTheWay() Decision {
	return Decision{Action: Later, Problem: Problem{ReasonNameTaken, taken}, RequeueAfter: retryTaken}
}

// recheckLive replaces what is known of the source and of the namespaces by live reads, as far as
// the action depends on it. Each cache may be older than another: of a namespace that is no longer
// marked, or of a source that is no longer meant for it.
func (c *Controller) recheckLive(ctx context.Context, name cache.ObjectName, o Observed, action Action) (_ Observed, err error) {
	if action == Update && bytes.Equal(digestOf(o.Copy), digestOf(o.Source)) {
		return o, nil // Nothing new is shown.
	}
	namespaces := c.kube.CoreV1().Namespaces()
	if o.TargetNS, err = orNil(namespaces.Get(ctx, name.Namespace, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("rechecking the namespace: %w", err)
	}
	// A list with one object needs no permission but that of the caches.
	found, err := c.kube.CoreV1().Secrets(c.config.SourceNamespace).List(ctx, metav1.ListOptions{FieldSelector: named(name.Name)})
	if err != nil {
		return o, fmt.Errorf("rechecking the source: %w", err)
	}
	o.Source = nil
	if len(found.Items) > 0 {
		o.Source = &found.Items[0]
		c.config.StripSource(o.Source)
	}
	if o.Source != nil && o.Source.DeletionTimestamp == nil {
		return o, nil
	}
	// The source namespace is read after the source: if the source was deleted with its
	// namespace, that namespace was being deleted by then.
	if o.SourceNS, err = orNil(namespaces.Get(ctx, c.config.SourceNamespace, metav1.GetOptions{})); err != nil {
		return o, fmt.Errorf("rechecking the source namespace: %w", err)
	}
	return o, nil
}

// named selects the objects of that name.
func named(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// orNil returns nil instead of the error that there is no such object.
func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// write returns the copy as the API server has stored it; nil for a deletion. An update has the
// UID and the resource version of the copy as preconditions, as has a deletion.
func (c *Controller) write(ctx context.Context, name cache.ObjectName, o Observed, d Decision) (*corev1.Secret, error) {
	secrets := c.kube.CoreV1().Secrets(name.Namespace)
	create := func(dryRun ...string) (*corev1.Secret, error) {
		return secrets.Create(ctx, o.want(), metav1.CreateOptions{FieldManager: fieldManager, DryRun: dryRun})
	}
	switch d.Action {
	case Create:
		stored, err := create()
		return stored, wrapped("creating the copy", err)
	case Update:
		body, err := o.patch()
		if err != nil {
			return nil, err
		}
		stored, err := secrets.Patch(ctx, name.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		return stored, wrapped("updating the copy", err)
	case Replace: // An outdated copy is better than none, so the API server is asked first.
		if _, err := create(metav1.DryRunAll); err != nil && !isInTheWay(err, name) {
			return nil, wrapped("asking whether the copy can be re-created", err)
		}
	default:
	}
	only := &metav1.Preconditions{UID: &o.Copy.UID, ResourceVersion: &o.Copy.ResourceVersion}
	if err := secrets.Delete(ctx, name.Name, metav1.DeleteOptions{Preconditions: only}); err != nil {
		return nil, wrapped("deleting the copy", err)
	}
	if d.Action == Delete {
		c.tell(name, o, corev1.EventTypeNormal, ReasonDeleted, "deleted the copy, because "+d.Why)
		return nil, nil
	}
	c.tell(name, o, corev1.EventTypeNormal, ReasonReplaced, "deleting and re-creating the copy, because "+d.Why)
	stored, err := create()
	return stored, wrapped("re-creating the copy", err)
}

func wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// note notes in the ledger what came of a write, and returns the decision with what follows. An
// error that says nothing about the copy, such as one of the connection, is returned as it is.
func (c *Controller) note(name cache.ObjectName, o Observed, d Decision, stored *corev1.Secret, err error) (Decision, error) {
	outcome, left := ledger.Outcome{Undone: o.undoneBy()}, d.Ask
	switch {
	case err == nil && stored != nil:
		outcome.Left = o.left(stored)
		left.Left = outcome.Left
	case err == nil:
		left.Left = ""
	case response.IsStale(err, secretResource.GroupResource(), name.Name):
		return Decision{Action: Later}, worker.Deferred(o.redact(err))
	case response.IsRefusal(err):
		outcome = ledger.Outcome{Refusal: o.redact(err)}
	default:
		return Decision{Action: Later}, o.redact(err)
	}
	now, account := time.Now(), c.ledger.Of(name, o.TargetNS.UID)
	wasRefused := account.Standing(now, []ledger.Ask{d.Ask}).Refusal != nil
	account.Note(now, d.Ask, outcome)
	if account.Standing(now, []ledger.Ask{edit(d)}).IsOpen {
		account.Note(now, edit(d), ledger.Outcome{Left: d.Ask.Goal})
	}
	s := account.Standing(now, []ledger.Ask{left})
	d.RequeueAfter = s.Wait
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), response.IsByPolicy(err) && !wasRefused:
		// The cache will show that the namespace is being deleted. A policy can see a namespace as it
		// was before it was marked.
		return Decision{Action: Later, RequeueAfter: s.Wait}, nil
	case err != nil:
		d.Action, d.Problem = Later, Problem{ReasonFailed, outcome.Refusal.Error()}
		return d, worker.NoBackoff(outcome.Refusal)
	case outcome.Left != "":
		d.Problem = Problem{ReasonAltered, fmt.Sprintf("an admission policy or webhook changed the copy before it was stored: its %s; that is accepted until the copy or its source changes",
			strings.Join(o.differences(stored), ", "))}
	case s.Undone != "":
		d.Problem = contested(s.Undone)
	}
	if d.Action == Create {
		d.RequeueAfter = soonest(d.RequeueAfter, recheckCreated)
	}
	return d, nil
}

// soonest returns the shorter of two delays, of which 0 means never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// isTaken reports whether there is a Secret of that name that is not a copy, by a list that is at
// most as old. One list answers for all namespaces. It reads no data.
func (c *Controller) isTaken(ctx context.Context, name cache.ObjectName, maxAge time.Duration) (bool, error) {
	select {
	case c.looking <- struct{}{}:
		defer func() { <-c.looking }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	last, ok := c.looks[name.Name]
	if !ok || time.Since(last.at) >= maxAge {
		last = look{at: time.Now(), strange: map[string]bool{}}
		found, err := c.metadata.Resource(secretResource).List(ctx, metav1.ListOptions{FieldSelector: named(name.Name)})
		if err != nil {
			last.err = fmt.Errorf("looking for Secrets of that name: %w", err)
			found = &metav1.PartialObjectMetadataList{}
		}
		for _, secret := range found.Items {
			if secret.Labels[LabelSourceNamespace] != c.config.SourceNamespace {
				last.strange[secret.Namespace] = true
			}
		}
		c.looks[name.Name] = last
	}
	return last.strange[name.Namespace], last.err
}

// report remembers what keeps the copy from being as it should be, memories it if that is
// news, and returns what should follow. What has to wait, and what says nothing about the copy,
// such as a stale cache, leaves the problem as it was.
func (c *Controller) report(name cache.ObjectName, o Observed, d Decision, err error) (requeueAfter time.Duration, _ error) {
	isWanted := o.IsWanted()
	isNews := c.memories.change(name, func(r *memory) {
		if d.Action != Later || d.Problem != (Problem{}) {
			r.Problem, r.Hold = d.Problem, d.Hold
		}
		switch {
		case o.Copy == nil || o.Source != nil && o.Source.DeletionTimestamp == nil:
			r.GoneSince = time.Time{}
		case r.GoneSince.IsZero():
			r.GoneSince = time.Now()
		}
		if o.Copy == nil || isWanted {
			r.Brake, r.Confirmed = "", ""
		}
	})
	if isNews {
		c.recordProblem(name, o, d)
		if err == nil {
			err = worker.NoBackoff(errors.New(d.Problem.Message))
		}
	}
	if o.TargetNS == nil || o.Copy != nil || d.Action != None {
		return d.RequeueAfter, err
	}
	if account := c.ledger.Find(name, o.TargetNS.UID); account != nil {
		rest := account.Rest(time.Now())
		if rest == 0 {
			c.ledger.Forget(name)
		}
		return soonest(d.RequeueAfter, rest), err
	}
	return d.RequeueAfter, err
}

// recordProblem memories what is wrong with a copy in an event about its source, or, if
// deletions are held, about the source namespace. What is no copy gets the event itself.
func (c *Controller) recordProblem(name cache.ObjectName, o Observed, d Decision) {
	switch d.Problem.Reason {
	case ReasonHeld:
		c.recorder.Eventf(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.config.SourceNamespace}}, corev1.EventTypeWarning, ReasonHeld,
			"Copies are not deleted, because %s. To confirm that they should be, on the namespace, once it exists: kubectl annotate --overwrite namespace %s %s=%s",
			d.Problem.Message, c.config.SourceNamespace, AnnotationConfirm, c.memories.idOf(d.Hold))
	case ReasonNotMade:
		c.recorder.Event(o.Copy, corev1.EventTypeWarning, d.Problem.Reason, d.Problem.Message)
	case ReasonMarkMissing:
		c.recorder.Event(o.Source, corev1.EventTypeWarning, d.Problem.Reason, d.Problem.Message)
	default:
		c.tell(name, o, corev1.EventTypeWarning, d.Problem.Reason, d.Problem.Message)
	}
}

// tell memories an event about a copy, on its source, even if that is gone.
func (c *Controller) tell(name cache.ObjectName, o Observed, kind, reason, message string) {
	source := cmp.Or(o.Source, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.config.SourceNamespace, Name: name.Name}})
	c.recorder.Eventf(source, kind, reason, "Namespace %q: %s", name.Namespace, message)
}

// addGauges adds the gauges, which are counted whenever metrics are read.
func (c *Controller) addGauges() {
	metrics.Count("secretsync_copies", "Copies of Secrets that exist and should.", nil, func(add func(n float64, values ...string)) {
		copies := 0
		for _, secret := range cached(c.copies.List(labels.Everything())) {
			if c.config.isMade(secret) && c.observe(cache.MetaObjectToName(secret)).IsWanted() {
				copies++
			}
		}
		add(float64(copies))
	})
	metrics.Count("secretsync_troubles", "Copies of Secrets that cannot be created, corrected or deleted, or do not stay as they were written, by reason; and sources and namespaces with an unclear annotation.", []string{"reason"}, func(add func(n float64, values ...string)) {
		counts := c.memories.problems()
		counts[ReasonUnclear] = c.unclear()
		for _, reason := range []string{ReasonNameTaken, ReasonFailed, ReasonAltered, ReasonContested, ReasonTerminating, ReasonHeld, ReasonMarkMissing, ReasonUnclear} {
			add(float64(counts[reason]), reason)
		}
	})
}

// unclear returns how many sources and namespaces have an unclear annotation.
func (c *Controller) unclear() (n int) {
	for _, source := range cached(c.sources.List(labels.Everything())) {
		if c.config.warningAboutSource(source) != (Problem{}) {
			n++
		}
	}
	for _, namespace := range cached(c.namespaces.List(labels.Everything())) {
		if c.config.warningAboutNamespace(namespace) != (Problem{}) {
			n++
		}
	}
	return n
}
