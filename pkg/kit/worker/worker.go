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
	firstRetry  = 5 * time.Millisecond
	slowestPace = time.Minute
)

// Sync brings one object closer to its desired state. again > 0 asks for another
// look after that long even if nothing changes; it may come sooner. The package
// comment says what each kind of error leads to.
//
// The logger in ctx carries the object's name. ctx ends when the loop stops, and
// the loop then waits for Sync to return.
type Sync func(ctx context.Context, name cache.ObjectName) (again time.Duration, err error)

// MinRequeue is the shorter of two delays until another look, of which zero means none.
func MinRequeue(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Result says how one sync went.
type Result string

const (
	Synced   Result = "synced"   // no error
	GaveUp   Result = "gave_up"  // a terminal error: reported, waiting for the next change
	Deferred Result = "deferred" // not yet, or a conflict: to be retried quietly
	Failed   Result = "failed"   // any other error: reported, to be retried
	Panicked Result = "panicked" // recovered: reported, to be retried
)

// Results are all of them.
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

// WithObserver has observe called after every sync, by the worker that ran it:
// it must be fast and safe for concurrent use.
func WithObserver(observe func(Outcome)) Option {
	return func(l *Loop) { l.observe = observe }
}

// WithKeys has Run begin with a sync of each of these objects. They are read once,
// after everything that Run waits for is done, so that they can come from caches.
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
	queue   workqueue.TypedDelayingInterface[cache.ObjectName] // nil until Run: it has goroutines of its own
	held    map[cache.ObjectName]hold                          // not to be synced for some time
	running map[cache.ObjectName]run                           // being synced now
}

// hold keeps an object from being synced for some time after a sync that failed.
type hold struct {
	until    time.Time // unless something urgent comes
	byServer time.Time // whatever comes, as the server asked for that; never after until
}

// run is a sync that is under way.
type run struct {
	since    time.Time
	isUrgent bool // whether something urgent has come since
}

// New wires a loop and starts nothing. name appears in the loop's logs and errors
// and labels the metrics of its queue, so it must be unique in the process.
func New(name string, sync Sync, opts ...Option) *Loop {
	l := &Loop{
		name:    name,
		sync:    sync,
		clock:   clock.RealClock{}, //nolint:forbidigo // the default, which WithClock replaces
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, slowestPace),
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

// Add asks for a sync of the object as soon as a worker is free, but not before
// the end of its back-off if its last sync failed. What is added before Run is
// dropped (see [WithKeys]), and so is what is added once Run's context has ended.
func (l *Loop) Add(name cache.ObjectName) { l.AddAfter(name, 0) }

// AddAfter asks for a sync of the object after a delay; otherwise it is like Add.
// Of several delays that are pending for one object the one that ends first counts
// and the others are dropped, so a burst of calls with the same delay becomes one
// sync.
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

// AddUrgent is Add for an object of which something else is wanted now: that its
// last sync failed says little about the next one, so its back-off ends. Only the
// server's Retry-After is still respected.
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

// started returns the queue once there is one.
func (l *Loop) started() workqueue.TypedDelayingInterface[cache.ObjectName] {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue
}

// WaitFor has Run wait until all of these are done, too. Pass the synced checkers of the
// event handlers' registrations rather than those of the informers: an informer has
// synced before its handlers have been called. Call it before Run.
func (l *Loop) WaitFor(ready ...cache.DoneChecker) { l.ready = append(l.ready, ready...) }

// Ready returns what Run waits for: once all of it is done, the caches are filled and
// everything in them is queued.
func (l *Loop) Ready() []cache.DoneChecker { return l.ready }

// Run waits for what [Loop.WaitFor] was given, adds the keys of [WithKeys], and then
// keeps that many workers syncing until ctx ends.
//
// When ctx ends no further sync begins, whatever is still queued; those that are
// running see their context end, and Run returns nil once the last has returned.
// An error means that nothing was ever synced: ctx ended before everything was
// ready (the error names what was missing and wraps the context's cause), workers
// is less than 1, or Run was called before. A Loop runs once.
func (l *Loop) Run(ctx context.Context, workers int) error {
	if workers < 1 {
		return fmt.Errorf("running %s: %d workers cannot sync anything", l.name, workers)
	}
	logger := klog.LoggerWithName(klog.FromContext(ctx), l.name)
	ctx = klog.NewContext(ctx, logger)
	queue, err := l.start(logger)
	if err != nil {
		return err
	}
	defer queue.ShutDown()

	if len(l.missing()) > 0 {
		logger.Info("Waiting for caches")
	}
	if !cache.WaitFor(klog.NewContext(ctx, logger.V(2)), "caches", l.ready...) {
		return fmt.Errorf("running %s: stopped before the caches were ready (%s): %w",
			l.name, strings.Join(l.missing(), ", "), context.Cause(ctx))
	}
	for name := range l.keys {
		queue.Add(name)
	}
	logger.Info("Started", "workers", workers)

	var running sync.WaitGroup
	for range workers {
		running.Go(func() { l.work(ctx, queue) })
	}
	<-ctx.Done()
	queue.ShutDown()
	running.Wait()
	logger.Info("Stopped")
	return nil
}

// start makes the queue. From now on additions are kept, so that no change gets lost
// between the look at the caches for the first keys and the next event.
func (l *Loop) start(logger klog.Logger) (workqueue.TypedDelayingInterface[cache.ObjectName], error) {
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

// work syncs one object after the other until the queue has shut down.
func (l *Loop) work(ctx context.Context, queue workqueue.TypedDelayingInterface[cache.ObjectName]) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		// A queue that shuts down still hands out what it holds.
		if ctx.Err() == nil {
			l.next(ctx, name)
		}
		queue.Done(name)
	}
}

