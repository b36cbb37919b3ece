package source

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	restclientwatch "k8s.io/client-go/rest/watch"

	clientsetscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
)

// Tokens stand for numbers in samples. Each has as many bytes as the digits that replace it,
// so that the encoding of an object is that of the sample with other digits, whatever the
// encoding. Tokens are valid in names, and occur nowhere else.
const (
	tokenIcecream = "qiiiq" // the number of the Icecream
	tokenNodes    = "qnq"   // the number of a group of ten nodes, which has all Pods of an Icecream
	nodeGroups    = 500
)

// newestVersion is greater than the resource versions of all objects.
const newestVersion = "2" + "00000" + "00"

// fill returns what an encoded sample is for one Icecream.
func fill(sample []byte, icecream int) []byte {
	sample = bytes.ReplaceAll(sample, []byte(tokenIcecream), fmt.Appendf(nil, "%05d", icecream))
	return bytes.ReplaceAll(sample, []byte(tokenNodes), fmt.Appendf(nil, "%03d", icecream%nodeGroups))
}

// A collection is the objects of one resource: for each Icecream, one like each sample.
type collection struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	format   runtime.SerializerInfo
	added    [][]byte // for each sample, the event that it was added, as a frame of a watch
	bookmark []byte   // which ends the initial events
}

// newCollection returns a collection like these samples of one kind.
func newCollection(samples []object) (*collection, error) {
	c := &collection{kind: samples[0].GetObjectKind().GroupVersionKind(), resource: resourceOf(samples[0])}
	scheme, codecs, format := kubescheme.Scheme, kubescheme.Codecs, runtime.ContentTypeProtobuf
	if !scheme.Recognizes(c.kind) {
		scheme, codecs, format = clientsetscheme.Scheme, clientsetscheme.Codecs, runtime.ContentTypeJSON
	}
	c.format, _ = runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), format)
	for _, sample := range samples {
		frame, err := c.frame(watch.Added, sample)
		if err != nil {
			return nil, err
		}
		c.added = append(c.added, frame)
	}
	empty, err := scheme.New(c.kind)
	if err != nil {
		return nil, err
	}
	end := empty.(object)
	end.GetObjectKind().SetGroupVersionKind(c.kind)
	end.SetResourceVersion(newestVersion)
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	c.bookmark, err = c.frame(watch.Bookmark, end)
	return c, err
}

// path returns the path of all objects, in all namespaces.
func (c *collection) path() string {
	if c.kind.Group == "" {
		return "/api/" + c.kind.Version + "/" + c.resource.Resource
	}
	return "/apis/" + c.kind.Group + "/" + c.kind.Version + "/" + c.resource.Resource
}

// frame returns an event as a frame of a watch.
func (c *collection) frame(of watch.EventType, obj runtime.Object) ([]byte, error) {
	var frame bytes.Buffer
	encoder := streaming.NewEncoder(c.format.StreamSerializer.NewFrameWriter(&frame), c.format.StreamSerializer.Serializer)
	err := restclientwatch.NewEncoder(encoder, c.format.Serializer).Encode(&watch.Event{Type: of, Object: obj})
	return frame.Bytes(), err
}

// watchType returns the content type of a watch.
func (c *collection) watchType() string {
	if c.format.MediaType == runtime.ContentTypeJSON {
		return runtime.ContentTypeJSON
	}
	return c.format.MediaType + ";stream=watch"
}

// writeAll writes the initial events of a watch, for that many Icecreams.
func (c *collection) writeAll(to io.Writer, icecreams int) error {
	buffered := bufio.NewWriterSize(to, 64<<10)
	for i := range icecreams {
		for _, frame := range c.added {
			if _, err := buffered.Write(fill(frame, i)); err != nil {
				return err
			}
		}
	}
	if _, err := buffered.Write(c.bookmark); err != nil {
		return err
	}
	return buffered.Flush()
}
