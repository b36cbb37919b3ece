package lenient_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// bowlJSON is a Bowl with that spec.
func bowlJSON(spec string) string {
	return `{"apiVersion":"parlor.example/v1alpha1","kind":"Bowl","metadata":{"name":"punch"},"spec":` + spec + `}`
}

// bowlFields are the fields of a BowlSpec, and some that it does not have.
func bowlFields() (names []string) {
	for field := range reflect.TypeFor[BowlSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			name = field.Name
		}
		names = append(names, name)
	}
	return append(names, "inner", "deep", "STRING", "unknown", "")
}

// bowlValues are values of which a field accepts some.
var bowlValues = []string{
	"null", "true", "false", "0", "7", "-1", "300", "3000000000", "9007199254740993", "1e400", "1e2", "1.0", "1.5", "-0",
	`""`, `"7"`, `"-1.5"`, `"true"`, `"null"`, `"1Gi"`, `"5s"`, `"NzA="`, `"NzA"`, `"NzA=\n"`, `"2026-01-01T00:00:00Z"`, `"2026-01-01T00:00:00.000001Z"`,
	`"2026-1-1T00:00:00Z"`, `"2026-01-01T00:00:00,5Z"`, `"2026-01-01T24:00:00Z"`, `"\u00e9\ud83c\udf66"`, `"\ud83c"`, "\"\xff\"", `"\x"`, `" "`,
	"[]", "[null]", "[1]", "[1,2]", "[1,2,3]", `["a"]`, `[["a"],null,[]]`, `[{}]`,
	"{}", `{"a":null}`, `{"a":"b"}`, `{"a":1}`, `{"a":1.5}`, `{"a":{"b":[1,"c",true,null]}}`, `{"7":true}`, `{"07":true,"7":false}`, `{"x":true}`,
	`{"name":"a","pods":2}`, `{"a":{"name":"a","pods":2},"b":{}}`, `{"NAME":"a"}`, `{"name":"a","name":"b"}`, `{"a":"b","a":null}`,
	`{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}`, `{"apiVersion":"v1","kind":"Pod","a":1}`, `{"\u0061":"b"}`,
	"[1,]", "{,}", "nul", "07", "+1", "'a'", "",
}

// Each field gets from each value what the usual decoder gives it, and whatever that does not
// accept is an error or a problem.
func TestLikeUsual(t *testing.T) {
	for _, name := range bowlFields() {
		for _, value := range bowlValues {
			requireLikeUsual(t, bowlJSON(fmt.Sprintf(`{"bool":true,%q:%s,"string":"after"}`, name, value)))
		}
	}
	for _, data := range []string{
		bowlJSON(`{"map":{"a":"b"},"map":{"c":"d"}}`),
		bowlJSON(`{"node":{"name":"a"},"node":{"pods":2}}`),
		bowlJSON(`{"string":"a"}`) + "\n",
		" " + bowlJSON(`{"string":"a"}`),
		strings.Replace(bowlJSON(`{"string":"a"}`), "}", `,"kind":"Cone"}`, 1),
		strings.Replace(bowlJSON(`{"string":"a"}`), `"Bowl"`, `"Cone","kind":"Bowl"`, 1),
		`{"kind":"Bowl","apiVersion":"parlor.example/v1alpha1","spec":{"string":"a"}}`,
		`{"kind":"Bowl","kind":"Bowl","apiVersion":"parlor.example/v1alpha1"}`,
		`{"metadata":{"name":"a","namespace":"b"},"kind":"Bowl","apiVersion":"parlor.example/v1alpha1","spec":{"string":"a"}}`,
		`{"kind":"Bowl","apiVersion":"parlor.example/v1alpha1"}`,
		`{"apiVersion":"parlor.example/v1alpha1","kind":"Bo\u0077l","spec":{}}`,
	} {
		requireLikeUsual(t, data)
	}
}

// requireLikeUsual requires that data is decoded as by the usual decoder, whether or not there
// is something to decode it into.
func requireLikeUsual(t *testing.T, data string) {
	t.Helper()
	for name, newInto := range map[string]func() runtime.Object{
		"nothing":           func() runtime.Object { return nil },
		"an empty object":   func() runtime.Object { return &Bowl{} },
		"an object":         func() runtime.Object { return &Bowl{Spec: BowlSpec{Map: map[string]string{"old": "yes"}}} },
		"another type":      func() runtime.Object { return &Cone{} },
		"an unknown object": func() runtime.Object { return &runtime.Unknown{} },
	} {
		want, wantKind, wantErr := usually.Decode([]byte(data), nil, newInto())
		got, kind, err := leniently.Decode([]byte(data), nil, newInto())
		if wantErr != nil {
			if err == nil && !isFlawed(got) || err != nil && err.Error() != wantErr.Error() {
				t.Errorf("%s into %s: the usual decoder says %v, and this one %v, with %+v", data, name, wantErr, err, got)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(kind, wantKind) {
			t.Errorf("%s into %s: %v, kind %v, want %v (-usual +lenient):\n%s", data, name, err, kind, wantKind, cmp.Diff(want, got))
		}
	}
}

// isFlawed reports whether an object, or one in a list, has a field that was not decoded.
func isFlawed(obj runtime.Object) bool {
	switch obj := obj.(type) {
	case *ConeList:
		return slices.ContainsFunc(obj.Items, func(c Cone) bool { return isFlawed(&c) })
	case metav1.Object:
		return slices.ContainsFunc([]string{"apiVersion", "kind", "metadata", "spec", "status"}, func(field string) bool { return lenient.Problem(obj, field) != "" })
	default:
		return false
	}
}
