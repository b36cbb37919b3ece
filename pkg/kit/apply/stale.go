package apply

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// staleFields returns the optional fields that live still has, that the owner wrote,
// and that want no longer has.
func (o Owner) staleFields(entries []metav1.ManagedFieldsEntry, live, want any) *fieldpath.Set {
	stale := fieldpath.NewSet()
	for _, optional := range o.Optional {
		is, _ := at(live, optional)
		wanted, _ := at(want, optional)
		if !exceeds(is, wanted) {
			continue // Most objects have nothing to spare, and their managedFields need not be read.
		}
		for _, entry := range entries {
			if !o.owns(entry) {
				continue
			}
			for path := range fieldsOf(entry).All() {
				if len(path) > len(optional) && path[:len(optional)].Equals(optional) && isStale(live, want, path) {
					stale.Insert(path.Copy())
				}
			}
		}
	}
	return stale
}

// isStale reports whether live has the field at path and want has not. A map is not a
// field but holds some: only these, and elements of lists, are ever stale.
func isStale(live, want any, path fieldpath.Path) bool {
	is, ok := at(live, path)
	if !ok || isObject(is) && path[len(path)-1].FieldName != nil {
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

// exceeds reports whether live may have a field or an element that want has not.
func exceeds(live, want any) bool {
	switch live := live.(type) {
	case map[string]any:
		want, _ := want.(map[string]any)
		for name, value := range live {
			if exceeds(value, want[name]) {
				return true
			}
		}
		return false
	case []any:
		want, _ := want.([]any)
		return slices.ContainsFunc(live, func(element any) bool { return isExtra(element, want) })
	default:
		return live != nil && want == nil
	}
}

// isExtra reports whether an element of a list may have no counterpart in want: any of
// its fields may be its key, so only one that is just as wanted is sure to have one.
// Lists of plain values are compared elsewhere, as a whole.
func isExtra(element any, want []any) bool {
	if !isObject(element) {
		return len(want) == 0
	}
	return !slices.ContainsFunc(want, func(wanted any) bool {
		return len(compare(element, wanted)) == 0 && !exceeds(element, wanted)
	})
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
		return step.Key != nil && hasKey(element, *step.Key)
	})
	if i < 0 {
		return nil, false
	}
	return list[i], true
}

// hasKey reports whether an element of a list has that key. The API server fills in
// parts of a key that have a default, such as a port's protocol, so these may be
// missing.
func hasKey(element any, key value.FieldList) bool {
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
