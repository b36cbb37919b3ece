package barrier

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// maxWatches is how many watches of the missing changes are tried before all objects are
// listed.
const maxWatches = 5

// waiter is what the barrier knows of one cache, and what it does next. It sends nothing,
// and has no clock: await asks it for the next action, and reports to it what has happened.
type waiter struct {
	goal    goal
	do      action
	at      string // the resource version that the replay has reached
	watches int    // how many watches of this replay have ended
	err     error  // the last failure, for the log
}

// action is what the barrier does next. README.md has a diagram.
type action int

const (
	ask     action = iota // list one object, to learn the API server's resource version
	replay                // watch from the version that the replay has reached
	listAll               // list all objects
	look                  // look at the cache
	pause                 // wait for a moment, and ask again
	open                  // the cache is up to date
	end                   // the term has ended
)

// goal is the state that a cache has to reach.
type goal struct {
	version string           // of the API server: a cache that has reached it is up to date
	change  string           // the last change of the resource by then, which the cache has to contain
	objects sets.Set[string] // all objects at that time; nil unless they were listed
}

// next returns what to do now. isOver says whether the term has ended.
func (w *waiter) next(isOver bool) action {
	if isOver && w.do != open {
		w.do = end
	}
	return w.do
}

// asked is called with the resource version that the API server had, and with one that the
// cache has had since. The replay begins there.
func (w *waiter) asked(server, cacheAt string) {
	w.goal = goal{version: server, change: cacheAt}
	w.do, w.watches = replay, 0
	w.replayed(cacheAt)
}

// replayed is called when the replay has reached a resource version.
func (w *waiter) replayed(at string) {
	w.at = at
	if !isOlder(at, w.goal.version) {
		w.do = look
	}
}

// saw is called with each event of a watch.
func (w *waiter) saw(event watch.Event) {
	if event.Type == watch.Error {
		w.failed(fmt.Errorf("watching: %w", apierrors.FromObject(event.Object)))
		return
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		w.failed(fmt.Errorf("watching: %w", err))
		return
	}
	at := object.GetResourceVersion()
	if event.Type != watch.Bookmark && !isOlder(w.goal.version, at) {
		w.goal.change = at
	}
	w.replayed(at)
}

// watchEnded is called when a watch has ended before the replay was complete.
func (w *waiter) watchEnded() {
	w.watches++
	if w.watches == maxWatches {
		w.err = fmt.Errorf("no bookmark came: at resourceVersion %s, not %s", w.at, w.goal.version)
		w.do = listAll
	}
}

// listed is called with all objects.
func (w *waiter) listed(list *metav1.PartialObjectMetadataList) {
	w.goal, w.do = goalOf(list), look
}

// failed is called when a request has failed. Without a replay, a list may do.
func (w *waiter) failed(err error) {
	w.err = err
	if w.do == replay {
		w.do = listAll
	} else {
		w.do = pause
	}
}

// paused is called at the end of a pause.
func (w *waiter) paused() { w.do = ask }

// lookAt opens the barrier if the store has reached the goal.
func (w *waiter) lookAt(store cache.Store) {
	if w.goal.isReached(store) {
		w.do = open
	}
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

// isReached reports whether the store contains every object that existed, and none that
// was gone by then. It relies on a store never being newer than its resource version, and
// on reading the version first: the objects may be newer than what was read, not older.
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

// isOlder reports whether resource version a is older than b. It returns false if they
// cannot be compared, because the barrier would then never open.
func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
