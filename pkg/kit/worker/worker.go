package worker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	firstRetry = 5 * time.Millisecond
	maxBackoff = time.Minute
	// finishTimeout is how long a running sync may go on after the loop was told to stop.
	finishTimeout = 5 * time.Second
)

// Sync brings one object closer to its desired state. If requeueAfter is positive, the
// object is synced again after that time at the latest, even if nothing changes. The
// package comment says what each kind of error leads to.
//
// The logger in ctx carries the object's name. ctx ends five seconds after the loop was told
// to stop, and the loop then waits for Sync to return.
type Sync func(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error)

// Result says how one sync went.
type Result string

const (
	Synced   Result = "synced"   // no error
	GaveUp   Result = "gave_up"  // a terminal error: reported, waiting for a change or for requeueAfter
	Deferred Result = "deferred" // Requeue, or a conflict: to be retried, not reported
	Failed   Result = "failed"   // any other error: reported, to be retried
	Panicked Result = "panicked" // recovered: reported, to be retried
)

// Results are all possible results.
var Results = []Result{Synced, GaveUp, Deferred, Failed, Panicked}

// Outcome describes one finished sync.
type Outcome struct {
	Result Result
	Took   time.Duration // by the loop's clock
}

// Option changes a Loop from its defaults.
type Option func(*Loop)

// WithClock replaces the real clock in everything the loop measures or waits for.
func WithClock(c clock.WithTicker) Option {
	return func(l *Loop) { l.clock = c }
}

// WithRateLimiter replaces the per-object exponential back-off.
func WithRateLimiter(r workqueue.TypedRateLimiter[cache.ObjectName]) Option {
	return func(l *Loop) { l.backoff = r }
}

// WithObserver makes the loop call observe after every sync, in the goroutine of the
// worker. It must be fast, and safe for concurrent use.
func WithObserver(observe func(Outcome)) Option {
	return func(l *Loop) { l.observe = observe }
}

// WithKeys makes Run begin with a sync of each of these objects. Run reads the keys once,
// after everything that it waits for is done, so they can come from caches.
func WithKeys(keys iter.Seq[cache.ObjectName]) Option {
	return func(l *Loop) { l.keys = keys }
}

// Loop calls a Sync for every object that is added to it. Its methods are safe
// for concurrent use.
type Loop struct {
	name    string
	sync    Sync
	clock   clock.WithTicker
	backoff workqueue.TypedRateLimiter[cache.ObjectName]
	observe func(Outcome)
	keys    iter.Seq[cache.ObjectName]
	ready   []cache.DoneChecker

	mu      sync.Mutex
	queue   queue                     // nil until Run, as it starts goroutines
	held    map[cache.ObjectName]hold // not to be synced for some time
	running map[cache.ObjectName]run  // being synced now
}

type queue = workqueue.TypedDelayingInterface[cache.ObjectName]

// hold keeps an object from being synced for some time after a failure.
type hold struct {
	until    time.Time // unless AddUrgent is called
	byServer time.Time // even then, because the server asked for it; never after until
}

// run is a sync that is running.
type run struct {
	since    time.Time
	isUrgent bool // whether AddUrgent was called since
}

// As many keys are added ahead of what is synced, and so often is looked whether there is
// room for more.
const (
	feedAhead    = 1000
	feedInterval = 2 * time.Millisecond
)

// New wires a loop and starts nothing. name appears in the loop's logs and errors
// and labels the metrics of its queue, so it must be unique in the process.
func New(name string, sync Sync, opts ...Option) *Loop {
	l := &Loop{
		name:    name,
		sync:    sync,
		clock:   clock.RealClock{}, //nolint:forbidigo // the default, which WithClock replaces
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, maxBackoff),
		observe: func(Outcome) {},
		keys:    func(func(cache.ObjectName) bool) {},
		held:    map[cache.ObjectName]hold{},
		running: map[cache.ObjectName]run{},
	}
	for _, opt := range opts {
		opt(l)
	}
	return l
}

// Add requests a sync of the object as soon as a worker is free, but not before the end
// of its back-off if its last sync failed. Additions before Run are dropped (see
// [WithKeys]), and so are those after Run's context has ended.
func (l *Loop) Add(name cache.ObjectName) { l.AddAfter(name, 0) }

