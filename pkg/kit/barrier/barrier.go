// Package barrier waits, when a term of leadership begins, until the caches show
// everything that the API server has stored by then.
//
// The caches of a process on standby may lag behind the API server by any amount, and
// those of a new process may have been filled by an API server that lags itself. What
// they lack is above all the last work of the former leader and the reason for it. A
// controller that decided without knowing these would undo that work. So before a
// controller decides anything, the barrier asks the API server for its current resource
// version, once per resource, and waits until each cache has reached it.
//
// A resource version counts changes of all resources, but a cache sees only changes of
// its own resource, and a bookmark about once a minute. So a cache whose number is lower
// may still lack nothing. To find out, the barrier opens a watch at the cache's resource
// version, which replays all changes that the cache has not seen yet. The cache has to
// reach the last of them that is not newer than the API server's resource version. On an
// idle cluster this watch delivers nothing but a bookmark, after a second or two.
//
// If the watch is impossible, because the API server does not keep changes that long or
// sends no bookmarks, the barrier lists all objects. The cache then has to contain the
// newest of them, and no object that is not in the list. (This does not notice an object
// that was created and deleted in the meantime, which the cache may still show for a
// moment.)
//
// README.md has a diagram of these steps, and says why they are enough. The package
// reads only metadata, and needs no permissions other than those of the informers whose
// caches it waits for.
package barrier

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// logAfter is how long the barrier waits before it logs what it waits for.
	logAfter = 2 * time.Second
	// pollInterval is how often the barrier looks at a cache.
	pollInterval = 50 * time.Millisecond
	// retryInterval is how long the barrier waits after a request has failed.
	retryInterval = time.Second
	// requestTimeout is how long the API server may take to answer a request.
	requestTimeout = 30 * time.Second
	// watchTimeout is how long a watch of the missing changes lasts. The API server
	// sends a bookmark two seconds before the end of each watch.
	watchTimeout = 3 * time.Second
	// maxWatches is how many such watches are tried before all objects are listed.
	maxWatches = 5
)

// Cache is an informer's copy of a resource.
type Cache struct {
	schema.GroupVersionResource
	Namespace string      // the only namespace of the informer; all namespaces if empty
	Selector  string      // the informer's label selector
	Store     cache.Store // the informer's store
}

// Await returns nil once each of the caches shows everything that the API server had
// stored when Await was called, or a later state. It logs every cache that it waits for
// longer than two seconds. If ctx ends first, Await returns its cause.
//
// The caches may lack changes that the API server accepts later, as caches always may.
func Await(ctx context.Context, client metadata.Interface, clock clock.WithDelayedExecution, caches ...Cache) error {
	var waiting sync.WaitGroup
	var interrupted atomic.Bool
	for _, c := range caches {
		waiting.Go(func() {
			w := wait{Cache: c, client: client.Resource(c.GroupVersionResource).Namespace(c.Namespace), clock: clock}
			if !w.await(ctx) {
				interrupted.Store(true)
			}
		})
	}
	waiting.Wait()
	if interrupted.Load() {
		return context.Cause(ctx)
	}
	return nil
}

// wait is the state of waiting for one cache.
type wait struct {
	Cache
	client metadata.ResourceInterface
	clock  clock.WithDelayedExecution
}

