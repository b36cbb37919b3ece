package lenient

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
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
	if event, ok := into.(*metav1.WatchEvent); ok {
		if kind, object, ok := cutEvent(data); ok {
			*event = metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: bytes.Clone(object)}}
			return event, nil, nil
		}
	}
	return c.Serializer.Decode(data, defaults, into)
}

// cutEvent returns the type and the object of an event that is written as API servers write
// it: {"type":"ADDED","object":{…}}. It reports whether that is so.
func cutEvent(data []byte) (kind string, object []byte, ok bool) {
	rest, hasType := bytes.CutPrefix(data, []byte(`{"type":"`))
	word, rest, hasObject := bytes.Cut(rest, []byte(`","object":`))
	object, hasEnd := bytes.CutSuffix(rest, []byte("}"))
	isWord := !bytes.ContainsFunc(word, func(r rune) bool { return r < 'A' || r > 'Z' })
	isObject := bytes.HasPrefix(object, []byte("{")) && bytes.HasSuffix(object, []byte("}"))
	// What begins and ends like an object may be more than one.
	return string(word), object, hasType && hasObject && hasEnd && isWord && isObject && jsontext.Value(object).IsValid()
}
