// Package barrier keeps a controller from acting on the past when its term begins.
//
// The caches of a process that has stood by may trail the API server by any amount,
// and those of one that starts may have been filled by a server that does. What is
// missing is, above all, what the former leader has done and what it did that for.
// A controller that decides without it undoes it. So before anything is decided,
// the barrier asks the API server where it is, once per resource, and waits until
// each cache has got there.
//
// A resource version says where the storage as a whole is, but a cache hears only of
// its own resource, and otherwise of a bookmark about once a minute. So a cache that
// is behind by its number may still miss nothing. A watch that begins where the cache
// is repeats what the cache has yet to hear; the last change up to the API server's
// resource version is what the cache has to get to. On an idle cluster a bookmark
// ends that after a second or two, and nothing but the bookmark is sent.
//
// Should that be impossible, because the API server does not go back so far or sends
// no bookmarks, all objects are listed, and the cache has to have the newest of them
// and no others. (That does not see an object that has come and gone meanwhile, which
// the cache will still show for a moment.)
//
// The package reads metadata and nothing else, and needs no other permissions than
// the informers whose caches it waits for.
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
	// notable is how long it may take to pass before that is logged.
	notable = 2 * time.Second
	// poll is how often a cache is looked at.
	poll = 50 * time.Millisecond
	// pause is how long it takes until an API server that did not answer is asked again.
	pause = time.Second
	// patience is how long it may take to answer.
	patience = 30 * time.Second
	// watchFor is how long a watch of the missing changes lasts. The API server sends
	// a bookmark two seconds before the end of each watch.
	watchFor = 3 * time.Second
	// watches is how many of these are tried.
	watches = 5
)

// Cache is what an informer keeps of a resource.
type Cache struct {
	schema.GroupVersionResource
	Namespace string      // that the informer is restricted to; all of them if empty
	Selector  string      // by labels, that it is restricted to
	Store     cache.Store // the informer's
}

// Await returns nil once each of the caches shows everything that the API server had
// stored when Await was called, or a later state. It logs which of them it waits for
// longer than two seconds. An error is that of ctx, which has ended before.
//
// What the API server accepts later may be missing, as it always may from a cache.
func Await(ctx context.Context, client metadata.Interface, clock clock.WithDelayedExecution, caches ...Cache) error {
	var waiting sync.WaitGroup
	var isCut atomic.Bool
	for _, c := range caches {
		waiting.Go(func() {
			w := wait{Cache: c, client: client.Resource(c.GroupVersionResource).Namespace(c.Namespace), clock: clock}
			if !w.await(ctx) {
				isCut.Store(true)
			}
		})
	}
	waiting.Wait()
	if isCut.Load() {
		return context.Cause(ctx)
	}
	return nil
}

// wait is that for one cache.
type wait struct {
	Cache
	client metadata.ResourceInterface
	clock  clock.WithDelayedExecution
}

// await returns true when the cache has got there, false if ctx ends before.
func (w wait) await(ctx context.Context) bool {
	began := w.clock.Now()
	logger := klog.FromContext(ctx).WithValues("resource", w.GroupResource(), "namespace", w.Namespace)
	slow := w.clock.AfterFunc(notable, func() {
		logger.Info("Waiting for the cache to catch up with the API server", "cacheAt", w.Store.LastStoreSyncResourceVersion())
	})
	defer slow.Stop()
	for said := ""; ; {
		goal, err := w.goal(ctx)
		if err == nil && w.reach(ctx, goal) {
			logger.V(2).Info("The cache shows what the API server has", "at", goal.version, "took", w.clock.Since(began))
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if text := err.Error(); text != said {
			logger.Info("Cannot find out what the API server has: trying on", "err", err)
			said = text
		}
		if !w.sleep(ctx, pause) {
			return false
		}
	}
}

// goal is what a cache has to get to.
type goal struct {
	version string           // of the API server: whatever the cache shows there is enough
	change  string           // the newest of the resource by then: nothing older may be missing
	objects sets.Set[string] // all that there were then, if they were listed
}

// goal asks the API server where it is, and what that means for the cache.
func (w wait) goal(ctx context.Context) (goal, error) {
	list, err := w.list(ctx, 1)
	if err != nil {
		return goal{}, err
	}
	g := goal{version: list.ResourceVersion}
	at := w.Store.LastStoreSyncResourceVersion()
	if !isBehind(at, g.version) {
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

// list asks the API server for that many objects, or all if zero, as they are now.
func (w wait) list(ctx context.Context, limit int64) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := w.client.List(ctx, metav1.ListOptions{LabelSelector: w.Selector, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", w.GroupResource(), err)
	}
	return list, nil
}

func goalOf(list *metav1.PartialObjectMetadataList) goal {
	g := goal{version: list.ResourceVersion, objects: sets.New[string]()}
	for i := range list.Items {
		object := &list.Items[i]
		g.objects.Insert(cache.MetaObjectToName(object).String())
		if g.change == "" || isBehind(g.change, object.ResourceVersion) {
			g.change = object.ResourceVersion
		}
	}
	return g
}

// replay is the resource version of the last change of the resource from one version,
// exclusively, to another; the former if there was none.
func (w wait) replay(ctx context.Context, from, to string) (change string, err error) {
	change = from
	for range watches {
		if from, change, err = w.replaySome(ctx, from, to, change); err != nil {
			return "", err
		}
		if !isBehind(from, to) {
			return change, nil
		}
	}
	return "", fmt.Errorf("no bookmark came: at resourceVersion %s, not %s", from, to)
}

// replaySome watches for a while. It returns how far it got, and the last change on
// the way there, which was last before.
func (w wait) replaySome(ctx context.Context, from, to, last string) (at, change string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seconds := int64(watchFor / time.Second)
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
	for isBehind(at, to) {
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
		if event.Type != watch.Bookmark && !isBehind(to, at) {
			change = at
		}
	}
	return at, change, nil
}

// reach returns true once the cache has got there, false if ctx ends before.
func (w wait) reach(ctx context.Context, g goal) bool {
	for !g.isReached(w.Store) {
		if !w.sleep(ctx, poll) {
			return false
		}
	}
	return true
}

// isReached reports whether the store shows all that there was, and nothing that was
// gone by then. What the store has is no newer than where it is.
func (g goal) isReached(store cache.Store) bool {
	at := store.LastStoreSyncResourceVersion()
	switch {
	case !isBehind(at, g.version):
		return true
	case isBehind(at, g.change):
		return false
	case g.objects == nil:
		return true
	}
	return g.objects.HasAll(store.ListKeys()...)
}

// sleep returns false if ctx ends first.
func (w wait) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-w.clock.After(d):
		return true
	}
}

// isBehind reports whether resource version a is older than b. Versions that cannot
// be compared are not behind each other: nobody would ever know that the wait is over.
func isBehind(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
