package consistency

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
)

// State is all that a Store remembers. Owners are in the format namespace/name, and
// resources in the format resource.group.
type State struct {
	// Writes has the resource version of the newest write to each resource, by owner.
	Writes map[string]map[string]string `json:"writes,omitempty"`
	// Waiting has the owners with writes for which EnsureReady has returned an error, in
	// alphabetical order.
	Waiting []string `json:"waiting,omitempty"`
	// LastAt has the resource version of each cache when it was last read.
	LastAt map[string]string `json:"lastAt,omitempty"`
}

// State returns what the store remembers, for tests that restore it later. Equal states
// have equal JSON.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := State{
		Writes:  snapshot.Save(s.writes, versionsOf),
		Waiting: snapshot.SaveSet(s.waiting),
		LastAt:  map[string]string{},
	}
	for resource, version := range s.lastAt {
		if version != "" {
			state.LastAt[resource.String()] = version
		}
	}
	return state
}

// SetState replaces what the store remembers.
func (s *Store) SetState(state State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = snapshot.Restore(state.Writes, writesOf)
	s.waiting = snapshot.RestoreSet(state.Waiting)
	s.lastAt = map[schema.GroupResource]string{}
	for resource, version := range state.LastAt {
		s.lastAt[schema.ParseGroupResource(resource)] = version
	}
}

// versionsOf returns the versions of writes by their resources.
func versionsOf(writes []write) map[string]string {
	versions := make(map[string]string, len(writes))
	for _, w := range writes {
		versions[w.resource.String()] = w.version
	}
	return versions
}

// writesOf is the inverse of versionsOf. The writes are in the order of their resources.
func writesOf(versions map[string]string) (writes []write) {
	for resource, version := range versions {
		writes = append(writes, write{schema.ParseGroupResource(resource), version})
	}
	slices.SortFunc(writes, func(a, b write) int { return cmp.Compare(a.resource.String(), b.resource.String()) })
	return writes
}