// AddAfter requests a sync of the object after a delay; otherwise it is like Add. If
// several delays are pending for one object, only the one that ends first counts. So many
// calls with the same delay in quick succession become one sync.
func (l *Loop) AddAfter(name cache.ObjectName, after time.Duration) {
	queue := l.started()
	switch {
	case queue == nil:
	case after > 0:
		queue.AddAfter(name, after)
	default:
		queue.Add(name)
	}
}

// AddUrgent is Add for an object whose desired state has changed. As the failure of its
// last sync then says little about the next one, its back-off ends. Only the server's
// Retry-After still applies.
func (l *Loop) AddUrgent(name cache.ObjectName) {
	l.mu.Lock()
	if held, ok := l.held[name]; ok {
		held.until = held.byServer
		l.held[name] = held
	}
	if running, ok := l.running[name]; ok {
		running.isUrgent = true
		l.running[name] = running
	}
	l.mu.Unlock()
	l.Add(name)
}

// started returns the queue; nil before Run.
func (l *Loop) started() queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue
}

// WaitFor makes Run wait until all of these are done, too. Pass the checkers of the event
// handlers' registrations rather than those of the informers, because an informer has
// synced before its handlers have been called. Call WaitFor before Run.
func (l *Loop) WaitFor(ready ...cache.DoneChecker) { l.ready = append(l.ready, ready...) }

// Ready returns what Run waits for. Once all of it is done, the caches are filled, and
// their event handlers have been called for everything in them.
func (l *Loop) Ready() []cache.DoneChecker { return l.ready }

// Run waits for what [Loop.WaitFor] was given, and then runs that many workers until ctx
// ends. They begin with the keys of [WithKeys].
//
// When ctx ends, no further sync begins, whatever is still queued. Running syncs may take
// five more seconds, because the API server may carry out a request whose response nobody
// waits for. Then their contexts end. Run returns nil once the last sync has returned. An
// error means that nothing was synced: ctx ended before everything was ready (the error
// names what was missing, and wraps the context's cause), workers is less than 1, or Run was
// called before. A Loop runs only once.
func (l *Loop) Run(ctx context.Context, workers int) error {
	if workers < 1 {
		return fmt.Errorf("running %s: %d workers cannot sync anything", l.name, workers)
	}
	logger := klog.LoggerWithName(klog.FromContext(ctx), l.name)
	ctx = klog.NewContext(ctx, logger)
	names, err := l.start(logger)
	if err != nil {
		return err
	}
	defer names.ShutDown()

	if len(l.missing()) > 0 {
		logger.Info("Waiting for caches")
	}
	if !cache.WaitFor(klog.NewContext(ctx, logger.V(2)), "caches", l.ready...) {
		return fmt.Errorf("running %s: stopped before the caches were ready (%s): %w",
			l.name, strings.Join(l.missing(), ", "), context.Cause(ctx))
	}
	logger.Info("Started", "workers", workers)

	syncing, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { l.work(ctx, syncing, names) })
	}
	l.feed(ctx, names)
	<-ctx.Done()
	names.ShutDown()
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-l.clock.After(finishTimeout):
		giveUp(context.Cause(ctx))
		<-finished
	}
	logger.Info("Stopped")
	return nil
}

// start makes the queue. Additions are kept from now on, so that no change is lost
// between reading the first keys from the caches and the next event.
func (l *Loop) start(logger klog.Logger) (queue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue != nil {
		return nil, fmt.Errorf("running %s: a loop runs only once", l.name)
	}
	l.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
		Name:   l.name,
		Logger: &logger,
		Clock:  l.clock,
	})
	return l.queue, nil
}

// feed adds the keys of [WithKeys], hardly faster than they are synced: a queue never gives
// back the memory that it once needed, and what changes meanwhile need not wait behind all.
func (l *Loop) feed(ctx context.Context, queue queue) {
	for name := range l.keys {
		for queue.Len() >= feedAhead && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-l.clock.After(feedInterval):
			}
		}
		if ctx.Err() != nil {
			return
		}
		queue.Add(name)
	}
}

