package lenient

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventCodec is the usual serializer of watch events, except that it does not parse the
// object in an event. That is parsed by the decoder of objects anyway, and a streaming list is
// nothing but events.
type eventCodec struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (c eventCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return c.Serializer.Decode(data, defaults, into)
	}
	kind, object, ok := cutEvent(data)
	if !ok {
		return c.Serializer.Decode(data, defaults, into)
	}
	*event = metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: bytes.Clone(object)}}
	return event, nil, nil
}

// cutEvent returns the two parts of an event that is written as API servers write it:
// {"type":"ADDED","object":{…}}. It reports whether that is so.
func cutEvent(data []byte) (kind string, object []byte, ok bool) {
	data, hasType := bytes.CutPrefix(data, []byte(`{"type":"`))
	before, after, hasObject := bytes.Cut(data, []byte(`","object":{`))
	isWord := !bytes.ContainsFunc(before, func(r rune) bool { return r < 'A' || r > 'Z' })
	if !hasType || !hasObject || !isWord || !bytes.HasSuffix(after, []byte("}}")) {
		return "", nil, false
	}
	object = data[len(data)-len(after)-1 : len(data)-1]
	// After the object, there might be something else.
	return string(before), object, json.Valid(object)
}
