// Package consistency answers one question: has my cache seen my own writes?
//
// A controller decides from caches that trail the API server. If it syncs an
// object again before the caches have caught up with what it just wrote, it
// decides from a past of its own making: it creates what it has created, or
// reports what it has already changed. So it records each write here and does
// not start on an object while one of the object's writes is still missing:
//
//	if err := c.writes.EnsureReady(name); err != nil {
//		return 0, worker.Requeue(err)
//	}
//
// The package reads resource versions and nothing else; it never calls the API.
package consistency

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Seen tells the latest resource version that a cache has seen. Every
// [cache.Store] and [cache.Indexer] does; one that is filled by an informer has a
// transform to mind: it must keep metadata.resourceVersion.
type Seen interface {
	LastStoreSyncResourceVersion() string
}

// Store remembers, for each owner, the newest write to each resource that the
// caches have not been found to have seen. Its size is bounded by the writes that
// are still on their way into a cache. It is safe for concurrent use.
//
// An owner is whatever the controller syncs by: one Store serves one kind.
//
// A resource version that cannot be compared counts as seen, be it the write's or
// the cache's (an empty one, or a server that does not count upwards): a
// needless sync can be borne, an object that waits forever cannot. For the same
// reason all records of a resource are dropped when its cache is seen to go
// backward: the server's data was restored from a backup, whose versions are lower
// and in which these writes may never have happened.
type Store struct {
	caches map[schema.GroupResource]Seen

	mu     sync.Mutex
	writes map[cache.ObjectName][]write
	lastAt map[schema.GroupResource]string // where each cache was when last asked
}

// write is the newest one to a resource. An owner has one for each, of which
// there are few: a slice is searched faster than a map and reused more easily.
type write struct {
	resource schema.GroupResource
	version  string
}

// New returns a Store for writes to the resources that caches holds a cache for.
// Each cache must cover every object of the resource that will be recorded:
// what a selector or a namespace keeps out of a cache never brings it forward.
func New(caches map[schema.GroupResource]Seen) *Store {
	return &Store{
		caches: caches,
		writes: map[cache.ObjectName][]write{},
		lastAt: map[schema.GroupResource]string{},
	}
}

// WroteAt notes that a write on behalf of owner was answered with an object of
// that resource at resourceVersion. The newest of several is kept. A write that
// changed nothing may be recorded too, as the server answers with the version
// that it found.
//
// Recording a resource that New was given no cache for is a programming error;
// WroteAt panics.
func (s *Store) WroteAt(owner cache.ObjectName, resource schema.GroupResource, resourceVersion string) {
	if _, ok := s.caches[resource]; !ok {
		panic(fmt.Sprintf("written: no cache for %s, whose write for %s was recorded", resource, owner))
	}
	if !isComparable(resourceVersion) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position(resource) // before the new record: what it drops is older
	writes := s.writes[owner]
	i := slices.IndexFunc(writes, func(w write) bool { return w.resource == resource })
	switch {
	case i < 0:
		s.writes[owner] = append(writes, write{resource, resourceVersion})
	case isBehind(writes[i].version, resourceVersion):
		writes[i].version = resourceVersion
	}
}

// EnsureReady returns nil once the caches have seen every write that is recorded for
// owner. Otherwise its error says, for each cache that is behind, where it is and
// where it has to get to. Records that were seen are dropped.
//
// Ask before reading from the caches: what they saw before the question is in
// whatever is read after the answer.
func (s *Store) EnsureReady(owner cache.ObjectName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.writes[owner]; !ok {
		return nil
	}
	for resource := range s.caches {
		s.position(resource)
	}
	var behind []string
	writes := slices.DeleteFunc(s.writes[owner], func(w write) bool {
		at := s.lastAt[w.resource]
		if !isBehind(at, w.version) {
			return true
		}
		behind = append(behind, fmt.Sprintf("%s is at resourceVersion %s, written was %s", w.resource, at, w.version))
		return false
	})
	s.keep(owner, writes)
	if len(behind) == 0 {
		return nil
	}
	slices.Sort(behind)
	return fmt.Errorf("the cache has not seen this controller's own write: %s", strings.Join(behind, "; "))
}

// position asks the cache of the resource where it is. If that is behind where it
// has been, the resource's records are dropped, whoever owns them.
func (s *Store) position(resource schema.GroupResource) {
	at := s.caches[resource].LastStoreSyncResourceVersion()
	if isBehind(at, s.lastAt[resource]) {
		for owner, writes := range s.writes {
			s.keep(owner, slices.DeleteFunc(writes, func(w write) bool { return w.resource == resource }))
		}
	}
	s.lastAt[resource] = at
}

// keep replaces the records of an owner.
func (s *Store) keep(owner cache.ObjectName, writes []write) {
	if len(writes) == 0 {
		delete(s.writes, owner)
		return
	}
	s.writes[owner] = writes
}

// Clear drops all records of an owner. Call it when the owner is gone.
func (s *Store) Clear(owner cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writes, owner)
}

// isBehind tells whether resource version a is older than b. Versions that
// cannot be compared are not behind each other.
func isBehind(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// isComparable tells whether a resource version has an order at all.
func isComparable(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}
