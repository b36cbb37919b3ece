// Package snapshot helps with values that have all that a process remembers: tests save them
// as JSON, and restore them later.
package snapshot

import (
	"slices"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// Time returns t such that equal times are equal values.
func Time(t time.Time) time.Time { return t.Round(0).UTC() }

// Name returns the name whose String method has returned text. It panics if there is none.
func Name(text string) cache.ObjectName {
	name, err := cache.ParseObjectName(text)
	utilruntime.Must(err)
	return name
}

// Save returns a map by the texts of its names, with what convert makes of its values. It is
// nil if there are none.
func Save[V, W any](values map[cache.ObjectName]V, convert func(V) W) map[string]W {
	if len(values) == 0 {
		return nil
	}
	saved := make(map[string]W, len(values))
	for name, value := range values {
		saved[name.String()] = convert(value)
	}
	return saved
}

// Restore is the inverse of [Save]. It never returns nil.
func Restore[V, W any](saved map[string]W, convert func(W) V) map[cache.ObjectName]V {
	values := make(map[cache.ObjectName]V, len(saved))
	for text, value := range saved {
		values[Name(text)] = convert(value)
	}
	return values
}

// SaveSet returns the texts of names, in alphabetical order. It is nil if there are none.
func SaveSet(names map[cache.ObjectName]bool) []string {
	var saved []string
	for name := range names {
		saved = append(saved, name.String())
	}
	slices.Sort(saved)
	return saved
}

// RestoreSet is the inverse of [SaveSet]. It never returns nil.
func RestoreSet(saved []string) map[cache.ObjectName]bool {
	names := make(map[cache.ObjectName]bool, len(saved))
	for _, text := range saved {
		names[Name(text)] = true
	}
	return names
}

// Same returns its argument, as a convert function.
func Same[V any](value V) V { return value }
