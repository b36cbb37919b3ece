// Package lenient makes a typed client that one bad object cannot stop.
//
// An object that was stored under another schema than the present one need not fit
// its Go type: a number where a string is expected is enough. The usual decoder then
// fails not only for that object but for the whole list, and for the watch that it
// appears in, so an informer of that type stands still for good.
//
// The decoder of this package decodes such an object field by field: metadata as
// always, and of spec, status and other top-level fields those that decode. A field
// that does not is left empty as a whole, since half of it could mean something else
// than all of it, and [Problem] says why. Everything else is decoded as usual, by the
// usual decoder, at the usual cost; and what is no object at all, or has metadata
// that cannot be decoded, is the error that it always was.
//
// All that a client reads goes through the decoder: lists, watches, streaming lists,
// and the answers to single reads and writes. An object with a problem never goes
// back to the API server, as its empty field would replace what could not be read.
//
// Built-in types do not need this: the API server has decoded what it sends of them.
package lenient

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// problemPrefix and the name of a field are the annotation that holds the problem
// with that field, in memory only. In an annotation it survives whatever happens to
// the object on its way into and out of a cache. No API server accepts such a key,
// so nobody can store one.
const problemPrefix = "not decoded: "

// Problem says why a top-level field of obj, such as "spec", could not be decoded:
// the path of the innermost value that is wrong, and what the decoder says of it.
// The same data leads to the same words, whichever way it came. Empty means that the
// field was decoded.
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

// RESTClientFor returns what a generated clientset can be made from (by its New) for
// a group and version of custom resources. codecs are those of the clientset's
// scheme.
func RESTClientFor(config *rest.Config, version schema.GroupVersion, codecs serializer.CodecFactory) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &version
	config.NegotiatedSerializer = Codecs(codecs.WithoutConversion())
	// Naming the content type keeps client-go from choosing CBOR.
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

// SupportedMediaTypes implements runtime.NegotiatedSerializer. Clients take from it
// what decodes an answer, and what decodes the object inside of a watch event.
func (c codecs) SupportedMediaTypes() []runtime.SerializerInfo {
	usual := c.NegotiatedSerializer.SupportedMediaTypes()
	infos := make([]runtime.SerializerInfo, 0, len(usual))
	for _, info := range usual {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = codec{info.Serializer}
		}
		infos = append(infos, info)
	}
	return infos
}
