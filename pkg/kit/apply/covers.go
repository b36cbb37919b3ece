package apply

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// isAsWanted reports whether [Owner.Compare] would surely find nothing, as is mostly the
// case. It compares typed values in place, at a tenth of the cost.
func (o Owner) isAsWanted(live, want any) bool {
	is, wants := reflect.ValueOf(live), reflect.ValueOf(want)
	if !covers(is, wants) {
		return false
	}
	for _, optional := range o.Optional {
		has, ok := typedAt(is, optional)
		if ok && (!has.IsValid() || has.IsZero()) {
			continue
		}
		if wanted, isKnown := typedAt(wants, optional); !ok || !isKnown || !covers(wanted, has) {
			return false
		}
	}
	return true
}

// covers reports whether live surely has all that want has: whether compare finds nothing in
// what they are converted to.
func covers(live, want reflect.Value) bool {
	live, want = reflect.Indirect(live), reflect.Indirect(want)
	if !live.IsValid() || !want.IsValid() || live.Type() != want.Type() {
		return false
	}
	switch kind := want.Kind(); {
	case kind == reflect.Struct && want.Type().Implements(marshaler):
		return haveSameJSON(live, want)
	case kind == reflect.Struct:
		return coversFields(live, want)
	case kind == reflect.Map && want.Type().Key().Kind() == reflect.String:
		return coversKeys(live, want)
	case kind == reflect.Slice:
		return coversElements(live, want)
	case kind == reflect.String, kind == reflect.Bool, want.CanInt():
		return live.Equal(want)
	default:
		return false
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func haveSameJSON(a, b reflect.Value) bool {
	rawA, errA := json.Marshal(a.Interface())
	rawB, errB := json.Marshal(b.Interface())
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}

func coversFields(live, want reflect.Value) bool {
	for _, field := range fieldsOfType(want.Type()) {
		wanted, ok := field.of(want)
		if !ok {
			continue
		}
		if has, ok := field.of(live); !ok || !covers(has, wanted) {
			return false
		}
	}
	return true
}

func coversKeys(live, want reflect.Value) bool {
	for entries := want.MapRange(); entries.Next(); {
		if !covers(live.MapIndex(entries.Key()), entries.Value()) {
			return false
		}
	}
	return true
}

// coversElements goes by the rules of compare: objects may stand anywhere, and lists of
// plain values are the same as a whole.
func coversElements(live, want reflect.Value) bool {
	isOfObjects := want.Type().Elem().Kind() == reflect.Struct
	if !isOfObjects && live.Len() != want.Len() {
		return false
	}
	for i := range want.Len() {
		if !isOfObjects && !covers(live.Index(i), want.Index(i)) {
			return false
		}
		if isOfObjects && !hasElement(live, want.Index(i)) {
			return false
		}
	}
	return true
}

func hasElement(live, want reflect.Value) bool {
	for i := range live.Len() {
		if covers(live.Index(i), want) {
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

// jsonField is where a struct has a field of the JSON that is made of it.
type jsonField struct {
	name      string
	index     []int // nil if there is no such field
	omitsZero bool
}

// of returns the value of the field in a struct. ok is false if the JSON does not have it, or
// only an empty one.
func (f jsonField) of(object reflect.Value) (value reflect.Value, ok bool) {
	if f.index == nil {
		return value, false
	}
	value, err := object.FieldByIndexErr(f.index)
	if err != nil {
		return value, false
	}
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		return value, !value.IsNil()
	case reflect.Map, reflect.Slice:
		return value, value.Len() > 0
	default:
		return value, !f.omitsZero || !value.IsZero()
	}
}

// jsonFields are those of each type.
var jsonFields sync.Map

// fieldsOfType returns which fields structs of a type have; none for another type.
func fieldsOfType(of reflect.Type) []jsonField {
	if known, ok := jsonFields.Load(of); ok {
		return known.([]jsonField)
	}
	var found []jsonField
	if of.Kind() == reflect.Struct {
		found = appendFields(nil, of, nil)
	}
	jsonFields.Store(of, found)
	return found
}

// fieldNamed returns the field of that name that structs of a type have.
func fieldNamed(of reflect.Type, name string) jsonField {
	for _, field := range fieldsOfType(of) {
		if field.name == name {
			return field
		}
	}
	return jsonField{}
}

// appendFields adds the fields of a type that is embedded at index. Like objects from a
// cache, those of TypeMeta are left out.
func appendFields(found []jsonField, of reflect.Type, index []int) []jsonField {
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := append(slices.Clone(index), i)
		switch isInline := f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct; {
		case isInline && strings.HasPrefix(f.Type.Name(), "TypeMeta"), name == "-", !f.IsExported():
		case isInline:
			found = appendFields(found, f.Type, at)
		default:
			found = append(found, jsonField{cmp.Or(name, f.Name), at, strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")})
		}
	}
	return found
}
