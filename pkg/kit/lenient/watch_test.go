package lenient_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	"pgregory.net/rapid"
)

var usualFramer, lenientFramer = jsonInfo(usualCodecs).StreamSerializer.Framer, jsonInfo(lenientCodecs).StreamSerializer.Framer

// framesOf reads a stream by a buffer of that size. It ends with the error.
func framesOf(f runtime.Framer, stream io.Reader, size int) (frames []string) {
	r := f.NewFrameReader(io.NopCloser(stream))
	buffer, frame := make([]byte, size), ""
	for {
		n, err := r.Read(buffer)
		frame += string(buffer[:n])
		switch {
		case err == nil:
			frames, frame = append(frames, frame), ""
		case errors.Is(err, io.ErrShortBuffer):
		case err == io.EOF || err == io.ErrUnexpectedEOF || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err): //nolint:errorlint // as client-go compares them
			return append(frames, "the end: "+err.Error())
		default:
			return append(frames, "an error")
		}
	}
}

// A stream of objects is divided as usual, wherever it is interrupted, and its end is reported
// as usual.
func TestFrames(t *testing.T) {
	event := func(object string) string { return `{"type":"ADDED","object":` + object + "}" }
	ends := []error{io.EOF, io.ErrUnexpectedEOF, errors.New("http: request canceled"), errors.New("read tcp: connection reset by peer"), fmt.Errorf("read: %w", iotest.ErrTimeout)}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.SampledFrom([]string{
			event(bowlJSON(`{"string":"a"}`)), event(bowlJSON(`{"string":"` + strings.Repeat("a", 5000) + `"}`)), "\n", " ", "{}", "[]",
			`{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `{"a":"\ud83c"}`, "{", "}", `{"a":}`, "nul", ",", "\x00", strings.Repeat("[", 10_001),
		}), 0, 5).Draw(t, "values")
		stream := strings.Join(values, "")
		stream = stream[:rapid.IntRange(0, len(stream)).Draw(t, "length")]
		end := rapid.SampledFrom(ends).Draw(t, "end")
		size := rapid.SampledFrom([]int{1, 7, 1024, 100_000}).Draw(t, "size")
		in := func() io.Reader { return io.MultiReader(strings.NewReader(stream), iotest.ErrReader(end)) }
		want, got := framesOf(usualFramer, in(), size), framesOf(lenientFramer, in(), size)
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Fatalf("got\n%q\nwant\n%q", got, want)
		}
	})
}

// A frame is there as soon as its last byte is, and its reader closes the stream.
func TestFrameIsNotHeldBack(t *testing.T) {
	out, in := io.Pipe()
	r := lenientFramer.NewFrameReader(out)
	go io.WriteString(in, `{"type":"BOOKMARK"}`) //nolint:errcheck // the other end sees it
	buffer := make([]byte, 100)
	if n, err := r.Read(buffer); err != nil || string(buffer[:n]) != `{"type":"BOOKMARK"}` {
		t.Errorf("got %q: %v", buffer[:n], err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.WriteString(in, "{}"); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writing to a stream that is closed: %v", err)
	}
}

// BenchmarkWatch reads events: 100 at a time, with managedFields, as they arrive at an informer.
func BenchmarkWatch(b *testing.B) {
	const events = 100
	list, _, err := usually.Decode(goodList(1), nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	cone := &list.(*ConeList).Items[0]
	cone.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: cone.APIVersion, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{".":{},"f:image":{},"f:replicas":{},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{}}}}}`),
	}, {
		Manager: "controller", Operation: metav1.ManagedFieldsOperationApply, APIVersion: cone.APIVersion, FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}},"f:replicas":{}}}`),
	}}
	// managedFields in CBOR become JSON, unless that is turned off.
	notTranscoded := func(c runtime.ObjectCreater, t runtime.ObjectTyper) runtime.SerializerInfo {
		info := cbor.NewSerializerInfo(c, t)
		info.Serializer = cbor.NewSerializer(c, t, cbor.Transcode(false))
		return info
	}
	for _, bench := range []struct {
		name      string
		codecs    runtime.NegotiatedSerializer
		mediaType string
	}{
		{"usual", usualCodecs, runtime.ContentTypeJSON},
		{"lenient", lenientCodecs, runtime.ContentTypeJSON},
		{"CBOR", codecsWith(cbor.NewSerializerInfo), runtime.ContentTypeCBOR},
		{"CBOR, not transcoded", codecsWith(notTranscoded), runtime.ContentTypeCBOR},
	} {
		info, _ := runtime.SerializerInfoForMediaType(bench.codecs.SupportedMediaTypes(), bench.mediaType)
		event := &metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Raw: encode(b, info.Serializer, cone)}}
		stream := bytes.Repeat(encode(b, info.StreamSerializer, event), events)
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				frames := info.StreamSerializer.NewFrameReader(io.NopCloser(bytes.NewReader(stream)))
				decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), info.Serializer)
				for range events {
					if _, _, err := decoder.Decode(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// codecsWith returns the usual codecs with one more serializer.
func codecsWith(more func(runtime.ObjectCreater, runtime.ObjectTyper) runtime.SerializerInfo) runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(coneScheme, serializer.WithSerializer(more)).WithoutConversion()
}

func encode(b *testing.B, encoder runtime.Encoder, obj runtime.Object) []byte {
	b.Helper()
	encoded, err := runtime.Encode(encoder, obj)
	if err != nil {
		b.Fatal(err)
	}
	return bytes.TrimSpace(encoded)
}
