// Package lenient makes clients for custom resources that also read objects that do not
// fit their Go type: a schema admits what Go cannot decode. metav1.Duration has no pattern in
// a CustomResourceDefinition, so the API server stores the duration "tomorrow". controller-gen's
// pattern for quantities admits "1e1.5". An earlier schema may have stored anything. The usual
// decoder fails for the whole list or watch that contains such an object, so that one object of
// one tenant would stop the informer, and the controller, for everyone.
//
// The decoder of this package is the usual one until it fails. Then it leaves out each
// top-level field that cannot be decoded, such as spec, and [DecodeError] says why. It leaves
// out the whole field, because half of a spec can mean something else. If the
// metadata cannot be decoded, or the data is not an object, the error is the usual one.
//
// Everything that a client reads passes this decoder: lists, watches, streaming lists, and the
// responses to single reads and writes. An object with a problem cannot overwrite what it was
// decoded from: the API server refuses the annotation that holds the problem.
//
// Built-in types do not need this, because the API server has decoded them itself.
package lenient

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/internal/text"
)

// problemPrefix, followed by the name of a field, is the key of the annotation that holds
// the problem with that field, in memory only. As an annotation, it survives all that
// happens to the object on its way into and out of a cache. Nobody can store such an
// annotation, because the API server does not accept the key.
const problemPrefix = "not decoded: "

// maxProblem limits a problem, in bytes: the decoder can quote from the object.
const maxProblem = 1024

// DecodeError returns why a top-level field of obj, such as "spec", could not be decoded: its name and
// the decoder's error. It returns "" if the field was decoded.
func DecodeError(obj metav1.Object, field string) string {
	return obj.GetAnnotations()[problemPrefix+field]
}

// ClientsetFor returns a clientset for custom resources of one group and version. newForREST is the New function of the
// generated clientset, or of its client for that group and version, and scheme is the clientset's. The clientset can
// have several versions, but reading another version returns an error.
func ClientsetFor[C any](config *rest.Config, version schema.GroupVersion, scheme *runtime.Scheme, newForREST func(rest.Interface) C) (clientset C, err error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &version
	config.NegotiatedSerializer = Codecs(serializer.NewCodecFactory(scheme).WithoutConversion())
	// Naming the content type keeps client-go from choosing CBOR, which Codecs leaves as it is.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return clientset, err
	}
	return newForREST(client), nil
}

// Codecs returns usual with a lenient decoder for JSON.
func Codecs(usual runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return codecs{usual}
}

type codecs struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c codecs) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range infos {
		if infos[i].MediaType == runtime.ContentTypeJSON {
			infos[i].Serializer = codec{infos[i].Serializer}
		}
	}
	return infos
}

// codec is the usual serializer for JSON, but also decodes what the usual one cannot.
type codec struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (c codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.decode(data, defaults, into)
	if _, isStatus := obj.(*metav1.Status); err == nil && into != nil && obj != into && !isStatus {
		// client-go would return an empty object instead of obj.
		return nil, kind, fmt.Errorf("asked for a %T, the server sent a %T: this clientset only reads %s; make another for each other group and version", into, obj, kind.GroupVersion())
	}
	return obj, kind, err
}

// decode is the usual Decode, or the lenient one if that fails.
func (c codec) decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Serializer.Decode(data, defaults, into)
	if err == nil || kind == nil || runtime.IsStrictDecodingError(err) {
		return obj, kind, err
	}
	repaired, repairErr := c.repair(data, *kind)
	if repairErr != nil || into != nil && runtime.SetZeroValue(into) != nil {
		return obj, kind, err
	}
	salvaged, _, salvageErr := c.Serializer.Decode(repaired, kind, into)
	if salvageErr != nil {
		return obj, kind, err
	}
	if _, isObject := salvaged.(metav1.Object); !isObject && !meta.IsListType(salvaged) {
		return obj, kind, err // such as a metav1.Status
	}
	return salvaged, kind, nil
}

// repair returns the JSON of an object, or of a list of objects, without the fields that
// cannot be decoded, and with annotations that say why.
func (c codec) repair(data []byte, kind schema.GroupVersionKind) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	itemKind, isList := strings.CutSuffix(kind.Kind, "List")
	if _, hasItems := fields["items"]; !isList || !hasItems {
		return c.repairObject(fields, kind)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(fields["items"], &items); err != nil {
		return nil, err
	}
	kind.Kind = itemKind
	for i, item := range items {
		if _, _, err := c.Serializer.Decode(item, &kind, nil); err == nil {
			continue
		}
		repaired, err := c.repair(item, kind)
		if err != nil {
			return nil, err
		}
		items[i] = repaired
	}
	fields["items"] = marshal(items)
	return marshal(fields), nil
}

// repairObject is repair for a single object that cannot be decoded. It returns an error if leaving out fields other
// than the metadata does not help.
func (c codec) repairObject(fields map[string]json.RawMessage, kind schema.GroupVersionKind) ([]byte, error) {
	problems := map[string]string{}
	for name, value := range fields {
		if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		if _, _, err := c.Serializer.Decode(marshal(map[string]json.RawMessage{name: value}), &kind, nil); err != nil {
			problems[problemPrefix+name] = text.Clip(name+": "+err.Error(), maxProblem)
			delete(fields, name)
		}
	}
	if len(problems) == 0 {
		return nil, errors.New("no single field explains it")
	}
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(fields["metadata"], &metadata); err != nil || metadata == nil {
		return nil, errors.New("there is no metadata")
	}
	var annotations map[string]string
	if raw, ok := metadata["annotations"]; ok {
		if err := json.Unmarshal(raw, &annotations); err != nil {
			return nil, err
		}
	}
	maps.Copy(problems, annotations)
	metadata["annotations"] = marshal(problems)
	fields["metadata"] = marshal(metadata)
	return marshal(fields), nil
}

// marshal combines pieces of valid JSON, which cannot fail.
func marshal(pieces any) json.RawMessage {
	data, err := json.Marshal(pieces)
	utilruntime.Must(err)
	return data
}
