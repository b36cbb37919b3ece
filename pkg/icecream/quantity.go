package icecream

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Limits of a quantity: bits of its digits, and zeros after them. The schema of spec.resources admits 426 bits
// (20 digits with the exponent 99, in nanos) and 99 zeros (1e99). Templates, and Icecreams stored under another schema,
// can have a million of either. apimachinery takes quadratic time to marshal digits, and writes out zeros to compare:
// for one Deployment with 1e99999999, an API server works until the request times out.
const (
	maxBits  = 512
	maxZeros = 128
)

// checkQuantities returns an error if a quantity at or below a value, which has this path, is too large.
func checkQuantities(path string, value any) error {
	if below, found := oversized(reflect.ValueOf(value)); found {
		return fmt.Errorf("%s%s is too large a number", path, below)
	}
	return nil
}

// oversized finds a quantity that is too large, and returns the path to it.
func oversized(value reflect.Value) (path string, found bool) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			return oversized(value.Elem())
		}
	case reflect.Slice:
		for i := range value.Len() {
			if below, found := oversized(value.Index(i)); found {
				return fmt.Sprintf("[%d]%s", i, below), true
			}
		}
	case reflect.Map:
		keys := slices.SortedFunc(slices.Values(value.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if below, found := oversized(value.MapIndex(key)); found {
				return "." + key.String() + below, true
			}
		}
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[resource.Quantity]() {
			quantity := value.Interface().(resource.Quantity)
			number := quantity.AsDec()
			return "", number.UnscaledBig().BitLen() > maxBits || number.Scale() < -maxZeros
		}
		for field, of := range value.Fields() {
			if !field.IsExported() {
				continue
			}
			if below, found := oversized(of); found {
				if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" { // otherwise it is inline
					below = "." + name + below
				}
				return below, true
			}
		}
	default: // A scalar is no quantity.
	}
	return "", false
}
