// Package compact makes objects smaller that a cache keeps, without changing what they say:
// it drops metadata that nobody reads, and has what many objects have in common in memory
// once.
package compact

import (
	"encoding/json"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// Metadata drops from an object's metadata what a cache need not keep: the managedFields, and
// kubectl's copy of the whole object.
func Metadata(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
	if len(meta.Annotations) == 0 {
		meta.Annotations = nil
	}
	Share(&meta.Namespace)
}

// Conditions shares what the conditions of many objects have in common.
func Conditions(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		Share(&c.Type, &c.Reason, &c.Message)
		Share(&c.Status)
	}
}

// Share replaces strings by equal ones that are in memory already. That pays for those that
// many objects have in common.
func Share[S ~string](values ...*S) {
	for _, s := range values {
		*s = unique.Make(*s).Value()
	}
}

// Shared replaces values, which are not changed, by equal ones that are in memory already. It
// remembers those that were asked for last.
type Shared[T any] struct{ values *lru.Cache }

// NewShared returns a Shared that remembers that many values.
func NewShared[T any](size int) Shared[T] { return Shared[T]{lru.New(size)} }

// Of returns a value that has the same JSON.
func (s Shared[T]) Of(value T) T {
	raw, err := json.Marshal(value)
	if err != nil {
		return value
	}
	if known, ok := s.values.Get(string(raw)); ok {
		return known.(T)
	}
	s.values.Add(string(raw), value)
	return value
}
