// Package informer makes informers that record when they last heard from the API server,
// and that keep only what is needed of each object.
//
// A cache that is cut off looks just like the cache of a cluster in which nothing
// happens. But an API server sends each watch a bookmark about once a minute, so a cache
// that has heard nothing for much longer than that is not idle. The time of everything
// that arrives for a cache, be it an event, a bookmark, or the response to a list, is
// passed on for a metric. A silence is logged in one line with the last error, and so is
// its end.
//
// If the API server does not know a resource (its CustomResourceDefinition was deleted),
// or does not allow this process to list it, the informer tries again at every
// preflight.Interval, as at startup, and not at the intervals of up to a minute that
// client-go's reflector arrives at. So the cache is filled about a second after the
// definition or the permission is back. The same goes for an API server that refuses
// connections.
package informer

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/barrier"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// maxSilence is how long a cache may hear nothing before that is logged: two bookmarks.
const maxSilence = 2 * time.Minute

// checkInterval is how often a cache is checked for that.
const checkInterval = 10 * time.Second

// silence is what the log says if there is no other reason to give.
const silence = "the API server has sent nothing, not even a bookmark"

// Caches are the informers of one controller. Its methods are safe for concurrent use.
type Caches struct {
	clock clock.WithTicker
	heard func(resource, selector string, at time.Time)

	mu  sync.Mutex
	all []*source
}

// New returns an empty set of caches. The function heard is called whenever one of them
// hears from the API server, and once when it is made. It must be fast, and safe for
// concurrent use.
func New(heard func(resource, selector string, at time.Time), clock clock.WithTicker) *Caches {
	return &Caches{clock: clock, heard: heard}
}

// StartWithContext starts the informers, which run until ctx ends, and logs when they
// hear nothing.
func (c *Caches) StartWithContext(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		go s.logSilences(ctx)
		go s.informer.RunWithContext(ctx)
	}
}

// Resources returns the resource of each cache.
func (c *Caches) Resources() []preflight.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	var resources []preflight.Resource
	for _, s := range c.all {
		resources = append(resources, s.resource)
	}
	return resources
}

// All returns the caches for [barrier.Await].
func (c *Caches) All() []barrier.Cache { return c.those(func(*source) bool { return true }) }

// MaybeStale returns those of All that may have been filled with an older state than the API
// server had at that time. A streamed list is consistent. A plain list may come from a cache
// of the API server that lags.
func (c *Caches) MaybeStale() []barrier.Cache {
	return c.those(func(s *source) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.streamed || s.listed
	})
}

func (c *Caches) those(are func(*source) bool) []barrier.Cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	var caches []barrier.Cache
	for _, s := range c.all {
		if !are(s) {
			continue
		}
		r := s.resource
		caches = append(caches, barrier.Cache{GroupVersionResource: r.GroupVersionResource, Namespace: r.Namespace, Selector: r.Selector, Fields: r.Fields, Store: s.informer.GetStore()})
	}
	return caches
}

// Client lists and watches the objects of one type, in one namespace or all of them.
// Generated clients and metadata clients implement it.
type Client[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// NewCache adds a cache of the resource, and returns it. It holds what the client lists with
// the resource's selectors, and has no indexes yet. The client has to be restricted to the
// resource's namespace. An example is of the type that the client lists, and so is T, unless
// a transform makes something else of it.
func NewCache[T cache.Object, L runtime.Object](c *Caches, r preflight.Resource, client Client[L], example runtime.Object, resync time.Duration) Cache[T] {
	s := c.add(r)
	restrict := func(options *metav1.ListOptions) { options.LabelSelector, options.FieldSelector = r.Selector, r.Fields }
	informer := cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				restrict(&options)
				return s.list(ctx, func() (runtime.Object, error) { return client.List(ctx, options) })
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				restrict(&options)
				s.streams(options)
				return s.watch(ctx, func() (watch.Interface, error) { return client.Watch(ctx, options) })
			},
		}, client),
		example,
		cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: cache.Indexers{}})
	utilruntime.Must(informer.SetWatchErrorHandlerWithContext(s.handleWatchError)) // fails only if the informer has been started
	s.informer = informer
	return Of[T](s.informer)
}

// add adds a cache of the resource, which has no informer yet.
func (c *Caches) add(r preflight.Resource) *source {
	now := c.clock.Now()
	s := &source{
		resource: r,
		clock:    c.clock,
		heard:    func(at time.Time) { c.heard(r.Resource, r.Selector, at) },
		last:     now,
	}
	s.heard(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, s)
	return s
}

// source observes what one cache receives from the API server.
type source struct {
	resource preflight.Resource
	clock    clock.WithTicker
	heard    func(at time.Time)
	informer cache.SharedIndexInformer

	mu       sync.Mutex
	last     time.Time // when it last received something, or was made
	err      error     // the last error since then
	logged   string    // the obstacle that was logged since then
	reported bool      // whether client-go has logged an error since a watch last succeeded
	streamed bool      // whether a consistent list was asked for as a stream
	listed   bool      // whether a list was received that is not a stream
}

