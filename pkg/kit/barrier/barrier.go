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
// README.md has a diagram of these steps, and says why they are enough. The package reads
// only metadata, and needs no permissions other than those of the informers whose caches it
// waits for.
package barrier

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
)

// Cache is an informer's copy of a resource.
type Cache struct {
	schema.GroupVersionResource
	Namespace string      // the only namespace of the informer; all namespaces if empty
	Selector  string      // the informer's label selector
	Fields    string      // the informer's field selector
	Store     cache.Store // the informer's store
}

// Await returns nil once each of the caches shows everything that the API server had
// stored when Await was called, or a later state. It logs every cache that it waits for
// longer than two seconds. If ctx ends first, Await returns its cause.
//
// The caches must have been filled once. They may lack changes that the API server accepts
// later, as caches always may.
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

// wait waits for one cache. It does what its waiter says.
type wait struct {
	Cache
	waiter
	client metadata.ResourceInterface
	clock  clock.WithDelayedExecution
}

// await waits until the cache is up to date, and reports whether that happened before
// ctx ended.
func (w *wait) await(ctx context.Context) bool {
	began := w.clock.Now()
	logger := klog.FromContext(ctx).WithValues("resource", w.GroupResource(), "namespace", w.Namespace)
	slow := w.clock.AfterFunc(logAfter, func() {
		logger.Info("Waiting for the cache to catch up with the API server", "cacheAt", w.Store.LastStoreSyncResourceVersion())
	})
	defer slow.Stop()
	for logged := ""; ; {
		switch w.next(ctx.Err() != nil) {
		case ask:
			if list := w.list(ctx, 1); list != nil {
				w.asked(list.ResourceVersion, w.Store.LastStoreSyncResourceVersion())
			}
		case replay:
			w.watch(ctx)
		case listAll:
			logger.V(2).Info("Listing all objects", "because", w.err)
			if list := w.list(ctx, 0); list != nil {
				w.listed(list)
			}
		case look:
			if w.lookAt(w.Store); w.do == look {
				w.sleep(ctx, pollInterval)
			}
		case pause:
			if text := w.err.Error(); text != logged {
				logger.Info("Cannot find out what the API server has; will retry", "err", w.err)
				logged = text
			}
			w.sleep(ctx, retryInterval)
			w.paused()
		case open:
			logger.V(2).Info("The cache shows what the API server has", "at", w.goal.version, "took", w.clock.Since(began))
			return true
		case end:
			return false
		}
	}
}

// list asks the API server for the current state of up to limit objects; of all if
// limit is 0. It returns nil if that fails.
func (w *wait) list(ctx context.Context, limit int64) *metav1.PartialObjectMetadataList {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := w.client.List(ctx, metav1.ListOptions{LabelSelector: w.Selector, FieldSelector: w.Fields, Limit: limit})
	if err != nil {
		w.failed(fmt.Errorf("listing %s: %w", w.GroupResource(), err))
		return nil
	}
	return list
}

// watch continues the replay with a single watch.
func (w *wait) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	seconds := int64(watchTimeout / time.Second)
	events, err := w.client.Watch(ctx, metav1.ListOptions{
		LabelSelector:       w.Selector,
		FieldSelector:       w.Fields,
		ResourceVersion:     w.at,
		AllowWatchBookmarks: true,
		TimeoutSeconds:      &seconds,
	})
	if err != nil {
		w.failed(fmt.Errorf("watching: %w", err))
		return
	}
	defer events.Stop()
	for w.do == replay {
		event, isOpen := <-events.ResultChan()
		if !isOpen {
			w.watchEnded()
			return
		}
		w.saw(event)
	}
}

// sleep waits for d, or until ctx ends.
func (w *wait) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-w.clock.After(d):
	}
}
