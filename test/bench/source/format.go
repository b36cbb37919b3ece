package source

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	restclientwatch "k8s.io/client-go/rest/watch"
)

// A format is how objects are sent.
type format struct {
	runtime.SerializerInfo
	metadataOnly bool
}

// mediaType returns the serializer of a content type.
func mediaType(of string) runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), of)
	if !ok {
		panic("no serializer for " + of)
	}
	return info
}

// storageFormat returns the format with the fastest codec for objects of a kind.
func storageFormat(kind schema.GroupVersionKind) format {
	if isBuiltIn(kind) {
		return format{SerializerInfo: mediaType(runtime.ContentTypeProtobuf)}
	}
	return format{SerializerInfo: mediaType(runtime.ContentTypeJSON)}
}

func isBuiltIn(kind schema.GroupVersionKind) bool { return kubescheme.Scheme.Recognizes(kind) }

// negotiate returns the first format of a request's Accept header that the kind can be sent
// in; JSON if there is none.
func negotiate(r *http.Request, kind schema.GroupVersionKind) format {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		of, parameters, err := mime.ParseMediaType(accepted)
		if err != nil {
			continue
		}
		as := strings.TrimSuffix(parameters["as"], "List")
		f := format{metadataOnly: as == "PartialObjectMetadata"}
		if as != "" && !f.metadataOnly || parameters["v"] == "v1beta1" {
			continue
		}
		switch {
		case of == runtime.ContentTypeJSON, of == runtime.ContentTypeProtobuf && (f.metadataOnly || isBuiltIn(kind)):
			f.SerializerInfo = mediaType(of)
			return f
		}
	}
	return format{SerializerInfo: mediaType(runtime.ContentTypeJSON)}
}

// view returns the object, or its metadata alone.
func (f format) view(obj object) runtime.Object {
	if f.metadataOnly {
		return asMetadata(obj)
	}
	return obj
}

// encode returns an object as the body of a response.
func (f format) encode(obj object) ([]byte, error) {
	var body bytes.Buffer
	err := f.Serializer.Encode(f.view(obj), &body)
	return body.Bytes(), err
}

// frame returns an event as a frame of a watch.
func (f format) frame(of watch.EventType, obj object) ([]byte, error) {
	var frame bytes.Buffer
	encoder := streaming.NewEncoder(f.StreamSerializer.NewFrameWriter(&frame), f.StreamSerializer.Serializer)
	err := restclientwatch.NewEncoder(encoder, f.Serializer).Encode(&watch.Event{Type: of, Object: f.view(obj)})
	return frame.Bytes(), err
}

// watchType returns the content type of a watch.
func (f format) watchType() string {
	if f.MediaType == runtime.ContentTypeJSON {
		return f.MediaType
	}
	return f.MediaType + ";stream=watch"
}

// respond sends an object as the response to a request.
func (f format) respond(w http.ResponseWriter, code int, obj runtime.Object) error {
	w.Header().Set("Content-Type", f.MediaType)
	w.WriteHeader(code)
	return f.Serializer.Encode(obj, w)
}

// decode decodes the body of a request to create or replace an object of a kind.
func decode(r *http.Request, kind schema.GroupVersionKind) (object, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	of, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), of)
	if !ok {
		return nil, fmt.Errorf("content type %q is not supported", of)
	}
	decoded, _, err := info.Serializer.Decode(body, &kind, nil)
	if err != nil {
		return nil, err
	}
	obj, ok := decoded.(object)
	if !ok || decoded.GetObjectKind().GroupVersionKind() != kind && !decoded.GetObjectKind().GroupVersionKind().Empty() {
		return nil, fmt.Errorf("the body is not a %s", kind.Kind)
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj, nil
}

// bookmark returns the object of a bookmark.
func bookmark(kind schema.GroupVersionKind, version string, endsInitialEvents bool) (object, error) {
	created, err := all.New(kind)
	if err != nil {
		return nil, err
	}
	obj := created.(object)
	obj.GetObjectKind().SetGroupVersionKind(kind)
	obj.SetResourceVersion(version)
	if endsInitialEvents {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return obj, nil
}
