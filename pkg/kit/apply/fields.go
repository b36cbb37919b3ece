package apply

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"
)

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
