package apply

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// contentOf returns the fields that an object has, as [Child] defines it, without its
// apiVersion and kind. JSON has more of them: a struct that is not a pointer is in it even if
// nothing is in the struct, such as the status of what does not exist yet.
func contentOf(obj metav1.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	dropEmpty(fields, reflect.ValueOf(obj))
	return fields, nil
}

// dropEmpty drops from what typed was converted to whatever is not in typed.
func dropEmpty(converted any, typed reflect.Value) {
	typed = reflect.Indirect(typed)
	switch converted := converted.(type) {
	case map[string]any:
		if typed.Kind() == reflect.Map {
			for entries := typed.MapRange(); entries.Next(); {
				dropEmpty(converted[entries.Key().String()], entries.Value())
			}
			return
		}
		for _, field := range fieldsOfType(typed.Type()) {
			value, ok := field.of(typed)
			if ok {
				dropEmpty(converted[field.name], value)
			}
			if !ok || converted[field.name] == nil || field.omitsZero && value.Kind() == reflect.Struct && isEmpty(converted[field.name]) {
				delete(converted, field.name)
			}
		}
	case []any:
		for i := range converted {
			dropEmpty(converted[i], typed.Index(i))
		}
	}
}

func isEmpty(converted any) bool {
	object, ok := converted.(map[string]any)
	return ok && len(object) == 0
}
