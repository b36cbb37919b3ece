package secretsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/consistency"
	"nicoleh.io/k8s-controller/pkg/kit/events"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/throttle"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// Name is the controller's name in flags, logs, metrics and events.
const Name = "secretsync"

const (
	fieldManager = Name + "-controller"
	// batchPeriod is how long changes of a copy are collected for one sync.
	batchPeriod = 50 * time.Millisecond
	// No event arrives when a Secret that is not a copy is deleted, or when a rule by
	// which a copy is invalid changes. So both are retried after some time.
	retryTaken   = time.Minute
	retryInvalid = 5 * time.Minute
	// A new copy is synced once more even if there is no event: if it is deleted before the
	// cache shows it, and the watch breaks off at the same time, no event ever says so.
	recheckCreated = time.Minute
)

var secretResource = corev1.Resource("secrets")

// Controller maintains copies of Secrets. Its keys are the namespaces and names of
// copies, so that a namespace that cannot be written to delays no other. One sync goes
//
//	ensureCachesReady → observe → decide → act → report
//
// Before anything is deleted, decide rechecks the source and the namespaces with live
// reads and decides again. The response to each write is compared with what was
// requested, and the result is remembered.
type Controller struct {
	*worker.Loop

	config          Config
	secrets         func(namespace string) secretClient
	namespaceClient namespaceClient
	metadata        metadata.Interface
	recorder        events.EventRecorder
	clock           clock.WithTickerAndDelayedExecution
	metrics         metrics.Controller
	written         metrics.Total // by action

	sources    informer.Cache[*corev1.Secret]
	copies     informer.Cache[*corev1.Secret]
	namespaces informer.Cache[*corev1.Namespace]

	writes    *consistency.Store // of copies
	keyWrites *consistency.Store
	keyMu     sync.Mutex // held while the key of content hashes is read or created
	memories  memories
	retries   *throttle.Limiter
	brake     brake
	isHolding atomic.Bool // whether it was recorded that deletions are held
}

// secretClient is what the controller needs of a typed client of Secrets.
type secretClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error)
	Update(ctx context.Context, secret *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// namespaceClient is what the controller needs of a typed client of namespaces.
type namespaceClient interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Namespace, error)
}

// NewController wires a controller to its informers and starts nothing. The informer of
// sources must be restricted to the source namespace, and that of copies to Secrets
// whose LabelSourceNamespace names it.
func NewController[C secretClient](
	config Config,
	secrets func(namespace string) C,
	namespaceClient namespaceClient,
	metadata metadata.Interface,
	sources, copies informer.Cache[*corev1.Secret],
	namespaces informer.Cache[*corev1.Namespace],
	recorder events.EventRecorder,
	clock clock.WithTickerAndDelayedExecution,
) (*Controller, error) {
	c := &Controller{
		config:          config,
		secrets:         func(namespace string) secretClient { return secrets(namespace) },
		namespaceClient: namespaceClient,
		metadata:        metadata,
		recorder:        recorder,
		clock:           clock,
		metrics:         metrics.For(Name),
		written:         newWritten(),
		sources:         sources,
		copies:          copies,
		namespaces:      namespaces,
	}
	c.Loop = worker.New(Name, c.sync, worker.WithClock(clock), worker.WithObserver(c.metrics.Sync), worker.WithKeys(c.names))
	c.retries = throttle.New(0, clock, c.AddAfter)
	c.writes = consistency.New(map[schema.GroupResource]consistency.Seen{secretResource: copies.GetStore()})
	c.keyWrites = consistency.New(map[schema.GroupResource]consistency.Seen{secretResource: sources.GetStore()})
	if err := c.setUpCaches(); err != nil {
		return nil, fmt.Errorf("setting up the caches: %w", err)
	}
	if err := c.addHandlers(); err != nil {
		return nil, fmt.Errorf("adding event handlers: %w", err)
	}
	c.addGauges()
	return c, nil
}

// Run syncs copies with that many workers until ctx ends, and returns when the last
// worker has finished. The informers are started by the caller.
func (c *Controller) Run(ctx context.Context, workers int) error {
	if cache.WaitFor(ctx, "", c.Ready()...) {
		c.brakeAtStart()
	}
	return c.Loop.Run(ctx, workers)
}

// sync brings one copy closer to what it should be. The keys of sources and of
// namespaces only have their annotations reviewed.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if err := c.ensureCachesReady(name); err != nil {
		return 0, err
	}
	if name.Namespace == metav1.NamespaceNone || name.Namespace == c.config.SourceNamespace {
		return 0, c.review(name)
	}
	observed, decision, err := c.decide(ctx, name, c.observe(name))
	if err == nil {
		observed.Memory, err = c.act(ctx, name, observed, &decision)
	}
	return c.report(ctx, name, observed, decision, redact(err, observed.exposed()))
}

// ensureCachesReady returns an error while the cache does not show what the controller
// wrote last.
func (c *Controller) ensureCachesReady(name cache.ObjectName) error {
	return c.metrics.StaleCacheWait(c.writes.EnsureReady(name))
}

