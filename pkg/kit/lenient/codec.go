package lenient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nicoleh.io/k8s-controller/pkg/kit/text"
)

const (
	// maxProblem is the maximum length in bytes of the problem with one field, because
	// the decoder may quote from the object.
	maxProblem = 1024
	// maxDepth is how deep the cause of a problem is looked for.
	maxDepth = 16
)

// codec is the usual serializer for JSON, except that it also decodes what that cannot.
type codec struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (c codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if obj, kind := c.quickly(data, defaults, into); obj != nil {
		return obj, kind, nil
	}
	obj, kind, err := c.Serializer.Decode(data, defaults, into)
	if err == nil || kind == nil || runtime.IsStrictDecodingError(err) {
		return obj, kind, err
	}
	if salvaged := c.salvage(data, *kind, into); salvaged != nil {
		return salvaged, kind, nil
	}
	return obj, kind, err
}

// Encode implements runtime.Encoder. It refuses an object with a problem.
func (c codec) Encode(obj runtime.Object, w io.Writer) error {
	if obj, ok := obj.(metav1.Object); ok && hasProblem(obj) {
		return fmt.Errorf("%T %q was not decoded completely, and must not overwrite what it was decoded from", obj, obj.GetName())
	}
	return c.Serializer.Encode(obj, w)
}

// salvage decodes what it can of a list or an object of that kind. It returns nil for
// anything else.
func (c codec) salvage(data []byte, kind schema.GroupVersionKind, into runtime.Object) runtime.Object {
	// An object with nothing but its kind is decoded as an empty one of the right type.
	head, err := json.Marshal(metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind})
	if err != nil {
		return nil
	}
	obj, _, err := c.Serializer.Decode(head, nil, into)
	if err != nil {
		return nil
	}
	if err := runtime.SetZeroValue(obj); err != nil {
		return nil
	}
	switch typed := obj.(type) {
	case metav1.Object:
		err = salvageObject(data, typed)
	default:
		err = salvageList(data, obj)
	}
	if err != nil {
		return nil
	}
	return obj
}

// salvageList decodes a list, and what it can of each item. It returns an error if the
// list itself cannot be decoded, or nothing of an item can.
func salvageList(data []byte, list runtime.Object) error {
	var fields map[string]json.RawMessage
	if err := utiljson.Unmarshal(data, &fields); err != nil {
		return err
	}
	var items []json.RawMessage
	if err := utiljson.Unmarshal(fields["items"], &items); err != nil {
		return err
	}
	delete(fields, "items")
	if err := remarshal(fields, list); err != nil {
		return err
	}
	itemsPtr, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	typed := reflect.ValueOf(itemsPtr).Elem()
	typed.Set(reflect.MakeSlice(typed.Type(), len(items), len(items)))
	for i, item := range items {
		into, ok := reflect.TypeAssert[metav1.Object](typed.Index(i).Addr())
		if !ok {
			return fmt.Errorf("items of %T are not objects", list)
		}
		if utiljson.Unmarshal(item, into) == nil {
			continue
		}
		typed.Index(i).SetZero()
		if err := salvageObject(item, into); err != nil {
			return err
		}
	}
	return nil
}

// salvageObject decodes those top-level fields that it can into obj, which is empty, and
// records in obj what is wrong with the others. It returns an error if the metadata cannot
// be decoded, or no single field is to blame.
func salvageObject(data []byte, obj metav1.Object) error {
	var fields map[string]json.RawMessage
	if err := utiljson.Unmarshal(data, &fields); err != nil {
		return err
	}
	problems := map[string]string{}
	for name, value := range fields {
		try := func(value json.RawMessage) error {
			return remarshal(map[string]json.RawMessage{name: value}, reflect.New(reflect.TypeOf(obj).Elem()).Interface())
		}
		if err := try(value); err != nil {
			path, err := innermost(try, name, value, err)
			problems[name] = text.Clip(fmt.Sprintf("%s: %v", path, err), maxProblem)
			delete(fields, name)
		}
	}
	if len(problems) == 0 || problems["metadata"] != "" {
		return errors.New("no single field is to blame")
	}
	if err := remarshal(fields, obj); err != nil {
		return err
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for name, problem := range problems {
		annotations[problemPrefix+name] = problem
	}
	obj.SetAnnotations(annotations)
	return nil
}

// innermost searches the value at path, which try refuses with err, for the innermost
// part that try refuses even without its siblings. It returns the path of that part and
// its error.
func innermost(try func(json.RawMessage) error, path string, value json.RawMessage, err error) (string, error) {
	for range maxDepth {
		parts, join := split(value)
		if try(join(nil)) != nil {
			break // it is not one of the parts
		}
		// Bisect: the half that contains the flawed part is refused.
		for len(parts) > 1 {
			half := len(parts) / 2
			if try(join(parts[:half])) != nil {
				parts = parts[:half]
			} else {
				parts = parts[half:]
			}
		}
		if len(parts) == 0 {
			break
		}
		partErr := try(join(parts))
		if partErr == nil {
			break
		}
		path, value, err = path+parts[0].path, parts[0].value, partErr
		whole, key := try, parts[0].key
		try = func(value json.RawMessage) error { return whole(join([]part{{key: key, value: value}})) }
	}
	return path, err
}

// part is a member of a JSON object or an element of an array.
type part struct {
	path  string // to be appended to the path of the whole
	key   string // of a member
	value json.RawMessage
}

// split returns the parts of an object or array in a fixed order, and a function that
// joins some of them to a value of the same sort. Other values have no parts.
func split(value json.RawMessage) (parts []part, join func([]part) json.RawMessage) {
	var members map[string]json.RawMessage
	if utiljson.Unmarshal(value, &members) == nil {
		for _, key := range slices.Sorted(maps.Keys(members)) {
			parts = append(parts, part{path: "." + key, key: key, value: members[key]})
		}
		return parts, func(parts []part) json.RawMessage {
			joined := make(map[string]json.RawMessage, len(parts))
			for _, p := range parts {
				joined[p.key] = p.value
			}
			return marshal(joined)
		}
	}
	var elements []json.RawMessage
	if utiljson.Unmarshal(value, &elements) == nil {
		for i, element := range elements {
			parts = append(parts, part{path: "[" + strconv.Itoa(i) + "]", value: element})
		}
	}
	return parts, func(parts []part) json.RawMessage {
		joined := make([]json.RawMessage, 0, len(parts))
		for _, p := range parts {
			joined = append(joined, p.value)
		}
		return marshal(joined)
	}
}

// remarshal converts an object to another Go type by way of JSON.
func remarshal(from, into any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(data, into)
}

// marshal combines pieces of JSON, which cannot fail.
func marshal(pieces any) json.RawMessage {
	data, err := json.Marshal(pieces)
	if err != nil {
		return nil
	}
	return data
}