// list calls the client's list, and repeats it as long as the definition or the
// permission that it needs is missing. Someone may fix that at any time, and such a
// request costs the API server very little.
func (s *source) list(ctx context.Context, list func() (runtime.Object, error)) (runtime.Object, error) {
	objects, err := request(ctx, s, list, func(err error) bool {
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return utilnet.IsConnectionRefused(err)
		}
		obstacle, remedy, _ := s.resource.Explain(err)
		s.report(ctx, obstacle, "remedy", remedy, "err", err)
		return true
	})
	if err == nil {
		s.received(ctx, false)
	}
	return objects, err
}

// streams notes what a watch asks for. Without a resource version, a streamed list begins
// with everything that was stored when it was asked for (KEP-3157).
func (s *source) streams(options metav1.ListOptions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streamed = s.streamed || ptr.Deref(options.SendInitialEvents, false) && options.ResourceVersion == ""
}

// watch calls the client's watch, and observes what it delivers. Unlike list, it does not
// wait for a definition or a permission, because the reflector falls back to listing,
// which may be allowed.
func (s *source) watch(ctx context.Context, watch func() (watch.Interface, error)) (watch.Interface, error) {
	events, err := request(ctx, s, watch, utilnet.IsConnectionRefused)
	if err != nil {
		return nil, err
	}
	return s.tap(ctx, events), nil
}

// request sends a request, and repeats it as long as canRetry reports true for its error.
func request[T any](ctx context.Context, s *source, send func() (T, error), canRetry func(error) bool) (response T, err error) {
	for {
		response, err = send()
		if err == nil {
			return response, nil
		}
		s.failed(ctx, err)
		if ctx.Err() != nil || !canRetry(err) {
			return response, err
		}
		select {
		case <-ctx.Done():
			return response, context.Cause(ctx)
		case <-s.clock.After(preflight.Interval):
		}
	}
}

// received records that the API server has sent something.
func (s *source) received(ctx context.Context, inWatch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.logged != "" {
		klog.FromContext(ctx).Info("Going on", "with", s.resource.GroupResource(), "after", now.Sub(s.last).Round(time.Second))
	}
	s.last, s.err, s.logged = now, nil, ""
	s.reported, s.listed = s.reported && !inWatch, s.listed || !inWatch
	s.heard(now)
}

// failed records an error. It ignores responses that say that a resource version is too
// old or too new, because the reflector continues with another.
func (s *source) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// report logs what the cache waits for, unless the log already says so.
func (s *source) report(ctx context.Context, obstacle string, keysAndValues ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged != obstacle {
		s.log(ctx, obstacle, keysAndValues...)
	}
}

// log logs what the cache waits for.
func (s *source) log(ctx context.Context, obstacle string, keysAndValues ...any) {
	s.logged = obstacle
	klog.FromContext(ctx).Info("Waiting", append([]any{
		"for", s.resource.GroupResource(), "namespace", s.resource.Namespace, "selector", s.resource.Selector, "because", obstacle,
	}, keysAndValues...)...)
}

// logSilences logs, until ctx ends, when the cache has heard nothing for too long.
func (s *source) logSilences(ctx context.Context) {
	started := s.clock.Now()
	ticker := s.clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.check(ctx, started)
		}
	}
}

// check logs that the cache has heard nothing for too long, unless the log already says
// what it waits for.
func (s *source) check(ctx context.Context, started time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.last
	if since.Before(started) {
		since = started
	}
	if silent := s.clock.Since(since); silent > maxSilence && s.logged == "" {
		s.log(ctx, silence, "since", silent.Round(time.Second), "err", s.err)
	}
}

// handleWatchError lets client-go log an error of the reflector if it is the first since
// a watch last delivered something.
func (s *source) handleWatchError(ctx context.Context, r *cache.Reflector, err error) {
	s.mu.Lock()
	isNew := !s.reported
	s.reported = true
	s.mu.Unlock()
	if isNew {
		cache.DefaultWatchErrorHandler(ctx, r, err)
	} else {
		klog.FromContext(ctx).V(4).Info("Failed to watch again", "reflector", r.Name(), "err", err)
	}
}

// tap returns a watch that passes on the events of another, and records when they come.
func (s *source) tap(ctx context.Context, events watch.Interface) watch.Interface {
	t := &tapped{out: make(chan watch.Event), stopped: make(chan struct{})}
	t.stop = sync.OnceFunc(func() {
		close(t.stopped)
		events.Stop()
	})
	go func() {
		defer close(t.out)
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				s.failed(ctx, apierrors.FromObject(event.Object))
			} else {
				s.received(ctx, true)
			}
			select {
			case t.out <- event:
			case <-t.stopped:
				return
			}
		}
	}()
	return t
}

// tapped is the watch that tap returns.
type tapped struct {
	out     chan watch.Event
	stopped chan struct{}
	stop    func()
}

// Stop implements watch.Interface.
func (t *tapped) Stop() { t.stop() }

// ResultChan implements watch.Interface.
func (t *tapped) ResultChan() <-chan watch.Event { return t.out }
