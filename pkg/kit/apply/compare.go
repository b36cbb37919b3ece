package apply

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Owner says which fields of an object belong to a controller.
type Owner struct {
	// Manager is the field manager of everything that the controller writes.
	Manager string
	// Optional are the paths below which the controller wants a field at one time and
	// not at another. Elsewhere it always wants the same fields, with whatever values,
	// so that none of them can become stale. What the API server fills in below these
	// paths goes with the first apply, and is then filled in again.
	Optional []fieldpath.Path
}

// Difference is a field that is not as it should be.
type Difference struct {
	Path fieldpath.Path `json:"-"`
	// Field is the path in words: spec.template.spec.containers[name="main"].image.
	Field string
	Live  any // nil when the field is missing
	Want  any // nil when the field should not be there
}

// Compare returns child with what an apply to live needs and would change: fields that
// have another value there or are missing, sorted by path, and then fields that the
// owner wrote and no longer wants.
//
// It takes an object of the same type as the child's, such as one from a cache.
func (o Owner) Compare(child Child, live metav1.Object) Child {
	is, wants := reflect.ValueOf(live), reflect.ValueOf(child.Want)
	child.UID, child.ResourceVersion, child.ManagedFields = live.GetUID(), live.GetResourceVersion(), nil
	child.Drift = compare(is, wants)
	// Elements of a list may have the same key, and so the same path.
	slices.SortStableFunc(child.Drift, func(a, b Difference) int { return a.Path.Compare(b.Path) })
	if o.mayBeStale(is, wants) {
		o.addStale(&child, live)
	}
	for i := range child.Drift {
		child.Drift[i].Field = strings.TrimPrefix(child.Drift[i].Path.String(), ".")
	}
	return child
}

// addStale adds what is stale in live to the child's Drift, and sets its ManagedFields.
func (o Owner) addStale(child *Child, live metav1.Object) {
	// Both are plain structs of known types, which always convert.
	is, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(withoutManagedFields(live))
	wants, _ := contentOf(child.Want)
	stale := o.staleFields(live.GetManagedFields(), is, wants)
	if stale.Empty() {
		return
	}
	for path := range stale.All() {
		value, _ := at(is, path)
		child.Drift = append(child.Drift, Difference{Path: path.Copy(), Live: value})
	}
	child.ManagedFields = o.moveToApply(live.GetManagedFields(), stale, child.Resource.GroupVersion().String())
}

// withoutManagedFields returns a shallow copy of a typed object: its managedFields are
// most of what it takes to convert one.
func withoutManagedFields(obj metav1.Object) any {
	shallow := reflect.New(reflect.TypeOf(obj).Elem())
	shallow.Elem().Set(reflect.ValueOf(obj).Elem())
	shallow.Interface().(metav1.Object).SetManagedFields(nil)
	return shallow.Interface()
}

// compare returns where live is not as want, which it may exceed. Each object in a list
// has to be in live too, whatever other elements stand before, between or behind; lists
// of plain values are compared as a whole. The two have the same type, but live may also be
// the zero Value, for nothing.
func compare(live, want reflect.Value) []Difference {
	live, want = reflect.Indirect(live), reflect.Indirect(want)
	switch {
	case !want.IsValid():
		return nil
	case !live.IsValid():
		return []Difference{{Want: plain(want)}}
	case isObject(want.Type()):
		return compareFields(live, want)
	case want.Kind() == reflect.Map && want.Type().Key().Kind() == reflect.String:
		return compareKeys(live, want)
	case want.Kind() == reflect.Slice && isObject(want.Type().Elem()):
		return compareElements(live, want)
	case isSame(live, want):
		return nil
	}
	return []Difference{{Live: plain(live), Want: plain(want)}}
}

func compareFields(live, want reflect.Value) (found []Difference) {
	for _, field := range fieldsOfType(want.Type()) {
		wanted, ok := field.of(want)
		if !ok {
			continue
		}
		has, ok := field.of(live)
		if !ok && has.Kind() != reflect.Struct { // JSON always has a struct, if only an empty one.
			has = reflect.Value{}
		}
		if different := compare(has, wanted); len(different) > 0 {
			name := field.name
			found = append(found, below(fieldpath.PathElement{FieldName: &name}, different)...)
		}
	}
	return found
}

func compareKeys(live, want reflect.Value) (found []Difference) {
	for entries := want.MapRange(); entries.Next(); {
		if different := compare(live.MapIndex(entries.Key()), entries.Value()); len(different) > 0 {
			key := entries.Key().String()
			found = append(found, below(fieldpath.PathElement{FieldName: &key}, different)...)
		}
	}
	return found
}

func compareElements(live, want reflect.Value) (found []Difference) {
	for i := range want.Len() {
		element := reflect.Indirect(want.Index(i))
		if different := compareElement(live, element); len(different) > 0 {
			found = append(found, below(keyOf(element, i), different)...)
		}
	}
	return found
}

// compareElement returns in what the element of live that corresponds to want differs
// from it: of several, the first, unless another does not differ at all.
func compareElement(live, want reflect.Value) []Difference {
	var found []Difference
	name, key := keyField(want)
	for i := range live.Len() {
		element := reflect.Indirect(live.Index(i))
		if name != "" && !hasKey(element, name, key) {
			continue
		}
		different := compare(element, want)
		if len(different) == 0 {
			return nil
		}
		if found == nil && name != "" {
			found = different
		}
	}
	if found == nil {
		found = []Difference{{Want: plain(want)}}
	}
	return found
}

func hasKey(element reflect.Value, name, key string) bool {
	value, ok := fieldNamed(element.Type(), name).of(element)
	return ok && value.String() == key
}

// keyField returns the field that tells an element of a list from the others, and its
// value; "" if none does.
func keyField(element reflect.Value) (name, value string) {
	for _, name := range []string{"uid", "name"} {
		if value, ok := fieldNamed(element.Type(), name).of(element); ok && value.Kind() == reflect.String {
			return name, value.String()
		}
	}
	return "", ""
}

// keyOf returns where an element is in its list: by its key if it has one.
func keyOf(element reflect.Value, index int) fieldpath.PathElement {
	if name, value := keyField(element); name != "" {
		return fieldpath.PathElement{Key: fieldpath.KeyByFields(name, value)}
	}
	return fieldpath.PathElement{Index: &index}
}

// below puts an element before the paths of differences.
func below(element fieldpath.PathElement, found []Difference) []Difference {
	for i := range found {
		found[i].Path = append(fieldpath.Path{element}, found[i].Path...)
	}
	return found
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// isObject reports whether JSON has an object with the fields of a type for its values.
func isObject(of reflect.Type) bool {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	return of.Kind() == reflect.Struct && !of.Implements(marshaler)
}

// isSame reports whether two plain values, or lists of them, are the same.
func isSame(a, b reflect.Value) bool {
	switch {
	case a.Kind() == reflect.String, a.Kind() == reflect.Bool, a.CanInt():
		return a.Equal(b)
	case a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.String:
		return areSame(a, b)
	}
	rawA, errA := json.Marshal(a.Interface())
	rawB, errB := json.Marshal(b.Interface())
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}

func areSame(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if a.Index(i).String() != b.Index(i).String() {
			return false
		}
	}
	return true
}

// plain returns what contentOf has for a value.
func plain(value reflect.Value) any {
	raw, _ := json.Marshal(value.Interface())
	var content any
	_ = utiljson.Unmarshal(raw, &content)
	dropEmpty(content, value)
	return content
}
