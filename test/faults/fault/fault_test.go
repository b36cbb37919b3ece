package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restclientwatch "k8s.io/client-go/rest/watch"

	"nicoleh.io/k8s-controller/test/faults/fault"
)

// patience is how long a test waits for something that takes milliseconds.
const patience = time.Minute

// What happens to one request, and whether it arrives.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault       fault.Rule
		wantErr     func(error) bool // nil for no error
		wantArrived int
	}{
		{fault: fault.Rule{Effect: fault.ResetBefore, Verbs: []string{"list"}}, wantArrived: 1},
		{fault: fault.Rule{Effect: fault.ResetBefore, Resources: []string{"pods/status"}}, wantArrived: 1},
		{fault: fault.Rule{Effect: fault.ResetBefore, Verbs: []string{"get"}, Resources: []string{"pods"}}, wantErr: isNoStatus},
		{fault: fault.Rule{Effect: fault.Delay, After: time.Millisecond}, wantArrived: 1},
		{fault: fault.Rule{Effect: fault.HangBefore}, wantErr: isCanceled},
		{fault: fault.Rule{Effect: fault.HangAfter}, wantErr: isCanceled, wantArrived: 1},
		{fault: fault.Rule{Effect: fault.Truncate, Bytes: 20}, wantErr: isNoStatus, wantArrived: 1},
	} {
		t.Run(fmt.Sprint(c.fault), func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int64
			set := &fault.Set{}
			client := connect(t, set, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				arrived.Add(1)
				writePod(out, "one")
			}))
			rule := set.Add(c.fault)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if c.fault.Effect == fault.HangBefore || c.fault.Effect == fault.HangAfter {
				go func() {
					defer cancel()
					for ctx.Err() == nil && (rule.Applied() == 0 || arrived.Load() < int64(c.wantArrived)) {
						time.Sleep(time.Millisecond)
					}
				}()
			}
			err := get(ctx, client)
			if c.wantErr == nil && err != nil || c.wantErr != nil && (err == nil || !c.wantErr(err)) {
				t.Errorf("got error %#v", err)
			}
			if c.wantErr != nil && rule.Applied() == 0 {
				t.Error("the rule was not applied")
			}
			if got := arrived.Load(); (got > 0) != (c.wantArrived > 0) {
				t.Errorf("%d requests have arrived, want %d", got, c.wantArrived)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	set := &fault.Set{}
	client := connect(t, set, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { writePod(out, "one") }))
	few := set.Add(fault.Rule{Effect: fault.ResetBefore, Count: 2})
	some := set.Add(fault.Rule{Effect: fault.Truncate, Bytes: 20, Probability: 0.2, Seed: 1})
	failed := 0
	for i := range 100 {
		err := get(t.Context(), client)
		if err != nil {
			failed++
		}
		if i == 1 && failed != 2 {
			t.Errorf("%d of the first two requests failed", failed)
		}
	}
	if few.Applied() != 2 {
		t.Errorf("the rule was applied to %d requests, want 2", few.Applied())
	}
	if failed < 10 || failed > 34 || some.Applied() < failed-2 {
		t.Errorf("%d of 100 requests failed, and the rule was applied to %d, want about 20", failed, some.Applied())
	}
	some.Remove()
	if err := get(t.Context(), client); err != nil {
		t.Errorf("after the rules: %v", err)
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			server := &watched{}
			set := &fault.Set{}
			client := connectAs(t, set, server, contentType)
			begin := func() watch.Interface {
				t.Helper()
				w, err := client.CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return w
			}

			w := begin()
			server.send("passes")
			if got := next(t, w); got != "ADDED passes" {
				t.Errorf("got %q", got)
			}
			frozen := set.Add(fault.Rule{Effect: fault.HangBefore, Resources: []string{"pods"}})
			server.send("held")
			select {
			case event := <-w.ResultChan():
				t.Errorf("the frozen watch got %v", event)
			case <-time.After(100 * time.Millisecond):
			}
			frozen.Remove()
			if got := next(t, w); got != "ADDED held" {
				t.Errorf("once it was not frozen any more, the watch got %q", got)
			}

			cut := set.Add(fault.Rule{Effect: fault.Cut, After: time.Millisecond})
			if got := next(t, w); got != "the end" {
				t.Errorf("the watch that is cut got %q", got)
			}
			cut.Remove()

			w = begin()
			set.Add(fault.Rule{Effect: fault.Expire, After: time.Millisecond})
			if got := next(t, w); got != "ERROR Expired" {
				t.Errorf("the watch that expires got %q", got)
			}
		})
	}
}

// next returns what a watch receives next.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case event, ok := <-w.ResultChan():
		switch object := event.Object.(type) {
		case *corev1.Pod:
			return string(event.Type) + " " + object.Name
		case *metav1.Status:
			return string(event.Type) + " " + string(object.Reason)
		}
		if !ok {
			return "the end"
		}
		return fmt.Sprint(event)
	case <-time.After(patience):
		t.Fatal("the watch got nothing")
		return ""
	}
}

// watched is an API server that sends each watch the names of Pods in events.
type watched struct {
	mu      sync.Mutex
	streams []chan string
}

func (s *watched) send(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range s.streams {
		stream <- name
	}
}

func (s *watched) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), strings.Split(in.Header.Get("Accept"), ",")[0])
	names := make(chan string, 10)
	s.mu.Lock()
	s.streams = append(s.streams, names)
	s.mu.Unlock()
	out.Header().Set("Content-Type", info.MediaType)
	out.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(out).Flush()
	for {
		select {
		case <-in.Context().Done():
			return
		case name := <-names:
			if err := sendAdded(out, info, name); err != nil {
				return
			}
		}
	}
}

// sendAdded sends the event that a Pod was added.
func sendAdded(out http.ResponseWriter, info runtime.SerializerInfo, name string) error {
	encoder := streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(out), info.StreamSerializer.Serializer)
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := restclientwatch.NewEncoder(encoder, info.Serializer).Encode(&watch.Event{Type: watch.Added, Object: pod}); err != nil {
		return err
	}
	return http.NewResponseController(out).Flush()
}

func writePod(out http.ResponseWriter, name string) {
	out.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(out, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns"}}`, name)
}

// get gets a Pod, once.
func get(ctx context.Context, client kubernetes.Interface) error {
	return client.CoreV1().RESTClient().Get().Namespace("ns").Resource("pods").Name("one").MaxRetries(0).Do(ctx).Error()
}

// isNoStatus reports whether an error is none that a server has sent.
func isNoStatus(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status)
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// connect returns a client of an API server behind the faults.
func connect(t *testing.T, set *fault.Set, apiServer http.Handler) kubernetes.Interface {
	t.Helper()
	return connectAs(t, set, apiServer, runtime.ContentTypeJSON)
}

func connectAs(t *testing.T, set *fault.Set, apiServer http.Handler, contentType string) kubernetes.Interface {
	t.Helper()
	behind := httptest.NewServer(apiServer)
	t.Cleanup(behind.Close)
	passOn, err := fault.APIServer(&rest.Config{Host: behind.URL})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(set.Handler(passOn))
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that are reset on purpose
	front.StartTLS()
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	config := &rest.Config{Host: front.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType}}
	config.Transport = front.Client().Transport
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
