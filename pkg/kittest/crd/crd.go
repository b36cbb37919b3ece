// Package crd tests that the schema of a CustomResourceDefinition and the Go types agree.
//
// What a schema admits and Go cannot decode, or cannot afford to, stops the typed informers of
// everybody who watches the kind: one object of one tenant is enough. So for each field of the schema,
// objects are drawn that have only that field and those that are required. Each value is one that the API
// server's own validator admits. The Go type must decode it, and give it back, within Limit.
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
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"nicoleh.io/k8s-controller/internal/text"
)

// Limit is how long it can take to decode, use, compare and encode one object.
const Limit = time.Second

// Draws is how many values are drawn for each field.
const Draws = 200

// Check fails the test for each field of the CustomResourceDefinition in a file that has a value with
// which the types of scheme cannot be decoded and encoded within Limit. Use is what else a controller
// does with each object, such as hashing; nil is nothing.
func Check(t *testing.T, file string, scheme *runtime.Scheme, use func(runtime.Object)) {
	t.Helper()
	if underRace {
		t.Skip("skipped: the race detector takes many times as long")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range Disagreements(content, scheme, use) {
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

// Disagreements returns an error for each field that fails Check, with the marker that cures it.
func Disagreements(crd []byte, scheme *runtime.Scheme, use func(runtime.Object)) (found []error) {
	var of definition
	if err := yaml.Unmarshal(crd, &of); err != nil {
		return []error{err}
	}
	if len(of.Spec.Versions) == 0 {
		return []error{errors.New("it defines no version")}
	}
	for _, version := range of.Spec.Versions {
		kind := schema.GroupVersionKind{Group: of.Spec.Group, Version: version.Name, Kind: of.Spec.Names.Kind}
		empty, err := scheme.New(kind)
		if err != nil {
			found = append(found, err)
			continue
		}
		root := version.Schema.OpenAPIV3Schema
		c := check{decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(), use: use}
		for _, path := range unboundedKeys(nil, root) {
			found = append(found, fmt.Errorf("%s: %s: a key can be as long as the object; give the field the marker "+
				`+kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317)", and generate again`, version.Name, field{path: path}))
		}
		for _, f := range fields(nil, root, reflect.TypeOf(empty)) {
			if err := c.field(root, kind, f); err != nil {
				found = append(found, fmt.Errorf("%s: %s: %w; %s", version.Name, f, err, f.cure()))
			}
		}
	}
	return found
}

// field is a field of a schema that has no fields of its own.
type field struct {
	path   []string // an element of a list is [], one of a map {}
	schema spec.Schema
	goType reflect.Type // nil if unknown
}

func (f field) String() string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.Join(f.path, "."), ".[]", "[]"), ".{}", "{}")
}

// fields returns the fields at and below a path.
func fields(path []string, s spec.Schema, goType reflect.Type) (all []field) {
	for goType != nil && goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	below := func(name string, s spec.Schema, goType reflect.Type) {
		all = append(all, fields(append(slices.Clone(path), name), s, goType)...)
	}
	element := func(kind reflect.Kind) reflect.Type {
		if goType == nil || goType.Kind() != kind {
			return nil
		}
		return goType.Elem()
	}
	switch {
	case len(s.Properties) > 0:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if len(path) > 0 || name != "apiVersion" && name != "kind" && name != "metadata" {
				below(name, s.Properties[name], typeOf(goType, name))
			}
		}
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		below("{}", *s.AdditionalProperties.Schema, element(reflect.Map))
	case s.Items != nil && s.Items.Schema != nil:
		below("[]", *s.Items.Schema, element(reflect.Slice))
	default:
		return []field{{path, s, goType}}
	}
	return all
}

