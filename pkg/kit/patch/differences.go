package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// maxValue is how many bytes of a value are shown in a sentence.
const maxValue = 120

// Difference is a field in which an object is not as it should be.
type Difference struct {
	Field      string // such as spec.template.spec.containers[main].image
	Live, Want any    // nil if the field is missing, or should be
}

// String says the difference in words.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %s instead of %s", d.Field, inWords(d.Live), inWords(d.Want))
}

func inWords(value any) string {
	if value == nil {
		return "nothing"
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "something" // a value from JSON: never
	}
	return text.Clip(string(raw), maxValue)
}

// Differences returns where live is not as want, sorted by field. Both are pointers to API
// objects of the same type. Elements of lists are matched by name, if they have one.
func Differences(live, want any) ([]Difference, error) {
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return nil, err
	}
	wants, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return nil, err
	}
	return differences("", is, wants), nil
}

func differences(field string, live, want any) (found []Difference) {
	if reflect.DeepEqual(live, want) {
		return nil
	}
	is, isMap := live.(map[string]any)
	wants, wantsMap := want.(map[string]any)
	if isMap && wantsMap {
		for _, key := range slices.Sorted(maps.Keys(merged(is, wants))) {
			path := key
			if field != "" {
				path = field + "." + key
			}
			found = append(found, differences(path, is[key], wants[key])...)
		}
		return found
	}
	is, isMap = byName(live)
	wants, wantsMap = byName(want)
	if isMap && wantsMap {
		for _, name := range slices.Sorted(maps.Keys(merged(is, wants))) {
			found = append(found, differences(field+"["+name+"]", is[name], wants[name])...)
		}
		return found
	}
	return []Difference{{field, live, want}}
}

func merged(a, b map[string]any) map[string]any {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// byName returns the elements of a list by their names. ok is false if it is no list of
// objects with names.
func byName(list any) (elements map[string]any, ok bool) {
	items, ok := list.([]any)
	if !ok || len(items) == 0 {
		return nil, false
	}
	elements = map[string]any{}
	for _, item := range items {
		object, _ := item.(map[string]any)
		name, ok := object["name"].(string)
		if !ok {
			return nil, false
		}
		elements[name] = item
	}
	return elements, true
}