// observe reads what a decision depends on from the caches.
func (c *Controller) observe(name cache.ObjectName) Observed {
	return Observed{
		Config:   c.config,
		Now:      c.clock.Now(),
		Memory:   c.memories.get(name),
		Brake:    c.brake.reason(name),
		TargetNS: c.namespaces.Get("", name.Namespace),
		SourceNS: c.namespaces.Get("", c.config.SourceNamespace),
		Source:   c.sources.Get(c.config.SourceNamespace, name.Name),
		Copy:     c.copies.Get(name.Namespace, name.Name),
	}
}

// decide decides what to do, and returns what that is based on. A retry waits for its
// turn. What is destructive is decided a second time, by live reads.
func (c *Controller) decide(ctx context.Context, name cache.ObjectName, o Observed) (Observed, Decision, error) {
	o, d, err := c.decideOnce(ctx, o)
	switch {
	case !d.IsRetry:
		c.retries.CancelRetry(name)
	case !c.retries.AllowRetry(name):
		return o, o.postpone(d, 0), err
	}
	if err != nil || !d.isDestructive() {
		return o, d, err
	}
	if o, err = c.recheckLive(ctx, name, o); err != nil {
		return o, d, err
	}
	return c.decideOnce(ctx, o)
}

// decideOnce adds the key of content hashes to o if a copy is wanted, and decides.
func (c *Controller) decideOnce(ctx context.Context, o Observed) (Observed, Decision, error) {
	if o.IsWanted() && o.SourceNS == nil {
		return o, Decision{}, fmt.Errorf("%w the source namespace", errNotCached)
	}
	if o.IsWanted() {
		var err error
		if o.Key, err = c.hashKey(ctx, o.SourceNS); err != nil {
			return o, Decision{}, err
		}
	}
	return o, Decide(o), nil
}

// recheckLive replaces what is known of the source and of both namespaces by live reads.
// Each cache may be older than another: a copy that another process has just written for
// a namespace that this process does not know to be marked yet must not be deleted.
func (c *Controller) recheckLive(ctx context.Context, name cache.ObjectName, o Observed) (Observed, error) {
	target, err := informer.OrNil(c.namespaceClient.Get(ctx, name.Namespace, metav1.GetOptions{}))
	if err != nil {
		return o, fmt.Errorf("rechecking the namespace: %w", err)
	}
	source, sourceErr := informer.OrNil(c.secrets(c.config.SourceNamespace).Get(ctx, name.Name, metav1.GetOptions{}))
	// The source namespace is read after the source: if the source was deleted with its
	// namespace, that namespace was being deleted by then.
	sourceNS, err := informer.OrNil(c.namespaceClient.Get(ctx, c.config.SourceNamespace, metav1.GetOptions{}))
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

// act writes what was decided, and returns what to remember of the copy. It adds to the
// decision what has become of the write.
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
	klog.FromContext(ctx).V(2).Info("Wrote the copy", "action", d.Action)
	now := c.clock.Now()
	memory := o.Memory.after(*d, o.lastManager(), altered, now)
	if d.Problem = memory.ongoing(now); d.Problem != (Problem{}) {
		d.RequeueAfter = memory.wait(now)
	}
	if d.Action == Create {
		d.RequeueAfter = backoff.MinRequeue(d.RequeueAfter, recheckCreated)
	}
	return memory, nil
}

// report records what keeps the copy from being as it should be, if that is news, and
// returns what should follow.
func (c *Controller) report(ctx context.Context, name cache.ObjectName, o Observed, d Decision, err error) (requeueAfter time.Duration, _ error) {
	before := o.Memory.Problem
	problem, err := problemOf(ctx, before, d, err)
	o.Memory.Problem = problem
	requeueAfter = backoff.MinRequeue(d.RequeueAfter, c.remember(name, o))
	isNews := c.recordProblem(name, o.Source, before, problem)
	switch {
	case apierrors.IsInvalid(err):
		return retryInvalid, worker.Terminal(err)
	case problem.Reason == ReasonNameTaken:
		requeueAfter = retryTaken
	}
	if err == nil && isNews {
		err = worker.Terminal(errors.New(problem.Message))
	}
	return requeueAfter, err
}

// problemOf returns what is wrong with the copy after a sync that ended with err, and
// the error that the loop should see. What says nothing about the copy, such as a stale
// cache, leaves the problem as it was.
func problemOf(ctx context.Context, before Problem, d Decision, err error) (Problem, error) {
	switch {
	case err == nil:
		return d.Problem, nil
	case response.IsStale(err) || errors.Is(err, errNotCached):
		return before, worker.Requeue(err)
	case errors.Is(err, errTaken):
		return Problem{ReasonNameTaken, err.Error()}, nil
	case ctx.Err() != nil:
		return before, err
	default:
		return Problem{ReasonFailed, err.Error()}, err
	}
}

// remember stores what is remembered of a copy, and returns when to check whether it can
// be forgotten; zero if an event will say so.
func (c *Controller) remember(name cache.ObjectName, o Observed) (requeueAfter time.Duration) {
	if o.Copy == nil || o.IsWanted() {
		c.brake.release(name)
	}
	if o.Copy == nil && !o.IsWanted() && o.Memory.Problem == (Problem{}) {
		if requeueAfter = o.Memory.forgetAfter(o.Now); requeueAfter == 0 {
			o.Memory = Memory{}
			c.retries.Forget(name)
		}
	}
	c.memories.set(name, o.Memory)
	return requeueAfter
}
