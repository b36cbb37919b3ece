package apply

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// mayBeStale reports whether live may have optional fields that want has not. Mostly it has
// none to spare, and its managedFields need not be read.
func (o Owner) mayBeStale(live, want reflect.Value) bool {
	for _, optional := range o.Optional {
		has, ok := typedAt(live, optional)
		if ok && (!has.IsValid() || has.IsZero()) {
			continue
		}
		if wanted, isKnown := typedAt(want, optional); !ok || !isKnown || len(compare(wanted, has)) > 0 {
			return true
		}
	}
	return false
}

// typedAt returns what is at path in a typed object; the zero Value if nothing is. ok is
// false if that is unknown.
func typedAt(object reflect.Value, path fieldpath.Path) (found reflect.Value, ok bool) {
	for _, step := range path {
		if object = reflect.Indirect(object); !object.IsValid() {
			return object, true
		}
		switch {
		case step.FieldName != nil && object.Kind() == reflect.Struct:
			object, _ = fieldNamed(object.Type(), *step.FieldName).of(object)
		case step.Key != nil && object.Kind() == reflect.Slice:
			if object, ok = elementWith(object, step); !ok {
				return object, false
			}
		default:
			return object, false
		}
	}
	return object, true
}

// elementWith returns the element of a list that has a key. ok is false if that of any
// element is not complete, or not made of strings.
func elementWith(list reflect.Value, step fieldpath.PathElement) (found reflect.Value, ok bool) {
	for i := range list.Len() {
		element, isIt := reflect.Indirect(list.Index(i)), true
		for _, part := range *step.Key {
			is, ok := fieldNamed(element.Type(), part.Name).of(element)
			if is = reflect.Indirect(is); !ok || is.Kind() != reflect.String || !part.Value.IsString() {
				return reflect.Value{}, false
			}
			isIt = isIt && is.String() == part.Value.AsString()
		}
		if isIt && !found.IsValid() {
			found = element
		}
	}
	return found, true
}

// staleFields returns the optional fields that live still has, that the owner wrote,
// and that want no longer has.
func (o Owner) staleFields(entries []metav1.ManagedFieldsEntry, live, want any) *fieldpath.Set {
	stale := fieldpath.NewSet()
	for _, entry := range entries {
		if !o.owns(entry) {
			continue
		}
		for path := range fieldsOf(entry).All() {
			if o.isOptional(path) && isStale(live, want, path) {
				stale.Insert(path.Copy())
			}
		}
	}
	return stale
}

// isOptional reports whether a path is below an optional one.
func (o Owner) isOptional(path fieldpath.Path) bool {
	return slices.ContainsFunc(o.Optional, func(optional fieldpath.Path) bool {
		return len(path) > len(optional) && path[:len(optional)].Equals(optional)
	})
}

// isStale reports whether live has the field at path and want has not. A map is not a
// field but holds some: only these, and elements of lists, are ever stale.
func isStale(live, want any, path fieldpath.Path) bool {
	is, ok := at(live, path)
	if _, isMap := is.(map[string]any); !ok || isMap && path[len(path)-1].FieldName != nil {
		return false
	}
	if _, ok = at(want, path); ok {
		return false
	}
	_, ok = at(want, path[:len(path)-1])
	return !ok || !isInKey(path)
}

// isInKey reports whether a path is that of a field in the key of a list's element. An
// element that is wanted has all of its key, also what the API server has filled in.
func isInKey(path fieldpath.Path) bool {
	if len(path) < 2 {
		return false
	}
	name, element := path[len(path)-1].FieldName, path[len(path)-2]
	return name != nil && element.Key != nil && slices.ContainsFunc(*element.Key, func(part value.Field) bool { return part.Name == *name })
}

// at returns what is at path in object.
func at(object any, path fieldpath.Path) (found any, ok bool) {
	for _, step := range path {
		if object, ok = inside(object, step); !ok {
			return nil, false
		}
	}
	return object, true
}

