// Package informer makes informers that know how long ago they last heard from the
// API server.
//
// A cache that is cut off looks like one of a cluster in which nothing happens, so
// nobody notices. But an API server sends each watch a bookmark about once a minute:
// what has been silent for much longer than that is not idle. Whatever arrives for a
// cache, be it an event, a bookmark or the answer to a list, is passed on with its
// time, for a metric; a silence is logged in one line, with the last error, and so is
// its end.
//
// A resource that the API server does not know (its CustomResourceDefinition was
// deleted) or does not let this process list is asked for every preflight.Interval,
// as at startup, and not at the intervals of up to a minute that client-go's
// reflector arrives at. So the cache is filled about a second after the definition
// or the permission is there again. The same goes for an API server that nobody
// reaches, as its connections are refused.
//
// It also says what a cache keeps of each object (Stripped), and recognizes the answers
// of the API server by which a cache is behind (IsBehind).
package informer

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"nicoleh.io/k8s-controller/pkg/kit/barrier"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// patience is how long a cache may hear nothing before the log says so: two bookmarks.
const patience = 2 * time.Minute

// lookEvery is how often that is looked at.
const lookEvery = 10 * time.Second

// silence is the obstacle where no other is known.
const silence = "the API server has sent nothing, not even a bookmark"

// Caches are the informers of one controller. The methods are safe for concurrent use.
type Caches struct {
	clock clock.WithTicker
	heard func(resource, selector string, at time.Time)

	mu  sync.Mutex
	all []*source
}

// New returns an empty set of caches. The function heard is called with the time at
// which one of them heard from the API server, for the first time with the time at
// which the cache was made. It has to be fast and safe for concurrent use.
func New(heard func(resource, selector string, at time.Time), clock clock.WithTicker) *Caches {
	return &Caches{clock: clock, heard: heard}
}

// StartWithContext starts the informers, and logs their silences, until ctx ends.
func (c *Caches) StartWithContext(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		go s.listen(ctx)
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

// All returns the caches, as a barrier needs them.
func (c *Caches) All() []barrier.Cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	var caches []barrier.Cache
	for _, s := range c.all {
		caches = append(caches, barrier.Cache{GroupVersionResource: s.resource.GroupVersionResource, Namespace: s.resource.Namespace, Selector: s.resource.Selector, Store: s.informer.GetStore()})
	}
	return caches
}

// Client lists and watches the objects of one type, in one namespace or all of them.
// Generated clients do, and those for metadata.
type Client[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// NewInformer returns an informer that is one of the caches. It holds what the client
// lists of the resource, restricted by its selectors, as objects of the type of
// example, and has no indexes yet. The client has to be restricted to the resource's
// namespace.
func NewInformer[L runtime.Object](c *Caches, r preflight.Resource, client Client[L], example runtime.Object, resync time.Duration) cache.SharedIndexInformer {
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
				return s.watch(ctx, func() (watch.Interface, error) { return client.Watch(ctx, options) })
			},
		}, client),
		example,
		cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: cache.Indexers{}})
	utilruntime.Must(informer.SetWatchErrorHandlerWithContext(s.report)) // which fails once it has been started
	s.informer = informer
	return informer
}

// Factory is a factory of informers of built-in or of generated types.
type Factory[F any] interface {
	InformerFor(example runtime.Object, create F) cache.SharedIndexInformer
}

