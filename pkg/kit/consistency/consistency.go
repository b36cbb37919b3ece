// Package consistency tells a controller whether its caches already show what it wrote
// for an object.
//
// A controller decides from caches, which lag behind the API server. If it synced an
// object before the caches showed its last writes for that object, it would repeat them:
// it would create what it has already created, or report what it has already reported. So
// it records each write here, and does not sync an object while a cache lacks one of the
// object's writes:
//
//	if err := c.writes.EnsureReady(name); err != nil {
//		return 0, worker.Deferred(err)
//	}
//
// The methods are named as in kube-controller-manager's pkg/controller/util/consistency. The
// package only compares resource versions, and sends no requests.
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
// that resource shows it. An owner is the object that the controller syncs. A Store is safe
// for concurrent use.
//
// A write counts as seen if its resource version and the cache's cannot be compared (one is
// empty, or the server does not count upward): an unnecessary sync does less harm than an
// object that waits forever. For the same reason, all records of a resource are dropped when
// its cache goes backward. Then the server's data was restored from a backup, and these
// writes may never have happened.
type Store struct {
	caches map[schema.GroupResource]Seen

	mu     sync.Mutex
	writes map[cache.ObjectName]map[schema.GroupResource]string
	lastAt map[schema.GroupResource]string // the resource version of each cache when it was last read
}

// New returns a Store for writes to the resources in caches. Each cache must contain
// every object whose writes are recorded: a write to an object that the informer's
// selector or namespace excludes never shows in the cache.
func New(caches map[schema.GroupResource]Seen) *Store {
	return &Store{
		caches: caches,
		writes: map[cache.ObjectName]map[schema.GroupResource]string{},
		lastAt: map[schema.GroupResource]string{},
	}
}

// WroteAt records a write on behalf of owner, by the resource version in the API server's
// response. A write that changed nothing can be recorded, too: its response contains the
// version that the object already had. resource must be one that was given to New.
func (s *Store) WroteAt(owner cache.ObjectName, resource schema.GroupResource, resourceVersion string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readVersion(resource) // before the new record is added, as it can drop older ones
	if s.writes[owner] == nil {
		s.writes[owner] = map[schema.GroupResource]string{}
	}
	if !isOlder(resourceVersion, s.writes[owner][resource]) {
		s.writes[owner][resource] = resourceVersion
	}
}

// EnsureReady returns nil if the caches show every write that is recorded for owner.
// Otherwise the error names the caches that lag, with the resource versions of cache and
// write. Call it before you read from the caches.
func (s *Store) EnsureReady(owner cache.ObjectName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource := range s.writes[owner] {
		s.readVersion(resource)
	}
	var behind []string
	for resource, version := range s.writes[owner] {
		if at := s.lastAt[resource]; isOlder(at, version) {
			behind = append(behind, fmt.Sprintf("%s is at resourceVersion %s, but the write is at %s", resource, at, version))
		} else {
			delete(s.writes[owner], resource)
		}
	}
	if len(behind) == 0 {
		delete(s.writes, owner)
		return nil
	}
	slices.Sort(behind)
	return fmt.Errorf("the cache does not show this controller's own write yet: %s", strings.Join(behind, "; "))
}

// Clear drops all records of an owner. Call it when the owner has been deleted.
func (s *Store) Clear(owner cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.writes, owner)
}

// readVersion reads the resource version of a resource's cache. If that has gone backward,
// it drops the records of all writes to the resource.
func (s *Store) readVersion(resource schema.GroupResource) {
	at := s.caches[resource].LastStoreSyncResourceVersion()
	if isOlder(at, s.lastAt[resource]) {
		for _, writes := range s.writes {
			delete(writes, resource)
		}
	}
	s.lastAt[resource] = at
}

// isOlder reports whether resource version a is older than b. It returns false if they
// cannot be compared.
func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
