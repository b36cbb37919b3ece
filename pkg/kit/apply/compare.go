package apply

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
// It takes a typed object, such as one from a cache.
func (o Owner) Compare(child Child, live metav1.Object) Child {
	child.UID, child.ResourceVersion, child.Drift, child.ManagedFields = live.GetUID(), live.GetResourceVersion(), nil, nil
	if !o.isAsWanted(live, child.Want) {
		o.findDrift(&child, live)
	}
	return child
}

// findDrift sets the child's Drift and ManagedFields.
func (o Owner) findDrift(child *Child, live metav1.Object) {
	// Both are plain structs of known types, which always convert.
	is, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(withoutManagedFields(live))
	wants, _ := contentOf(child.Want)
	child.Drift = compare(is, wants)

	if stale := o.staleFields(live.GetManagedFields(), is, wants); !stale.Empty() {
		for path := range stale.All() {
			value, _ := at(is, path)
			child.Drift = append(child.Drift, Difference{Path: path.Copy(), Live: value})
		}
		child.ManagedFields = o.moveToApply(live.GetManagedFields(), stale, child.Resource.GroupVersion().String())
	}
	for i := range child.Drift {
		child.Drift[i].Field = strings.TrimPrefix(child.Drift[i].Path.String(), ".")
	}
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
// of plain values are compared as a whole.
func compare(live, want any) (found []Difference) {
	switch want := want.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return []Difference{{Want: want}}
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if different := compare(live[name], want[name]); len(different) > 0 {
				field := name
				found = append(found, below(fieldpath.PathElement{FieldName: &field}, different)...)
			}
		}
		// Elements of a list may have the same key, and so the same path.
		slices.SortStableFunc(found, func(a, b Difference) int { return a.Path.Compare(b.Path) })
		return found
	case []any:
		if live, ok := live.([]any); ok && len(want) > 0 && isObject(want[0]) {
			for i, element := range want {
				if different := compareElement(live, element.(map[string]any)); len(different) > 0 {
					found = append(found, below(keyOf(element.(map[string]any), i), different)...)
				}
			}
			return found
		}
	}
	if equality.Semantic.DeepEqual(live, want) {
		return nil
	}
	return []Difference{{Live: live, Want: want}}
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}

// compareElement returns in what the element of live that corresponds to want differs
// from it: of several, the first, unless another does not differ at all.
func compareElement(live []any, want map[string]any) []Difference {
	var found []Difference
	for _, element := range live {
		different := compare(element, want)
		if len(different) == 0 {
			return nil
		}
		if found == nil && isSameElement(element, want) {
			found = different
		}
	}
	if found == nil {
		found = []Difference{{Want: want}}
	}
	return found
}

// isSameElement reports whether two elements of a list have the same key.
func isSameElement(a any, b map[string]any) bool {
	object, _ := a.(map[string]any)
	key := keyField(b)
	return key != "" && object[key] == b[key]
}

// keyField returns the field that tells an element of a list from the others; "" if
// none does.
func keyField(element map[string]any) string {
	for _, name := range []string{"uid", "name"} {
		if _, ok := element[name].(string); ok {
			return name
		}
	}
	return ""
}

// keyOf returns where an element is in its list: by its key if it has one.
func keyOf(element map[string]any, index int) fieldpath.PathElement {
	if key := keyField(element); key != "" {
		return fieldpath.PathElement{Key: fieldpath.KeyByFields(key, element[key])}
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