// work syncs what the queue hands out until ctx ends, each with the context syncing.
func (l *Loop) work(ctx, syncing context.Context, queue queue) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		// A queue that is shutting down still hands out the rest of its items.
		if ctx.Err() == nil {
			l.next(syncing, name)
		}
		queue.Done(name)
	}
}

// next syncs the object, unless it is held, and requeues it if necessary.
func (l *Loop) next(ctx context.Context, name cache.ObjectName) {
	if wait := l.begin(name); wait > 0 {
		l.AddAfter(name, wait)
		return
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "object", klog.KRef(name.Parts())))
	requeueAfter, result, err := l.attempt(ctx, name)
	isDone := result == Synced || result == GaveUp
	var h hold
	if isDone {
		l.backoff.Forget(name)
	} else {
		requeueAfter, h = l.backOff(name, result, err)
	}
	l.observe(Outcome{Result: result, Took: l.end(name, h)})
	if requeueAfter > 0 || !isDone {
		l.AddAfter(name, requeueAfter)
	}
	report(ctx, result, err, requeueAfter)
}

// attempt calls Sync, and classifies the result. If Sync panics, the text of the error
// contains the stack.
func (l *Loop) attempt(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, result Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			requeueAfter, result, err = 0, Panicked, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	requeueAfter, err = l.sync(ctx, name)
	switch {
	case err == nil:
		return requeueAfter, Synced, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return requeueAfter, Deferred, err // The loop is stopping, which is no failure.
	default:
		return requeueAfter, resultOf(err), err
	}
}

// backOff returns the delay after which an object is retried whose sync ended with err,
// and what keeps it from being synced before that. A deferred sync is repeated as soon as
// anything changes; a failed one is not, because it would probably fail again.
func (l *Loop) backOff(name cache.ObjectName, result Result, err error) (delay time.Duration, h hold) {
	now, byServer := l.clock.Now(), retryAfter(err)
	delay = max(byServer, l.backoff.When(name))
	h = hold{until: now.Add(delay), byServer: now.Add(byServer)}
	if result == Deferred {
		h.until = h.byServer
	}
	return delay, h
}

// begin records that a sync of the object starts now. If it must not start yet, begin
// records nothing, and returns how long the object has to wait.
func (l *Loop) begin(name cache.ObjectName) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if held, ok := l.held[name]; ok {
		if wait := held.until.Sub(now); wait > 0 {
			return wait
		}
		delete(l.held, name)
	}
	l.running[name] = run{since: now}
	return 0
}

// end records that the sync of the object is over, and what holds the next one. It returns
// how long the sync took.
func (l *Loop) end(name cache.ObjectName, h hold) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, ended := l.clock.Now(), l.running[name]
	delete(l.running, name)
	if ended.isUrgent {
		h.until = h.byServer
	}
	if h.until.After(now) {
		l.held[name] = h
	}
	return now.Sub(ended.since)
}

// Busy returns for how long the longest of the running syncs has been running; 0 if none
// is. A liveness probe can detect a stuck worker by it.
func (l *Loop) Busy() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, running := range l.running {
		longest = max(longest, l.clock.Since(running.since))
	}
	return longest
}

// report logs the result of a sync. next is the time until the loop syncs the object
// again by itself; 0 if it will not.
func report(ctx context.Context, result Result, err error, next time.Duration) {
	switch result {
	case Synced:
		klog.FromContext(ctx).V(4).Info("Synced", "next", next)
	case Deferred:
		klog.FromContext(ctx).V(4).Info("Not yet", "cause", err, "next", next)
	case GaveUp:
		until := "until the next change"
		if next > 0 {
			until = "for now"
		}
		utilruntime.HandleErrorWithContext(ctx, err, "Gave up "+until, "next", next)
	case Failed:
		utilruntime.HandleErrorWithContext(ctx, err, "Sync failed", "next", next)
	case Panicked:
		utilruntime.HandleErrorWithContext(ctx, err, "Sync panicked", "next", next)
	}
}

// missing returns the names of what Run still waits for.
func (l *Loop) missing() []string {
	var names []string
	for _, checker := range l.ready {
		if !cache.IsDone(checker) {
			names = append(names, checker.Name())
		}
	}
	return names
}
