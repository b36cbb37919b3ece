package lenient_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
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

func BenchmarkFrames(b *testing.B) {
	stream := strings.Repeat(`{"type":"ADDED","object":`+bowlJSON(`{"string":"`+strings.Repeat("a", 2000)+`"}`)+"}\n", 100)
	for name, f := range map[string]runtime.Framer{"usual": usualFramer, "lenient": lenientFramer} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				framesOf(f, strings.NewReader(stream), 10_000)
			}
		})
	}
}
