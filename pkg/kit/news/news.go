// Package news remembers what was last reported about each object, so that the same
// thing is not reported twice in a row.
package news

import "sync"

// Store holds the last report by key. Its methods are safe for concurrent use, and the
// zero Store is empty.
type Store[K, V comparable] struct {
	mu   sync.Mutex
	last map[K]V
}

// IsNew reports whether value differs from what was last reported for key, and records
// it as reported.
func (s *Store[K, V]) IsNew(key K, value V) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[key]; ok && last == value {
		return false
	}
	if s.last == nil {
		s.last = map[K]V{}
	}
	s.last[key] = value
	return true
}

// Forget makes any value for key new again.
func (s *Store[K, V]) Forget(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, key)
}

// Retain forgets all keys for which keep returns false. It must not call the Store.
func (s *Store[K, V]) Retain(keep func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.last {
		if !keep(key) {
			delete(s.last, key)
		}
	}
}

// Last returns what was last reported for key; the zero value if that was nothing.
func (s *Store[K, V]) Last(key K) V {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[key]
}

// Len returns how many keys are remembered.
func (s *Store[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.last)
}
