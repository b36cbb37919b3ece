package lenient_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // reflectors say when they begin again
	goleak.VerifyTestMain(m)
}

const goodSpec = `{"image":"vanilla","replicas":4}`

// server answers as an API server would that holds a few Cones. What a watch
// shows is up to the test.
type server struct {
	streams bool     // whether it can send a list as a stream
	items   []string // in JSON
	first   string   // what each watch begins with
	events  chan string

	mu       sync.Mutex
	requests []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	kind := r.Method
	switch {
	case query.Get("sendInitialEvents") == "true":
		kind = "streaming list"
	case query.Get("watch") == "true":
		kind = "watch"
	case strings.HasSuffix(r.URL.Path, "/cones"):
		kind = "list"
	}
	s.mu.Lock()
	s.requests = append(s.requests, kind)
	s.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	switch kind {
	case "list":
		fmt.Fprint(w, strings.Replace(listJSON(s.items...), `"continue":"more",`, "", 1))
	case "streaming list":
		if !s.streams {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents: Forbidden"}`)
			return
		}
		for _, item := range s.items {
			fmt.Fprint(w, event("ADDED", item))
		}
		fmt.Fprint(w, event("BOOKMARK", `{"apiVersion":"parlor.example/v1alpha1","kind":"Cone","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{},"status":{}}`))
		s.follow(w, r)
	case "watch":
		s.follow(w, r)
	default:
		fmt.Fprint(w, s.items[0])
	}
}

// follow writes events until the request or the test ends, or after an ERROR.
func (s *server) follow(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, s.first)
	for {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case event := <-s.events:
			fmt.Fprint(w, event)
			if strings.Contains(event, `"ERROR"`) {
				return
			}
		}
	}
}

// saw counts the requests of a kind.
func (s *server) saw(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.requests), func(k string) bool { return k != kind }))
}

// event is one of a watch, in JSON.
func event(sort, object string) string {
	return fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", sort, object)
}

// serve starts the server and returns the usual client for it, and a lenient one.
func serve(t *testing.T, s *server) (usual, ours *cones) {
	t.Helper()
	s.events = make(chan string)
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	config := &rest.Config{Host: listening.URL, Transport: transport, QPS: -1}
	usual, err := usualClient(config)
	if err != nil {
		t.Fatal(err)
	}
	ours, err = lenientClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return usual, ours
}

// A client reads a flawed object in whichever call returns it.
func TestCalls(t *testing.T) {
	flaw := flaws[0]
	s := &server{items: []string{coneJSON("flawed", flaw.spec, flaw.status), coneJSON("good", goodSpec, `{}`)}}
	s.first = event("MODIFIED", s.items[0])
	usual, ours := serve(t, s)
	for name, call := range map[string]func(*cones) (*Cone, error){
		"get": func(c *cones) (*Cone, error) {
			return c.Get(t.Context(), "flawed", metav1.GetOptions{})
		},
		"update of the status": func(c *cones) (*Cone, error) {
			return c.UpdateStatus(t.Context(), &Cone{ObjectMeta: metav1.ObjectMeta{Name: "flawed", Namespace: "parlor"}}, metav1.UpdateOptions{})
		},
		"list": func(c *cones) (*Cone, error) {
			list, err := c.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return &list.Items[0], nil
		},
		"watch": func(c *cones) (*Cone, error) {
			watcher, err := c.Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			defer watcher.Stop()
			got := <-watcher.ResultChan()
			if got.Type != watch.Modified {
				return nil, apierrors.FromObject(got.Object)
			}
			return got.Object.(*Cone), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := call(usual); err == nil {
				t.Error("the usual client can do that, too")
			}
			cone, err := call(ours)
			if err != nil {
				t.Fatal(err)
			}
			requireSalvaged(t, cone, flaw.spec, flaw.status, flaw.want)
		})
	}
}

// An informer shows flawed objects and all others, from the beginning and when they
// change, and follows a watch to its end.
func TestInformer(t *testing.T) {
	flaw := flaws[0]
	flawed := func(name string) string { return coneJSON(name, flaw.spec, flaw.status) }
	good := func(name string) string { return coneJSON(name, goodSpec, `{}`) }
	const problem = "spec.image: json: cannot unmarshal number into Go struct field ConeSpec.spec.image of type string"

	for _, tt := range []struct {
		name    string
		streams bool
		begins  string // the request that an informer begins with
	}{
		{"list and watch", false, "list"},
		{"streaming list", true, "streaming list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &server{streams: tt.streams, items: []string{good("one"), flawed("two"), good("three")}}
			_, client := serve(t, s)
			cones := cache.NewSharedIndexInformer(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
					return client.List(ctx, options)
				},
				WatchFuncWithContext: client.Watch,
			}, &Cone{}, 0, cache.Indexers{})
			if err := cones.SetTransform(func(obj any) (any, error) {
				cone := obj.(*Cone).DeepCopy()
				cone.ManagedFields = nil
				return cone, nil
			}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { cones.RunWithContext(ctx) })
			t.Cleanup(func() { cancel(); running.Wait() })

			eventually := func(what string, want map[string]string) {
				t.Helper()
				var diff string
				for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					got := map[string]string{}
					for _, found := range cones.GetStore().List() {
						cone := found.(*Cone)
						got[cone.Name] = cone.Spec.Image + lenient.DecodeError(cone, "spec")
					}
					if diff = cmp.Diff(want, got); diff == "" {
						return
					}
				}
				t.Fatalf("%s (-want +got):\n%s", what, diff)
			}
			show := func(what string, want map[string]string, events ...string) {
				t.Helper()
				for _, e := range events {
					select {
					case s.events <- e:
					case <-time.After(time.Minute):
						t.Fatalf("%s: nobody watches", what)
					}
				}
				eventually(what, want)
			}

			eventually("in the beginning", map[string]string{"one": "vanilla", "two": problem, "three": "vanilla"})
			show("one has become flawed, and a fourth has come",
				map[string]string{"one": problem, "two": problem, "three": "vanilla", "four": "vanilla"},
				event("MODIFIED", flawed("one")), event("ADDED", good("four")))
			show("one was mended, after a bookmark, and two is gone",
				map[string]string{"one": "vanilla", "three": "vanilla", "four": "vanilla"},
				event("BOOKMARK", `{"apiVersion":"parlor.example/v1alpha1","kind":"Cone","metadata":{"resourceVersion":"20"},"spec":{},"status":{}}`),
				event("MODIFIED", good("one")), event("DELETED", flawed("two")))
			begun := s.saw(tt.begins)
			show("it began again when the watch ended in an error",
				map[string]string{"one": "vanilla", "two": problem, "three": "vanilla"},
				event("ERROR", `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}`))
			if now := s.saw(tt.begins); begun == 0 || now != begun+1 {
				t.Errorf("it made a %s %d times, and %d times after the watch had ended: %v", tt.begins, begun, now, s.requests)
			}
		})
	}
}