// unboundedKeys returns the paths of the maps with keys of any length, at and below a path. No pattern
// bounds a key, but a rule about the map or about what contains it can.
func unboundedKeys(path []string, s spec.Schema) (all [][]string) {
	if rules, _ := json.Marshal(s.Extensions["x-kubernetes-validations"]); bytes.Contains(rules, []byte("size(")) {
		return nil
	}
	below := func(name string, s spec.Schema) {
		all = append(all, unboundedKeys(append(slices.Clone(path), name), s)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		below(name, s.Properties[name])
	}
	if s.Items != nil && s.Items.Schema != nil {
		below("[]", *s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		all = append(all, path)
		below("{}", *s.AdditionalProperties.Schema)
	}
	return all
}

// typeOf returns the type of the field that has a name in JSON; nil if there is none.
func typeOf(of reflect.Type, name string) reflect.Type {
	if of == nil || of.Kind() != reflect.Struct {
		return nil
	}
	for f := range of.Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if f.Anonymous && tag == "" && strings.Contains(options, "inline") {
			if found := typeOf(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// cures are the markers for types of apimachinery that decode less than the schema admits that
// controller-gen makes of them. It takes a pattern only beside the type.
var cures = map[string]struct{ beside, pattern string }{
	"v1.Duration":       {"Type=string", `^([0-9]{1,5}(ms|s|m|h)){1,4}$`},
	"v1.Time":           {"Type=string", dateTime},
	"v1.MicroTime":      {"Type=string", dateTime},
	"resource.Quantity": {"XIntOrString", quantity},
}

const (
	dateTime = `^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	quantity = `^(\+|-)?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$`
)

// cure says which markers make the schema admit only what Go decodes.
func (f field) cure() string {
	const give, prefix, again = "give the field the marker ", "+kubebuilder:validation:", ", and generate again"
	if f.goType != nil {
		if markers, ok := cures[f.goType.String()]; ok {
			return give + prefix + markers.beside + " and " + prefix + "Pattern=`" + markers.pattern + "`" + again
		}
	}
	switch {
	case f.schema.Type.Contains("integer"), f.schema.Type.Contains("number"):
		return give + prefix + "Minimum=… and " + prefix + "Maximum=…" + again
	case f.schema.Type.Contains("object"):
		return "give the field a type whose fields are known" + again
	}
	return give + prefix + "Pattern=… or " + prefix + "MaxLength=…" + again
}

type check struct {
	decoder runtime.Decoder
	use     func(runtime.Object)
}

// field returns an error for the first value of the field with which an object fails.
func (c check) field(root spec.Schema, kind schema.GroupVersionKind, f field) error {
	validator := validate.NewSchemaValidator(&f.schema, nil, "", strfmt.Default)
	admitted := 0
	for seed := range Draws {
		value, ok := draw(f.schema, seed, func(value any) bool { return validator.Validate(value).IsValid() })
		if !ok {
			continue
		}
		admitted++
		object := map[string]any{}
		if len(f.path) > 0 {
			object = minimal(root).(map[string]any)
			set(object, root, f.path, value)
		}
		object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
		raw, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if err := c.object(raw); err != nil {
			return fmt.Errorf("the schema admits %s: %s", clip(value), text.Clip(err.Error(), 300))
		}
	}
	if admitted < 10 {
		return fmt.Errorf("of %d values that were drawn, the schema admits only %d: teach package crd what this field is", Draws, admitted)
	}
	return nil
}

// object returns an error if one object cannot be decoded and encoded within Limit. The machine may be
// busy with something else, so what takes longer is tried again.
func (c check) object(raw []byte) error {
	const tries = 3
	var took time.Duration
	for range tries {
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- c.roundTrip(raw) }()
		select {
		case err := <-done:
			if took = time.Since(began); err != nil || took <= Limit {
				return err
			}
		case <-time.After(10 * Limit): // The goroutine may need hours. The test has failed.
			return fmt.Errorf("it takes more than %s to decode, use and encode", 10*Limit)
		}
	}
	return fmt.Errorf("it takes %s to decode, use and encode", took.Round(100*time.Millisecond))
}

func (c check) roundTrip(raw []byte) error {
	first, _, err := c.decoder.Decode(raw, nil, nil)
	if err != nil {
		return fmt.Errorf("it cannot be decoded: %w", err)
	}
	if c.use != nil {
		c.use(first.DeepCopyObject())
	}
	raw, err = json.Marshal(first)
	if err != nil {
		return fmt.Errorf("it cannot be encoded again: %w", err)
	}
	second, _, err := c.decoder.Decode(raw, nil, nil)
	if err != nil {
		return fmt.Errorf("it cannot be decoded again: %w", err)
	}
	again, err := json.Marshal(second)
	if err == nil && !bytes.Equal(raw, again) {
		err = fmt.Errorf("it is encoded as %s, and decoded and encoded again as %s", raw, again)
	}
	return err
}

// set puts a value at a path of an object, whose elements are filled as their schema requires.
func set(object any, s spec.Schema, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0]; step {
	case "[]":
		return []any{set(minimal(*s.Items.Schema), *s.Items.Schema, path[1:], value)}
	case "{}":
		return map[string]any{"example.com/key": set(minimal(*s.AdditionalProperties.Schema), *s.AdditionalProperties.Schema, path[1:], value)}
	default:
		fields := object.(map[string]any)
		below := s.Properties[step]
		had, ok := fields[step]
		if !ok {
			had = minimal(below)
		}
		fields[step] = set(had, below, path[1:], value)
		return fields
	}
}

// minimal returns a value that the schema admits, with the fields that it requires.
func minimal(s spec.Schema) any {
	switch {
	case s.Default != nil:
		return runtime.DeepCopyJSONValue(s.Default)
	case len(s.Properties) > 0:
		object := map[string]any{}
		for _, name := range s.Required {
			object[name] = minimal(s.Properties[name])
		}
		return object
	case s.Items != nil:
		return []any{}
	case s.AdditionalProperties != nil || s.Type.Contains("object"):
		return map[string]any{}
	}
	validator := validate.NewSchemaValidator(&s, nil, "", strfmt.Default)
	for seed := range Draws {
		value := generator(s).Example(seed)
		if s.Format == "date-time" {
			value = "2026-01-02T03:04:05Z"
		}
		if validator.Validate(value).IsValid() {
			return value
		}
	}
	return nil
}

// draw returns a value of a field that is admitted; ok is false if that with this seed is not.
func draw(s spec.Schema, seed int, isAdmitted func(any) bool) (value any, ok bool) {
	if seed < len(odd) {
		return odd[seed], isAdmitted(odd[seed])
	}
	value = generator(s).Example(seed)
	if drawn, isText := value.(string); isText && seed%10 == 0 {
		value = pumped(drawn, seed, isAdmitted)
	}
	return value, isAdmitted(value)
}

// generator returns what draws values of a field.
func generator(s spec.Schema) *rapid.Generator[any] {
	var of []*rapid.Generator[any]
	if len(s.Enum) > 0 {
		return rapid.SampledFrom(s.Enum)
	}
	isIntOrString, _ := s.Extensions.GetBool("x-kubernetes-int-or-string")
	isAnything, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	if s.Type.Contains("string") || isIntOrString {
		of = append(of, texts(s))
	}
	if s.Type.Contains("integer") || isIntOrString {
		of = append(of, integers(s).AsAny())
	}
	if s.Type.Contains("number") {
		of = append(of, rapid.Float64Range(lowest(s), highest(s)).AsAny(), rapid.SampledFrom([]float64{0, 0.5, 1e300, -1e300}).AsAny())
	}
	if s.Type.Contains("boolean") {
		of = append(of, rapid.Bool().AsAny())
	}
	if s.Type.Contains("object") || isAnything {
		of = append(of, rapid.SampledFrom([]any{map[string]any{}, map[string]any{"key": map[string]any{"of": int64(1)}}, map[string]any{"key": "text"}}))
	}
	if isAnything {
		of = append(of, rapid.SampledFrom([]any{"text", int64(1), true, []any{int64(1), "text"}}))
	}
	if s.Nullable {
		of = append(of, rapid.Just[any](nil))
	}
	if len(of) == 0 { // a list of no known items, for example
		return rapid.SampledFrom([]any{"text", int64(1), []any{}, map[string]any{}})
	}
	return rapid.OneOf(of...)
}

func lowest(s spec.Schema) float64 {
	if s.Minimum != nil {
		return *s.Minimum
	}
	return -math.MaxFloat64
}

func highest(s spec.Schema) float64 {
	if s.Maximum != nil {
		return *s.Maximum
	}
	return math.MaxFloat64
}

// integers draws from the bounds of the field, and their ends.
func integers(s spec.Schema) *rapid.Generator[int64] {
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	if s.Format == "int32" {
		least, most = math.MinInt32, math.MaxInt32
	}
	if low := lowest(s); low > float64(least) {
		least = int64(low)
	}
	if high := highest(s); high < float64(most) {
		most = int64(high)
	}
	return rapid.OneOf(rapid.Int64Range(least, most), rapid.SampledFrom([]int64{least, most, max(least, min(0, most))}))
}

// odd are texts that one type or another does not decode, or decodes slowly.
var odd = []string{
	"tomorrow", "", "1e1.5", "1.5e", "1e-999999", "1e9999999999", "99999999999h", "5", "1h", "3 days", "1d", "-1s", "10%", "4%%", "::1", "1.2.3.4/99", "YQ==", "YQ",
	"2026-01-02t03:04:05z", "2026-01-02T03:04:05+99:99", "2026-01-02T03:04:05.123456789012Z", "2026-01-02T03:04:05,5Z",
	"0000-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "2026-01-02", "00000000-0000-0000-0000-000000000000", "\u0000", "\u2028",
}

// texts draws texts of the format or of the pattern.
func texts(s spec.Schema) *rapid.Generator[any] {
	switch {
	case s.Format == "date-time":
		const likely = `[0-9]{4}-0[1-9]-[0-2][1-8][Tt][01][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([zZ]|[+-][01][0-9]:[0-5][0-9])`
		return rapid.OneOf(rapid.StringMatching(likely), rapid.StringMatching(strings.ToUpper(likely))).AsAny()
	case s.Format == "byte":
		return rapid.StringMatching(`([A-Za-z0-9+/]{4}){0,9}`).AsAny()
	case s.Pattern != "":
		return rapid.StringMatching(s.Pattern).AsAny()
	}
	return rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9]{1,30}`)).AsAny()
}

// pumped returns the text with one of its characters repeated, as often as is admitted: a pattern that
// bounds no repetition admits 200,000 digits.
func pumped(drawn string, seed int, isAdmitted func(any) bool) string {
	runes := []rune(drawn)
	for i := range min(len(runes), 8) {
		at := (i + seed) % len(runes)
		repeated := string(runes[at])
		if '0' <= runes[at] && runes[at] <= '9' {
			repeated = "0" // which apimachinery takes longest to write: it removes them one at a time
		}
		longest := drawn
		for _, times := range []int{9, 1_000, 200_000} {
			longer := string(runes[:at+1]) + strings.Repeat(repeated, times) + string(runes[at+1:])
			if !isAdmitted(longer) {
				break
			}
			longest = longer
		}
		if longest != drawn {
			return longest
		}
	}
	return drawn
}

// clip shows a value in JSON, cut if it is long.
func clip(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	if len(raw) > 100 {
		return fmt.Sprintf("%s (%d bytes)", text.Clip(string(raw), 100), len(raw))
	}
	return string(raw)
}