// Install has the factory's informer of the type of example be one of the caches, and
// returns it. It has to come before anybody asks the factory for that. The factory's
// own namespace and list options do not count.
func Install[F ~func(C, time.Duration) cache.SharedIndexInformer, C any, L runtime.Object](c *Caches, factory Factory[F], r preflight.Resource, client Client[L], example runtime.Object) cache.SharedIndexInformer {
	return factory.InformerFor(example, func(_ C, resync time.Duration) cache.SharedIndexInformer {
		informer := NewInformer(c, r, client, example, resync)
		utilruntime.Must(informer.AddIndexers(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
		return informer
	})
}

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

// source is where one cache hears from.
type source struct {
	resource preflight.Resource
	clock    clock.WithTicker
	heard    func(at time.Time)
	informer cache.SharedIndexInformer

	mu       sync.Mutex
	last     time.Time // when it last heard something, or was made
	err      error     // why it has not since then, as far as is known
	told     string    // what the log says that it waits for
	reported bool      // whether the log has client-go's words on a watch that fails
}

// list calls the client's list, and again as long as the resource cannot be listed
// for want of a definition or a permission. That somebody may mend at any time, and
// it costs the API server next to nothing to be asked.
func (s *source) list(ctx context.Context, list func() (runtime.Object, error)) (runtime.Object, error) {
	objects, err := ask(ctx, s, list, func(err error) bool {
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return utilnet.IsConnectionRefused(err)
		}
		obstacle, remedy, _ := s.resource.Explain(err)
		s.tell(ctx, obstacle, "remedy", remedy, "err", err)
		return true
	})
	if err == nil {
		s.hear(ctx, false)
	}
	return objects, err
}

// watch calls the client's watch, and notes what it delivers. It does not wait as list
// does for a definition or a permission: where the resource can be listed all the same,
// the reflector goes on with that.
func (s *source) watch(ctx context.Context, watch func() (watch.Interface, error)) (watch.Interface, error) {
	events, err := ask(ctx, s, watch, utilnet.IsConnectionRefused)
	if err != nil {
		return nil, err
	}
	return s.tap(ctx, events), nil
}

// ask makes a request, and makes it again as long as its error is one to wait for.
func ask[T any](ctx context.Context, s *source, request func() (T, error), isToWaitFor func(error) bool) (answer T, err error) {
	for {
		answer, err = request()
		if err == nil {
			return answer, nil
		}
		s.fail(ctx, err)
		if ctx.Err() != nil || !isToWaitFor(err) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		case <-s.clock.After(preflight.Interval):
		}
	}
}

// hear takes note that the API server has said something, maybe in a watch.
func (s *source) hear(ctx context.Context, inWatch bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.told != "" {
		klog.FromContext(ctx).Info("Going on", "with", s.resource.GroupResource(), "after", now.Sub(s.last).Round(time.Second))
	}
	s.last, s.err, s.told = now, nil, ""
	s.reported = s.reported && !inWatch
	s.heard(now)
}

// fail takes note of an error. That a resource version is too old or too new for the
// API server is none: the reflector asks for another.
func (s *source) fail(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// tell logs what the cache waits for, if that is something new.
func (s *source) tell(ctx context.Context, obstacle string, keysAndValues ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told != obstacle {
		s.log(ctx, obstacle, keysAndValues...)
	}
}

func (s *source) log(ctx context.Context, obstacle string, keysAndValues ...any) {
	s.told = obstacle
	klog.FromContext(ctx).Info("Waiting", append([]any{
		"for", s.resource.GroupResource(), "namespace", s.resource.Namespace, "selector", s.resource.Selector, "because", obstacle,
	}, keysAndValues...)...)
}

// listen tells of a silence, unless a reason for it has been told already.
func (s *source) listen(ctx context.Context) {
	started := s.clock.Now()
	ticker := s.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			s.look(ctx, started)
		}
	}
}

func (s *source) look(ctx context.Context, started time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.last
	if since.Before(started) {
		since = started
	}
	if silent := s.clock.Since(since); silent > patience && s.told == "" {
		s.log(ctx, silence, "since", silent.Round(time.Second), "err", s.err)
	}
}

// report leaves an error of the reflector to client-go to log, but only the first
// since the last time that a watch delivered something.
func (s *source) report(ctx context.Context, r *cache.Reflector, err error) {
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

// tap passes on the events of a watch, and notes that they came.
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
				s.fail(ctx, apierrors.FromObject(event.Object))
			} else {
				s.hear(ctx, true)
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

// tapped is a watch whose events somebody else sees first.
type tapped struct {
	out     chan watch.Event
	stopped chan struct{}
	stop    func()
}

// Stop implements watch.Interface.
func (t *tapped) Stop() { t.stop() }

// ResultChan implements watch.Interface.
func (t *tapped) ResultChan() <-chan watch.Event { return t.out }

// Generic is an informer of a resource as client-go's code for any resource has it.
func Generic(informer cache.SharedIndexInformer, resource schema.GroupResource) kubeinformers.GenericInformer {
	return generic{informer, resource}
}

type generic struct {
	cache.SharedIndexInformer
	resource schema.GroupResource
}

// Informer implements kubeinformers.GenericInformer.
func (g generic) Informer() cache.SharedIndexInformer { return g.SharedIndexInformer }

// Lister implements kubeinformers.GenericInformer.
func (g generic) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.GetIndexer(), g.resource)
}
