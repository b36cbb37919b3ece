package source

import (
	"iter"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A collection is all objects of one resource: those at rest, which are generated whenever
// somebody asks for them, except those that have changed since.
//
// The source's mutex protects the fields below it.
type collection struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	series   []series

	changed map[cache.ObjectName]object
	log     []change // since the source has started
}

// A series is objects at rest that differ only in their numbers.
type series struct {
	samples []object // one for each number of a Pod
	count   int      // of Icecreams
	first   int      // the resource version of the first object
}

// size returns the number of objects.
func (s series) size() int { return s.count * len(s.samples) }

// An item is one object at rest.
type item struct{ series, number int }

// numbers returns what the item's sample is to be filled with.
func (c *collection) numbers(i item) numbers {
	s := c.series[i.series]
	return numbers{icecream: i.number / len(s.samples), version: s.first + i.number}
}

// sample returns the item's sample.
func (c *collection) sample(i item) object {
	s := c.series[i.series]
	return s.samples[i.number%len(s.samples)]
}

// name returns the item's name.
func (c *collection) name(i item) cache.ObjectName {
	sample, n := c.sample(i), c.numbers(i)
	return cache.ObjectName{Namespace: fill(sample.GetNamespace(), n), Name: fill(sample.GetName(), n)}
}

// find returns the item of that name.
func (c *collection) find(name cache.ObjectName) (found item, ok bool) {
	for i, s := range c.series {
		for j, sample := range s.samples {
			at := strings.Index(sample.GetName(), tokenIcecream)
			end := at + len(tokenIcecream)
			if at < 0 || len(name.Name) < end {
				continue
			}
			number, err := strconv.Atoi(name.Name[at:end])
			found := item{i, number*len(s.samples) + j}
			if err == nil && number >= 0 && number < s.count && c.name(found) == name {
				return found, true
			}
		}
	}
	return item{}, false
}

// generate returns an item as an object.
func (c *collection) generate(i item) (object, error) {
	f := storageFormat(c.kind)
	encoded, err := f.encode(c.sample(i))
	if err != nil {
		return nil, err
	}
	obj, _, err := f.Serializer.Decode(newTemplate(encoded).append(nil, c.numbers(i)), &c.kind, nil)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(c.kind)
	return obj.(object), nil
}

// A change is what a watch sees.
type change struct {
	of      watch.EventType
	object  object
	version int
}

// A snapshot is a collection at one time.
type snapshot struct {
	*collection
	version int
	logged  int // the length of the log
	changed map[cache.ObjectName]object
	stale   map[item]bool // items at rest that have changed
}

// each yields what the snapshot contains and the filter matches: an item, or an object if
// it has changed since the source started. It starts with that entry, at which a list was
// interrupted; the first is 0.
func (s snapshot) each(f filter, from int) iter.Seq2[int, entry] {
	return func(yield func(int, entry) bool) {
		at := 0
		for i, series := range s.series {
			for number := max(0, from-at); number < series.size(); number++ {
				it := item{i, number}
				if !s.stale[it] && f.matchesItem(s.collection, it) && !yield(at+number, entry{item: it}) {
					return
				}
			}
			at += series.size()
		}
		// A list that is interrupted here begins again with the changed objects, which
		// are few.
		for _, obj := range s.changed {
			if f.matches(obj) && !yield(at, entry{object: obj}) {
				return
			}
		}
	}
}

// An entry is an object that has changed, or an item at rest.
type entry struct {
	item   item
	object object // nil for an item
}

// filter selects objects.
type filter struct {
	namespace, name string // all if empty
	labels          labels.Selector
}

func (f filter) matches(obj object) bool {
	return f.matchesName(cache.MetaObjectToName(obj)) && f.labels.Matches(labels.Set(obj.GetLabels()))
}

func (f filter) matchesName(name cache.ObjectName) bool {
	return (f.namespace == "" || f.namespace == name.Namespace) && (f.name == "" || f.name == name.Name)
}

func (f filter) matchesItem(c *collection, i item) bool {
	if (f.namespace != "" || f.name != "") && !f.matchesName(c.name(i)) {
		return false
	}
	if f.labels.Empty() {
		return true
	}
	sample, n := c.sample(i), c.numbers(i)
	return f.labels.Matches(filled{sample.GetLabels(), n})
}

// filled are labels with tokens.
type filled struct {
	labels  map[string]string
	numbers numbers
}

// Has implements labels.Labels.
func (f filled) Has(label string) bool { _, ok := f.labels[label]; return ok }

// Get implements labels.Labels.
func (f filled) Get(label string) string { return fill(f.labels[label], f.numbers) }

// Lookup implements labels.Labels.
func (f filled) Lookup(label string) (value string, exists bool) { return f.Get(label), f.Has(label) }

// asMetadata returns the metadata of an object, as an object of its own.
func asMetadata(obj object) runtime.Object {
	partial := meta.AsPartialObjectMetadata(obj)
	partial.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	return partial
}
