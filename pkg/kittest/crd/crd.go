// Package crd tests that Go decodes what the schema of a CustomResourceDefinition admits.
//
// A value that Go cannot decode stops the typed informers of everybody who watches the kind, unless their client
// comes from package lenient: one object of one tenant is enough. One that takes seconds to decode or to encode stops
// those, too. Both are a matter of single fields, mostly of those whose type has a decoder of its own. So each field
// is tried alone: with odd values, and with some that match its pattern, if the API server's own validator admits them.
package crd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/internal/text"
)

// limit is how long it can take to decode and encode one value.
const limit = 2 * time.Second

// Check fails the test for each field of the CustomResourceDefinition in a file that admits a value which the types of
// scheme cannot decode and encode in a moment. It names the marker that cures it.
func Check(t *testing.T, file string, scheme *runtime.Scheme) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range disagreements(content, scheme) {
		t.Errorf("%s: %v", file, err)
	}
}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string
		Names struct{ Kind string }

		Versions []struct {
			Name   string
			Schema struct{ OpenAPIV3Schema spec.Schema }
		}
	}
}

// disagreements returns an error for each field that fails Check.
func disagreements(crd []byte, scheme *runtime.Scheme) (found []error) {
	var of definition
	if err := yaml.Unmarshal(crd, &of); err != nil {
		return []error{err}
	}
	if len(of.Spec.Versions) == 0 {
		return []error{errors.New("it defines no version")}
	}
	for _, version := range of.Spec.Versions {
		empty, err := scheme.New(schema.GroupVersionKind{Group: of.Spec.Group, Version: version.Name, Kind: of.Spec.Names.Kind})
		if err != nil {
			found = append(found, err)
			continue
		}
		walk("", version.Schema.OpenAPIV3Schema, reflect.TypeOf(empty), func(path string, s spec.Schema, of reflect.Type) {
			if err := try(s, of); err != nil {
				found = append(found, fmt.Errorf("%s: %s: %w; give the field the marker %s, and generate again", version.Name, path, err, cure(s, of)))
			}
		})
	}
	return found
}

// walk visits the fields at and below a path that have no fields of their own.
func walk(path string, s spec.Schema, of reflect.Type, visit func(string, spec.Schema, reflect.Type)) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case decodesItself(of):
		visit(path, s, of)
	case of.Kind() == reflect.Struct && len(s.Properties) > 0:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
				continue
			}
			if field := typeOf(of, name); field != nil { // Others are not decoded.
				walk(strings.TrimPrefix(path+"."+name, "."), s.Properties[name], field, visit)
			}
		}
	case of.Kind() == reflect.Map && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		walk(path+"{}", *s.AdditionalProperties.Schema, of.Elem(), visit)
	case of.Kind() == reflect.Slice && s.Items != nil && s.Items.Schema != nil:
		walk(path+"[]", *s.Items.Schema, of.Elem(), visit)
	default:
		visit(path, s, of)
	}
}

func decodesItself(of reflect.Type) bool {
	return reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// typeOf returns the type of the field that has a name in JSON; nil if there is none.
func typeOf(of reflect.Type, name string) reflect.Type {
	for _, f := range reflect.VisibleFields(of) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	return nil
}

// try returns an error for the first value of a field that fails.
func try(s spec.Schema, of reflect.Type) error {
	validator := validate.NewSchemaValidator(&s, nil, "", strfmt.Default)
	admitted := 0
	for _, value := range values(s) {
		if !validator.Validate(value).IsValid() {
			continue
		}
		admitted++
		raw, err := json.Marshal(value)
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- roundTrip(raw, of) }()
		select {
		case err = <-done:
		case <-time.After(limit): // The goroutine may need hours. The test has failed.
			err = fmt.Errorf("it takes more than %s to decode and encode", limit)
		}
		if err != nil {
			shown := string(raw)
			if len(raw) > 100 {
				shown = fmt.Sprintf("%s (%d bytes)", text.Clip(shown, 100), len(raw))
			}
			return fmt.Errorf("the schema admits %s: %s", shown, text.Clip(err.Error(), 300))
		}
	}
	if admitted == 0 {
		return errors.New("the schema admits no value that package crd knows: add one there")
	}
	return nil
}