func inside(object any, step fieldpath.PathElement) (found any, ok bool) {
	if step.FieldName != nil {
		fields, _ := object.(map[string]any)
		found, ok = fields[*step.FieldName]
		return found, ok
	}
	list, _ := object.([]any)
	if step.Index != nil && *step.Index >= 0 && *step.Index < len(list) {
		return list[*step.Index], true
	}
	i := slices.IndexFunc(list, func(element any) bool {
		if step.Value != nil {
			return value.Equals(*step.Value, value.NewValueInterface(element))
		}
		return step.Key != nil && fitsKey(element, *step.Key)
	})
	if i < 0 {
		return nil, false
	}
	return list[i], true
}

// fitsKey reports whether an element of a list may have that key. The API server fills in
// parts of a key that have a default, such as a port's protocol, so these may be
// missing.
func fitsKey(element any, key value.FieldList) bool {
	fields, ok := element.(map[string]any)
	for _, part := range key {
		if is, ok := fields[part.Name]; ok && !value.Equals(part.Value, value.NewValueInterface(is)) {
			return false
		}
	}
	return ok
}

// moveToApply returns a copy of entries in which the stale fields of the owner's Update
// belong to its Apply; nil if there are none.
//
// Server-side apply drops what its manager applied before and no longer does. But what
// a POST wrote belongs to an Update, which an Apply of the same manager leaves alone.
//
// csaupgrade of client-go moves all fields of an Update, and these are more than the
// POST had: the API server fills in defaults before it notes the owner, and runs
// admission plugins afterwards. The next apply would then reset each of those fields to
// its default, although a webhook or a policy has set it. TestCSAUpgrade shows it.
func (o Owner) moveToApply(entries []metav1.ManagedFieldsEntry, stale *fieldpath.Set, apiVersion string) []metav1.ManagedFieldsEntry {
	toMove := fieldpath.NewSet()
	for _, entry := range entries {
		if o.owns(entry) && entry.Operation == metav1.ManagedFieldsOperationUpdate {
			toMove = toMove.Union(fieldsOf(entry).Intersection(stale))
		}
	}
	if toMove.Empty() {
		return nil
	}
	apply := metav1.ManagedFieldsEntry{
		Manager:    o.Manager,
		Operation:  metav1.ManagedFieldsOperationApply,
		APIVersion: apiVersion,
		FieldsType: "FieldsV1",
	}
	var moved []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		switch {
		case o.owns(entry) && entry.Operation == metav1.ManagedFieldsOperationApply:
			apply = entry
			toMove = toMove.Union(fieldsOf(entry))
		case o.owns(entry):
			moved = append(moved, withFields(entry, fieldsOf(entry).Difference(stale)))
		default:
			moved = append(moved, entry)
		}
	}
	return append(moved, withFields(apply, toMove))
}

func (o Owner) owns(entry metav1.ManagedFieldsEntry) bool {
	return entry.Manager == o.Manager && entry.Subresource == ""
}

// fieldsOf reads the fields of an entry; none if they cannot be read.
func fieldsOf(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	fields := fieldpath.NewSet()
	if entry.FieldsV1 == nil {
		return fields
	}
	if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
		return fieldpath.NewSet()
	}
	return fields
}

// withFields returns the entry with other fields.
func withFields(entry metav1.ManagedFieldsEntry, fields *fieldpath.Set) metav1.ManagedFieldsEntry {
	// Sets of fields that came from JSON go back to it.
	raw, _ := fields.ToJSON()
	entry.FieldsV1 = metav1.NewFieldsV1(string(raw))
	return entry
}

// OthersIn returns the names of the other managers that own one of these fields of live,
// quoted and sorted. Whoever writes the status alone is not one of them.
func (o Owner) OthersIn(live metav1.Object, fields []Difference) []string {
	var names []string
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == o.Manager || entry.Subresource == "status" {
			continue
		}
		theirs := fieldsOf(entry)
		if slices.ContainsFunc(fields, func(f Difference) bool { return theirs.Has(f.Path) }) {
			names = append(names, fmt.Sprintf("%q", entry.Manager))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