// await waits until the cache is up to date, and reports whether that happened before
// ctx ended.
func (w wait) await(ctx context.Context) bool {
	began := w.clock.Now()
	logger := klog.FromContext(ctx).WithValues("resource", w.GroupResource(), "namespace", w.Namespace)
	slow := w.clock.AfterFunc(logAfter, func() {
		logger.Info("Waiting for the cache to catch up with the API server", "cacheAt", w.Store.LastStoreSyncResourceVersion())
	})
	defer slow.Stop()
	for logged := ""; ; {
		goal, err := w.goal(ctx)
		if err == nil && w.reach(ctx, goal) {
			logger.V(2).Info("The cache shows what the API server has", "at", goal.version, "took", w.clock.Since(began))
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if text := err.Error(); text != logged {
			logger.Info("Cannot find out what the API server has; will retry", "err", err)
			logged = text
		}
		if !w.sleep(ctx, retryInterval) {
			return false
		}
	}
}

// goal is the state that a cache has to reach.
type goal struct {
	version string           // of the API server: a cache that has reached it is up to date
	change  string           // the last change of the resource by then, which the cache has to contain
	objects sets.Set[string] // all objects at that time; nil unless they were listed
}

// goal asks the API server for its resource version, and works out the cache's goal.
func (w wait) goal(ctx context.Context) (goal, error) {
	list, err := w.list(ctx, 1)
	if err != nil {
		return goal{}, err
	}
	g := goal{version: list.ResourceVersion}
	at := w.Store.LastStoreSyncResourceVersion()
	if !isOlder(at, g.version) {
		return g, nil
	}
	if g.change, err = w.replay(ctx, at, g.version); err == nil {
		return g, nil
	}
	klog.FromContext(ctx).V(2).Info("Listing all objects", "resource", w.GroupResource(), "because", err)
	if list, err = w.list(ctx, 0); err != nil {
		return goal{}, err
	}
	return goalOf(list), nil
}

// list asks the API server for the current state of up to limit objects; of all if
// limit is 0.
func (w wait) list(ctx context.Context, limit int64) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.client.List(ctx, metav1.ListOptions{LabelSelector: w.Selector, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", w.GroupResource(), err)
	}
	return list, nil
}

// goalOf returns the goal of a cache whose objects have been listed.
func goalOf(list *metav1.PartialObjectMetadataList) goal {
	g := goal{version: list.ResourceVersion, objects: sets.New[string]()}
	for i := range list.Items {
		object := &list.Items[i]
		g.objects.Insert(cache.MetaObjectToName(object).String())
		if g.change == "" || isOlder(g.change, object.ResourceVersion) {
			g.change = object.ResourceVersion
		}
	}
	return g
}

// replay returns the resource version of the last change of the resource after from, up
// to and including to. It returns from if there was no such change.
func (w wait) replay(ctx context.Context, from, to string) (change string, err error) {
	change = from
	for range maxWatches {
		if from, change, err = w.replaySome(ctx, from, to, change); err != nil {
			return "", err
		}
		if !isOlder(from, to) {
			return change, nil
		}
	}
	return "", fmt.Errorf("no bookmark came: at resourceVersion %s, not %s", from, to)
}

// replaySome continues a replay with a single watch. It returns the resource version that
// the watch has reached, and the last change so far, which is last if there was no other.
func (w wait) replaySome(ctx context.Context, from, to, last string) (at, change string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seconds := int64(watchTimeout / time.Second)
	events, err := w.client.Watch(ctx, metav1.ListOptions{
		LabelSelector:       w.Selector,
		ResourceVersion:     from,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	})
	if err != nil {
		return "", "", fmt.Errorf("watching %s: %w", w.GroupResource(), err)
	}
	defer events.Stop()
	at, change = from, last
	for isOlder(at, to) {
		event, isOpen := <-events.ResultChan()
		if !isOpen {
			break
		}
		if event.Type == watch.Error {
			return "", "", fmt.Errorf("watching %s: %w", w.GroupResource(), apierrors.FromObject(event.Object))
		}
		object, err := meta.Accessor(event.Object)
		if err != nil {
			return "", "", fmt.Errorf("watching %s: %w", w.GroupResource(), err)
		}
		at = object.GetResourceVersion()
		if event.Type != watch.Bookmark && !isOlder(to, at) {
			change = at
		}
	}
	return at, change, nil
}

// reach waits until the cache has reached the goal, and reports whether that happened
// before ctx ended.
func (w wait) reach(ctx context.Context, g goal) bool {
	for !g.isReached(w.Store) {
		if !w.sleep(ctx, pollInterval) {
			return false
		}
	}
	return true
}

// isReached reports whether the store contains every object that existed, and none that
// was gone by then. It relies on a store never being newer than its resource version.
func (g goal) isReached(store cache.Store) bool {
	at := store.LastStoreSyncResourceVersion()
	switch {
	case !isOlder(at, g.version):
		return true
	case isOlder(at, g.change):
		return false
	case g.objects == nil:
		return true
	}
	return g.objects.HasAll(store.ListKeys()...)
}

// sleep waits for d, and reports whether that passed before ctx ended.
func (w wait) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w.clock.After(d):
		return true
	}
}

// isOlder reports whether resource version a is older than b. It returns false if they
// cannot be compared, because the barrier would then never open.
func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
