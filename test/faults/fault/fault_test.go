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
	"nicoleh.io/k8s-controller/test/lab"
)

// patience is how long a test waits for something that takes milliseconds.
const patience = time.Minute

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text    string
		want    fault.Rule
		wantErr string
	}{
		{text: "verb=update,resource=icecreams/status,reset=after,count=3", want: fault.Rule{Verbs: []string{"update"}, Resources: []string{"icecreams/status"}, Effect: fault.ResetAfter, Count: 3}},
		{text: "verb=get|write, hang=before", want: fault.Rule{Verbs: []string{"get", "create", "update", "patch", "delete", "deletecollection"}, Effect: fault.HangBefore}},
		{text: "refuse=429,reason=TooManyRequests,retry-after=1500ms,skip=2", want: fault.Rule{Skip: 2, Effect: fault.Refuse, Status: fault.Status{Code: 429, Reason: "TooManyRequests", RetryAfter: 1500 * time.Millisecond}}},
		{text: "refuse=500,probability=0.2,seed=7", want: fault.Rule{Probability: 0.2, Seed: 7, Effect: fault.Refuse, Status: fault.Status{Code: 500}}},
		{text: "name=vanilla|lemon,freeze=watch", want: fault.Rule{Names: []string{"vanilla", "lemon"}, Effect: fault.Freeze}},
		{text: "expire=2s", want: fault.Rule{Effect: fault.Expire, After: 2 * time.Second}},
		{text: "truncate=100", want: fault.Rule{Effect: fault.Truncate, Bytes: 100}},
		{text: "verb=get", wantErr: "it has no effect"},
		{text: "cut=1s,delay=1s", wantErr: "has the effect cut already"},
		{text: "reset=later", wantErr: "there is no reset=later"},
		{text: "cut=1s,verb=get,verb=list", wantErr: "has verb twice"},
		{text: "cut=1s,reason=Gone", wantErr: "only refuse has a reason"},
		{text: "refuse=200", wantErr: "from 400 to 599"},
		{text: "refuse=500,probability=2", wantErr: "from 0 to 1"},
		{text: "delay=-1s", wantErr: "negative"},
		{text: "delay=1s,count=0", wantErr: "not positive"},
		{text: "delay=soon", wantErr: "invalid duration"},
	} {
		t.Run(c.text, func(t *testing.T) {
			t.Parallel()
			got, err := fault.Parse(c.text)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("got error %v, want %q", err, c.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			lab.Equal(t, "the rule differs", c.want, got)
		})
	}
}

// What happens to one request, and whether it arrives.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault       string
		wantErr     func(error) bool // nil for no error
		wantArrived int
	}{
		{fault: "refuse=500,verb=list", wantArrived: 1},
		{fault: "refuse=500,name=other", wantArrived: 1},
		{fault: "refuse=500,resource=pods/status", wantArrived: 1},
		{fault: "refuse=409,verb=get,resource=pods,name=one", wantErr: apierrors.IsConflict},
		{fault: "refuse=429,retry-after=7s", wantErr: func(err error) bool {
			seconds, ok := apierrors.SuggestsClientDelay(err)
			return apierrors.IsTooManyRequests(err) && ok && seconds == 7
		}},
		{fault: "refuse=410,reason=Expired", wantErr: apierrors.IsResourceExpired},
		{fault: "delay=1ms", wantArrived: 1},
		{fault: "reset=before", wantErr: isNoStatus},
		{fault: "reset=after", wantErr: isNoStatus, wantArrived: 1},
		{fault: "hang=before", wantErr: isCanceled},
		{fault: "hang=after", wantErr: isCanceled, wantArrived: 1},
		{fault: "truncate=20", wantErr: isNoStatus, wantArrived: 1},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int64
			set := &fault.Set{}
			client := connect(t, set, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				arrived.Add(1)
				writePod(out, "one")
			}))
			rule := set.Add(fault.MustParse(c.fault))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if strings.HasPrefix(c.fault, "hang") {
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
	few := set.Add(fault.MustParse("refuse=400,skip=1,count=2"))
	some := set.Add(fault.MustParse("refuse=403,probability=0.2,seed=1"))
	var codes []string
	forbidden := 0
	for i := range 100 {
		err := get(t.Context(), client)
		if i < 4 {
			codes = append(codes, fmt.Sprint(apierrors.IsBadRequest(err)))
		}
		if apierrors.IsForbidden(err) {
			forbidden++
		}
	}
	lab.Equal(t, "bad requests", []string{"false", "true", "true", "false"}, codes)
	if few.Matched() != 100 || few.Applied() != 2 {
		t.Errorf("the rule has matched %d requests and was applied to %d", few.Matched(), few.Applied())
	}
	if forbidden < 8 || forbidden > 32 || some.Applied() < forbidden {
		t.Errorf("%d of 100 requests were forbidden, and the rule was applied to %d, want about 20", forbidden, some.Applied())
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
			frozen := set.Add(fault.MustParse("freeze=watch,resource=pods"))
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

			cut := set.Add(fault.MustParse("cut=1ms"))
			if got := next(t, w); got != "the end" {
				t.Errorf("the watch that is cut got %q", got)
			}
			cut.Remove()

			w = begin()
			set.Add(fault.MustParse("expire=1ms"))
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
