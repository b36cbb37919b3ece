package icecream

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The most bits and trailing zeros of a quantity. The schema allows 426 bits (20 digits with the exponent 99, in nanos)
// and 99 zeros (1e99). An Icecream stored under another schema can have a million of either: apimachinery takes
// quadratic time to marshal digits, and writes out zeros to compare.
const (
	maxBits  = 512
	maxZeros = 128
)

// oversized returns the path of a quantity that is too large; empty if there is none.
func oversized(resources v1alpha1.IcecreamResources) string {
	for _, list := range []struct {
		field string
		corev1.ResourceList
	}{{"limits", resources.Limits}, {"requests", resources.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.ResourceList)) {
			if isOversized(list.ResourceList[name]) {
				return fmt.Sprintf("spec.resources.%s.%s", list.field, name)
			}
		}
	}
	return ""
}

func isOversized(quantity resource.Quantity) bool {
	number := quantity.AsDec()
	return number.UnscaledBig().BitLen() > maxBits || number.Scale() < -maxZeros
}

// maxQuantity and maxExponent limit the text of a quantity in a template, in bytes. Longer texts must not be parsed:
// apimachinery takes half a minute to round 1e-99999999, and an API server as long to validate 1e99999999.
const (
	maxQuantity = 64
	maxExponent = len("-999")
)

// overlong returns the path to a quantity whose text is too long, if there is one. value is decoded JSON for type t.
func overlong(t reflect.Type, value any) (path string, found bool) {
	if t == reflect.TypeFor[resource.Quantity]() {
		text := fmt.Sprint(value)
		_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
		return "", len(text) > maxQuantity || len(exponent) > maxExponent
	}
	switch t.Kind() {
	case reflect.Pointer:
		return overlong(t.Elem(), value)
	case reflect.Slice:
		items, _ := value.([]any)
		for i, item := range items {
			if below, found := overlong(t.Elem(), item); found {
				return fmt.Sprintf("[%d]%s", i, below), true
			}
		}
	case reflect.Map:
		members, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(members)) {
			if below, found := overlong(t.Elem(), members[key]); found {
				return "." + key + below, true
			}
		}
	case reflect.Struct:
		members, _ := value.(map[string]any)
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous && name == "" { // It is inline.
				if below, found := overlong(field.Type, value); found {
					return below, true
				}
			} else if member, isThere := members[name]; isThere {
				if below, found := overlong(field.Type, member); found {
					return "." + name + below, true
				}
			}
		}
	default: // other scalars
	}
	return "", false
}
