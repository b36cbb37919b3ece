// Package consistency tells a controller whether its caches already show what it wrote
// for an object.
//
// A controller decides from caches, which lag behind the API server. If it synced an
// object before the caches showed its last writes for that object, it would repeat them:
// it would create what it has already created, or report what it has already changed. So
// it records each write here, and does not sync an object while one of the object's
// writes is missing from a cache:
//
//	if err := c.writes.EnsureReady(name); err != nil {
//		return 0, worker.Requeue(err)
//	}
//
// The package has the method names of kube-controller-manager's
// pkg/controller/util/consistency. It only compares resource versions, and sends no
// requests.
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

// Seen returns the latest resource version that a cache has seen. Every [cache.Store]
// implements it. If an informer that fills the store has a transform, the transform must
// keep metadata.resourceVersion.
type Seen interface {
	LastStoreSyncResourceVersion() string
}

// Store remembers, for each owner, the newest write to each resource, until the cache of
// that resource shows it. So its size is bounded by the number of writes that are on
// their way into a cache. It is safe for concurrent use.
//
// An owner is the object that the controller syncs. One Store serves one kind of owner.
//
// A write counts as seen if its resource version and the cache's cannot be compared (one
// is empty, or the server does not count upward), because an unnecessary sync does less
// harm than an object that waits forever. For the same reason, all records of a resource
// are dropped when its cache goes backward: then the server's data was restored from a
// backup, which has lower versions, and in which these writes may never have happened.
type Store struct {
	caches map[schema.GroupResource]Seen

	mu      sync.Mutex
	writes  map[cache.ObjectName][]write
	waiting map[cache.ObjectName]bool       // owners with writes for which EnsureReady has returned an error
	lastAt  map[schema.GroupResource]string // the resource version of each cache when it was last read
}

// write is the newest write to a resource. An owner has one for each resource; as these
// are few, they are kept in a slice.
type write struct {
	resource schema.GroupResource
	version  string
}

// New returns a Store for writes to the resources in caches. Each cache must contain
// every object whose writes are recorded: a write to an object that the informer's
// selector or namespace excludes never shows in the cache.
func New(caches map[schema.GroupResource]Seen) *Store {
	return &Store{
		caches:  caches,
		writes:  map[cache.ObjectName][]write{},
		waiting: map[cache.ObjectName]bool{},
		lastAt:  map[schema.GroupResource]string{},
	}
}

// WroteAt records a write on behalf of owner, by the resource version in the API
// server's response. Only the newest write to each resource is kept. A write that
// changed nothing may be recorded, too, because the response then has the version of the
// object as it was.
//
// WroteAt panics if New was given no cache for the resource, which is a programming error.
func (s *Store) WroteAt(owner cache.ObjectName, resource schema.GroupResource, resourceVersion string) {
	if _, ok := s.caches[resource]; !ok {
		panic(fmt.Sprintf("consistency: no cache for %s, which was written to for %s", resource, owner))
	}
	if !isComparable(resourceVersion) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readVersion(resource) // before the new record is added, as it may drop older ones
	writes := s.writes[owner]
	i := slices.IndexFunc(writes, func(w write) bool { return w.resource == resource })
	switch {
	case i < 0:
		s.writes[owner] = append(writes, write{resource, resourceVersion})
	case isOlder(writes[i].version, resourceVersion):
		writes[i].version = resourceVersion
	}
}

// EnsureReady returns nil if the caches show every write that is recorded for owner.
// Otherwise the error names, for each cache that lags, its resource version and that of
// the write. EnsureReady drops records of writes that the caches show.
//
// Call it before reading from the caches: whatever is read afterward includes the writes.
func (s *Store) EnsureReady(owner cache.ObjectName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.writes[owner]; !ok {
		return nil
	}
	for resource := range s.caches {
		s.readVersion(resource)
	}
	var behind []string
	writes := slices.DeleteFunc(s.writes[owner], func(w write) bool {
		at := s.lastAt[w.resource]
		if !isOlder(at, w.version) {
			return true
		}
		behind = append(behind, fmt.Sprintf("%s is at resourceVersion %s, but the write is at %s", w.resource, at, w.version))
		return false
	})
	s.keep(owner, writes)
	if len(behind) == 0 {
		return nil
	}
	s.waiting[owner] = true
	slices.Sort(behind)
	return fmt.Errorf("the cache does not show this controller's own write yet: %s", strings.Join(behind, "; "))
}

// readVersion reads the resource version of a resource's cache. If that has gone backward,
// it drops the records of all writes to the resource.
func (s *Store) readVersion(resource schema.GroupResource) {
	at := s.caches[resource].LastStoreSyncResourceVersion()
	if isOlder(at, s.lastAt[resource]) {
		for owner, writes := range s.writes {
			s.keep(owner, slices.DeleteFunc(writes, func(w write) bool { return w.resource == resource }))
		}
	}
	s.lastAt[resource] = at
}

// keep replaces an owner's records.
func (s *Store) keep(owner cache.ObjectName, writes []write) {
	if len(writes) == 0 {
		delete(s.writes, owner)
		delete(s.waiting, owner)
		return
	}
	s.writes[owner] = writes
}

// Clear drops all records of an owner. Call it when the owner has been deleted.
func (s *Store) Clear(owner cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(owner, nil)
}

// IsEcho reports whether an object that a cache shows now, of the given resource and
// version, is just what was last written for owner, so that there is nothing new to sync
// owner for. It drops the record of the write. It returns false if a sync of owner waits for
// a write to show, because that is news then.
//
// It is for writes that nothing follows, such as that of a status. Where one child is
// written after another, that the last one shows is what the next one waits for.
func (s *Store) IsEcho(owner cache.ObjectName, resource schema.GroupResource, resourceVersion string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isThis := func(w write) bool { return w.resource == resource && w.version == resourceVersion }
	if s.waiting[owner] || !slices.ContainsFunc(s.writes[owner], isThis) {
		return false
	}
	s.keep(owner, slices.DeleteFunc(s.writes[owner], isThis))
	return true
}

// isOlder reports whether resource version a is older than b. It returns false if they
// cannot be compared.
func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// isComparable reports whether a resource version can be compared to others.
func isComparable(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}
