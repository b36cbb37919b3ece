// Package lenient makes clients for custom resources that also read objects that do not
// fit their Go type.
//
// An object that was stored under an earlier schema may not fit its Go type: a number
// where a string is expected is enough. The usual decoder then fails not only for that
// object, but for the whole list or watch that contains it, so that an informer of that
// type makes no more progress.
//
// The decoder of this package decodes such an object field by field: metadata as always,
// and those of spec, status, and the other top-level fields that it can. It leaves a field
// that it cannot decode empty as a whole, because half of it could mean something else
// than all of it, and [Problem] says why. Everything else is decoded as by the usual
// decoder, at less than half of its cost: by the decoder of encoding/json/v2, and by the
// usual decoder itself where that might come to another result. The error is also the
// usual one if the data is not an object, or its metadata cannot be decoded.
//
// Everything that a client reads goes through the decoder: lists, watches, streaming
// lists, and the responses to single reads and writes. The client refuses to send an
// object with a problem to the API server, because its empty field would replace the one
// that could not be decoded.
//
// Built-in types do not need this, because the API server has decoded them itself.
package lenient

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/pkg/kit/typed"
)

// problemPrefix, followed by the name of a field, is the key of the annotation that holds
// the problem with that field, in memory only. As an annotation, it survives all that
// happens to the object on its way into and out of a cache. Nobody can store such an
// annotation, because the API server does not accept the key.
const problemPrefix = "not decoded: "

// Problem returns why a top-level field of obj, such as "spec", could not be decoded: the
// path of the innermost value that is wrong, and the decoder's error. It returns the same
// text for the same data, however obj was read, and "" if the field was decoded.
func Problem(obj metav1.Object, field string) string {
	return obj.GetAnnotations()[problemPrefix+field]
}

// hasProblem reports whether any field of obj could not be decoded.
func hasProblem(obj metav1.Object) bool {
	for key := range obj.GetAnnotations() {
		if strings.HasPrefix(key, problemPrefix) {
			return true
		}
	}
	return false
}

// NewForConfig returns a set of clients for the custom resources that the functions add to a
// scheme. Such a function is the Install of a package with their types.
func NewForConfig(config *rest.Config, add ...func(*runtime.Scheme) error) (*typed.Set, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(add...)
	if err := builder.AddToScheme(scheme); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	return typed.New(scheme, func(version schema.GroupVersion) (rest.Interface, error) {
		return RESTClientFor(config, version, codecs)
	})
}

// RESTClientFor returns a client from which the New function of a generated clientset can
// make a clientset for a group and version of custom resources. codecs are those of the
// clientset's scheme.
func RESTClientFor(config *rest.Config, version schema.GroupVersion, codecs serializer.CodecFactory) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &version
	config.NegotiatedSerializer = Codecs(codecs.WithoutConversion())
	// Naming the content type keeps client-go from choosing CBOR, which is not read faster, as
	// BenchmarkWatch shows.
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return rest.RESTClientFor(config)
}

// Codecs returns usual with a lenient decoder for JSON.
func Codecs(usual runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return codecs{usual}
}

type codecs struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer. Clients get from it the
// decoder of responses and of the objects in watch events, that of the events, and what
// divides a stream into events.
func (c codecs) SupportedMediaTypes() []runtime.SerializerInfo {
	usual := c.NegotiatedSerializer.SupportedMediaTypes()
	infos := make([]runtime.SerializerInfo, 0, len(usual))
	for _, info := range usual {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = codec{info.Serializer}
			stream := *info.StreamSerializer
			stream.Serializer, stream.Framer = eventCodec{stream.Serializer}, framer{stream.Framer}
			info.StreamSerializer = &stream
		}
		infos = append(infos, info)
	}
	return infos
}
