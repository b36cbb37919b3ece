// Package worker is the loop of a controller: it takes names from a queue, syncs each
// object, and retries what failed. The loop decides when an object is synced; the
// controller's [Sync] decides what to do. The loop sends no requests.
//
// The queue is client-go's: it holds names, not events. An object is synced once however
// often it is added, and never by two workers at once. An object that is added during its
// sync is synced once more, so no change is missed. Namespaces take turns, so an object does
// not wait for thousands in another namespace.
//
// What a sync returns decides what follows:
//
//	nil             done; synced again after requeueAfter, if that is positive
//	NoBackoff(err)  reported; otherwise like nil
//	Deferred(err)   retried with back-off, logged at V(4) only
//	a conflict      the same
//	another error   retried with back-off, and reported
//	a panic         recovered, then like another error, with its stack
//
// The back-off of an object doubles from 5 ms to one minute and ends when a sync is done. A
// retry waits as long as the API server asks (Retry-After), but no longer than a minute:
// webhooks can ask, too. As in every Kubernetes controller, an event syncs an object at
// once, whatever its back-off. A controller that must not repeat a request at once paces
// itself: see package pace.
package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

const (
	firstRetry = 5 * time.Millisecond
	maxBackoff = time.Minute
	// fillTimeout is how long the caches may take to be filled. Tens of thousands of objects take
	// seconds.
	fillTimeout = 5 * time.Minute
	// syncTimeout ends a sync whose requests are never answered. An API server gives up a
	// request after one minute.
	syncTimeout = 2 * time.Minute
	// finishTimeout is how long a running sync may continue after the loop was told to stop.
	finishTimeout = 5 * time.Second
	// ignoreTimeout is how much longer Run waits for a sync that ignores the end of its context.
	ignoreTimeout = time.Second
	// maxReport limits a reported error, in bytes. It has room for the stack of a panic.
	maxReport = 8 << 10
)

// Sync brings one object closer to its desired state. If requeueAfter is positive, the
// object is synced again after that time at the latest. The logger in ctx carries the
// object's name. ctx ends after two minutes, and five seconds after the loop was told to
// stop.
type Sync func(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error)

// NoBackoff marks err as one that a retry within moments cannot fix, such as a refusal by the API
// server. The object is synced again after requeueAfter. NoBackoff(nil) is nil.
func NoBackoff(err error) error { return mark(err, metrics.GaveUp) }

// Deferred marks err as part of normal operation, such as a cache that lags behind this
// process's own write. Deferred(nil) is nil.
func Deferred(err error) error { return mark(err, metrics.Deferred) }

func mark(err error, result metrics.Result) error {
	if err == nil {
		return nil
	}
	return &marked{error: err, result: result}
}

// marked is an error whose result has been decided.
type marked struct {
	error
	result metrics.Result
}

func (m *marked) Unwrap() error { return m.error }

// resultOf returns what a sync with this error counts as. The outermost mark decides. Joined errors are not searched: a
// mark or a conflict among them says nothing about the others.
func resultOf(err error) metrics.Result {
	if err == nil {
		return metrics.Synced
	}
	for ; err != nil; err = errors.Unwrap(err) {
		switch found := err.(type) { //nolint:errorlint // errors.As also searches joined errors
		case *marked:
			return found.result
		case apierrors.APIStatus:
			if response.IsConflict(err) {
				return metrics.Deferred
			}
		}
	}
	return metrics.Failed
}

// Loop calls a Sync for every object that is added to it. Its methods are safe for
// concurrent use.
type Loop struct {
	name    string
	sync    Sync
	queue   func() workqueue.TypedDelayingInterface[cache.ObjectName]
	backoff workqueue.TypedRateLimiter[cache.ObjectName]
	metrics metrics.Controller
	ready   []cache.DoneChecker

	mu      sync.Mutex
	running map[cache.ObjectName]time.Time // when each sync began
}

// New returns a loop that does nothing until Run. name appears in its logs and errors and
// labels its metrics, so it must be unique in the process.
func New(name string, do Sync) *Loop {
	return &Loop{
		name: name,
		sync: do,
		// A queue has goroutines, which would never end if the loop did not run.
		queue: sync.OnceValue(func() workqueue.TypedDelayingInterface[cache.ObjectName] {
			return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
				Name:  name,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: name, Queue: newTurns()}),
			})
		}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, maxBackoff),
		metrics: metrics.For(name),
		running: map[cache.ObjectName]time.Time{},
	}
}

// Add requests a sync of the object as soon as a worker is free.
func (l *Loop) Add(name cache.ObjectName) { l.queue().Add(name) }

// AddAfter requests a sync of the object after a delay. Of several pending delays for one
// object, the first to end counts.
func (l *Loop) AddAfter(name cache.ObjectName, after time.Duration) { l.queue().AddAfter(name, after) }

// WaitFor makes Run wait until all of these are done. Call it before Run. Pass the checkers of event handlers: an
// informer has synced before its handlers have been called. Package manager passes the checkers of informers.
func (l *Loop) WaitFor(ready ...cache.DoneChecker) { l.ready = append(l.ready, ready...) }