func roundTrip(raw []byte, of reflect.Type) error {
	decode := func(raw []byte) ([]byte, error) {
		value := reflect.New(of).Interface()
		if err := json.Unmarshal(raw, value); err != nil {
			return nil, fmt.Errorf("it cannot be decoded: %w", err)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("it cannot be encoded again: %w", err)
		}
		return encoded, nil
	}
	first, err := decode(raw)
	if err != nil {
		return err
	}
	second, err := decode(first)
	if err == nil && !bytes.Equal(first, second) {
		err = fmt.Errorf("it is encoded as %s, and decoded and encoded again as %s", first, second)
	}
	return err
}

// odd are values that one type or another does not decode, or decodes slowly, and an ordinary one of each sort.
var odd = []any{
	"tomorrow", "", "1e1.5", "1.5e", "1e-999999", "1e9999999999", "99999999999h", "5", "1h", "3 days", "1d", "-1s", "10%", "4%%", "::1", "1.2.3.4/99", "YQ==", "YQ",
	"2026-01-02T03:04:05Z", "2026-01-02t03:04:05z", "2026-01-02T03:04:05+99:99", "2026-01-02T03:04:05.123456789012Z", "2026-01-02T03:04:05,5Z",
	"0000-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "2026-01-02", "00000000-0000-0000-0000-000000000000", "\u0000", "\u2028",
	int64(0), int64(1), int64(-1), int64(math.MaxUint8 + 1), int64(math.MaxInt32), int64(math.MinInt32), int64(math.MaxInt32 + 1), int64(math.MaxInt64), int64(math.MinInt64),
	0.5, 1e300, true,
	map[string]any{},
	map[string]any{"key": map[string]any{"of": int64(1)}},
}

// lists are not tried where the schema asks for text: if it has a format, the validator admits any list there, and no
// marker cures that.
var lists = []any{[]any{}, []any{int64(1), "text"}}

// values returns the values to try a field with.
func values(s spec.Schema) []any {
	tried := append(slices.Clone(odd), s.Enum...)
	if !s.Type.Contains("string") {
		tried = append(tried, lists...)
	}
	for _, end := range []*float64{s.Minimum, s.Maximum} {
		if end != nil {
			tried = append(tried, *end)
			if s.Type.Contains("integer") {
				tried[len(tried)-1] = int64(*end)
			}
		}
	}
	if s.Pattern == "" {
		return tried
	}
	for seed := range 100 {
		drawn := rapid.StringMatching(s.Pattern).Example(seed)
		tried = append(tried, drawn)
		// A pattern that bounds no repetition admits any number of digits. apimachinery takes a second to write
		// so many zeros, which it removes one at a time.
		for _, at := range digit.FindAllStringIndex(drawn, 3) {
			tried = append(tried, drawn[:at[1]]+strings.Repeat("0", 200_000)+drawn[at[1]:])
		}
	}
	return tried
}

var digit = regexp.MustCompile(`[0-9]`)

// cure says which markers make the schema admit only what Go decodes. controller-gen takes a pattern only beside the
// type.
func cure(s spec.Schema, of reflect.Type) string {
	const prefix = "+kubebuilder:validation:"
	switch of.String() {
	case "v1.Duration":
		return prefix + "Type=string and " + prefix + "Pattern=`" + duration + "`"
	case "v1.Time", "v1.MicroTime":
		return prefix + "Type=string and " + prefix + "Pattern=`" + dateTime + "`"
	case "resource.Quantity":
		return prefix + "XIntOrString and " + prefix + "Pattern=`" + quantity + "`"
	}
	if s.Type.Contains("integer") || s.Type.Contains("number") {
		return prefix + "Minimum=… and " + prefix + "Maximum=…"
	}
	return prefix + "Pattern=…"
}

const (
	duration = `^([0-9]{1,5}(ms|s|m|h)){1,4}$`
	dateTime = `^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	quantity = `^(\+|-)?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$`
)
