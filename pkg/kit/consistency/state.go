package consistency

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

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
	state := State{Writes: map[string]map[string]string{}, LastAt: map[string]string{}}
	for owner, writes := range s.writes {
		versions := map[string]string{}
		for _, w := range writes {
			versions[w.resource.String()] = w.version
		}
		state.Writes[owner.String()] = versions
	}
	for owner := range s.waiting {
		state.Waiting = append(state.Waiting, owner.String())
	}
	slices.Sort(state.Waiting)
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
	s.writes = map[cache.ObjectName][]write{}
	s.waiting = map[cache.ObjectName]bool{}
	s.lastAt = map[schema.GroupResource]string{}
	for owner, versions := range state.Writes {
		var writes []write
		for resource, version := range versions {
			writes = append(writes, write{schema.ParseGroupResource(resource), version})
		}
		slices.SortFunc(writes, func(a, b write) int { return cmp.Compare(a.resource.String(), b.resource.String()) })
		s.writes[snapshot.Name(owner)] = writes
	}
	for _, owner := range state.Waiting {
		s.waiting[snapshot.Name(owner)] = true
	}
	for resource, version := range state.LastAt {
		s.lastAt[schema.ParseGroupResource(resource)] = version
	}
}