// next syncs the object, unless it is held, and arranges for whatever has to follow.
func (l *Loop) next(ctx context.Context, name cache.ObjectName) {
	if wait := l.begin(name); wait > 0 {
		l.AddAfter(name, wait)
		return
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "object", klog.KRef(name.Parts())))
	again, result, err := l.attempt(ctx, name)
	isDone := result == Synced || result == GaveUp
	var h hold
	if isDone {
		l.backoff.Forget(name)
	} else {
		again, h = l.patience(name, result, err)
	}
	l.observe(Outcome{Result: result, Took: l.end(name, h)})
	if again > 0 || !isDone {
		l.AddAfter(name, again)
	}
	report(ctx, result, err, again)
}

// attempt calls Sync and puts a name to the result. The error of a panic has the
// stack in its text.
func (l *Loop) attempt(ctx context.Context, name cache.ObjectName) (again time.Duration, result Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			again, result, err = 0, Panicked, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	again, err = l.sync(ctx, name)
	switch {
	case err == nil:
		return again, Synced, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return again, Deferred, err // The loop is stopping; that is nobody's failure.
	default:
		return again, resultOf(err), err
	}
}

// patience returns after what delay an object whose sync ended with err is retried,
// and what keeps it from being synced before. A sync that was merely not possible
// yet is repeated as soon as anything changes; one that failed would fail again.
func (l *Loop) patience(name cache.ObjectName, result Result, err error) (delay time.Duration, h hold) {
	now, byServer := l.clock.Now(), retryAfter(err)
	delay = max(byServer, l.backoff.When(name))
	h = hold{until: now.Add(delay), byServer: now.Add(byServer)}
	if result == Deferred {
		h.until = h.byServer
	}
	return delay, h
}

// begin notes that a sync of the object starts now. If it must not start yet,
// nothing is noted and begin returns how long it has to wait.
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

// end notes that the sync of the object is over, and what holds the next one. It
// returns how long the sync took.
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

// Busy is how long the longest of the running syncs has been running by now; 0
// if none is. A liveness probe can tell a stuck worker by it.
func (l *Loop) Busy() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, running := range l.running {
		longest = max(longest, l.clock.Since(running.since))
	}
	return longest
}

// report tells the operator what a sync's result calls for. next is when the
// loop will look again by itself; 0 if it will not.
func report(ctx context.Context, result Result, err error, next time.Duration) {
	switch result {
	case Synced:
		klog.FromContext(ctx).V(4).Info("Synced", "next", next)
	case Deferred:
		klog.FromContext(ctx).V(4).Info("Not yet", "cause", err, "next", next)
	case GaveUp:
		utilruntime.HandleErrorWithContext(ctx, err, "Gave up until the next change", "next", next)
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