// Run waits for what [Loop.WaitFor] was given, and then runs workers until ctx ends. After that no sync begins, and Run
// returns nil when the running syncs have ended. They have five seconds to finish, because the API server can carry out
// a request whose response nobody waits for. Run does not wait for a sync that ignores the end of its context. An error
// means that nothing was synced: ctx ended before everything was ready, or something was not ready within five minutes.
// A Loop runs only once.
func (l *Loop) Run(ctx context.Context, workers int) error {
	defer l.queue().ShutDown()
	logger := klog.LoggerWithName(klog.FromContext(ctx), l.name)
	ctx = klog.NewContext(ctx, logger)

	if err := l.awaitReady(ctx); err != nil {
		return err
	}
	logger.Info("Started", "workers", workers)
	syncing, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for l.next(ctx, syncing) {
			}
		})
	}
	<-ctx.Done()
	l.queue().ShutDown()
	defer time.AfterFunc(finishTimeout, giveUp).Stop()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		working.Wait()
	}()
	select {
	case <-finished:
		logger.Info("Stopped")
	case <-time.After(finishTimeout + ignoreTimeout):
		utilruntime.HandleErrorWithContext(ctx, fmt.Errorf("still syncing %v", l.names()), "Stopped without waiting for a sync that ignores the end of its context")
	}
	return nil
}

// awaitReady waits for what WaitFor was given. The error names what is not ready.
func (l *Loop) awaitReady(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	filling, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	switch {
	case cache.WaitFor(klog.NewContext(filling, logger.V(2)), "caches", l.ready...):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before the caches were filled: %w", context.Cause(ctx))
	}
	var missing []string
	for _, checker := range l.ready {
		if !cache.IsDone(checker) {
			missing = append(missing, checker.Name())
		}
	}
	return fmt.Errorf("not filled within %s: %s; its informer was not started, cannot list or watch, or a proxy drops the bookmark that ends a streaming list (if so, set KUBE_FEATURE_%s=false in the environment)",
		fillTimeout, strings.Join(missing, ", "), clientfeatures.WatchListClient)
}

// names returns the objects that are being synced.
func (l *Loop) names() []cache.ObjectName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.running))
}

// next syncs one object. It returns false when the queue has shut down.
func (l *Loop) next(ctx, syncing context.Context) bool {
	name, shutdown := l.queue().Get()
	if shutdown {
		return false
	}
	defer l.queue().Done(name)
	if ctx.Err() != nil {
		return true // A queue that has shut down still hands out the rest of its items.
	}
	logger := klog.LoggerWithValues(klog.FromContext(syncing), "object", klog.KRef(name.Parts()))
	syncing, cancel := context.WithTimeout(klog.NewContext(syncing, logger), syncTimeout)
	defer cancel()

	next, result, err := l.attempt(syncing, name)
	switch result {
	case metrics.Synced, metrics.GaveUp:
		l.backoff.Forget(name)
	default:
		next = min(max(l.backoff.When(name), retryAfter(err)), maxBackoff)
	}
	if next > 0 {
		l.queue().AddAfter(name, next)
	}
	switch result {
	case metrics.Synced:
		logger.V(4).Info("Synced", "next", next)
	case metrics.Deferred:
		logger.V(4).Info("Sync deferred", "cause", clipped(err), "next", next)
	default:
		utilruntime.HandleErrorWithContext(syncing, clipped(err), "Sync failed", "result", result, "next", next)
	}
	return true
}

// retryAfter returns how long the API server asks clients to wait before they repeat the request: for a 429 at least a
// second, because priority and fairness asks in a header that the clients do not see.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	if apierrors.IsTooManyRequests(err) {
		seconds = max(seconds, 1)
	}
	return time.Duration(seconds) * time.Second
}

// clipped returns an error for the log. The API server can quote all of what it refuses.
func clipped(err error) error { return errors.New(text.Clip(err.Error(), maxReport)) }

// attempt calls Sync and classifies the result. If Sync panics, the error contains the stack.
func (l *Loop) attempt(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, result metrics.Result, err error) {
	start := time.Now()
	l.mu.Lock()
	l.running[name] = start
	l.mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			requeueAfter, result, err = 0, metrics.Panicked, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		l.mu.Lock()
		delete(l.running, name)
		l.mu.Unlock()
		l.metrics.Sync(result, time.Since(start))
	}()
	requeueAfter, err = l.sync(ctx, name)
	return requeueAfter, resultOf(err), err
}

// Busy returns how long the longest of the running syncs has been running, for a liveness
// probe that detects a stuck worker. It returns 0 if none is running.
func (l *Loop) Busy() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for _, since := range l.running {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// Follow returns handlers that call f with each object that was added, updated or deleted (as
// it was last seen).
func Follow[T cache.Object](f func(T)) cache.TypedResourceEventHandlerFuncs[T] {
	return cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc:    f,
		UpdateFunc: func(_, after T) { f(after) },
		DeleteFunc: func(deleted cache.DeletedObject[T]) {
			var unseen T
			if deleted.OptionalObj != unseen {
				f(deleted.OptionalObj)
			}
		},
	}
}

// FollowBoth is [Follow], but calls f with both versions of an updated object, for objects that a change can move from
// one owner to another.
func FollowBoth[T cache.Object](f func(T)) cache.TypedResourceEventHandlerFuncs[T] {
	handlers := Follow(f)
	handlers.UpdateFunc = func(before, after T) { f(before); f(after) }
	return handlers
}
