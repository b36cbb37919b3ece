package barrier_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// change is one revision of the server's storage.
type change struct {
	kind string // ADDED, MODIFIED, DELETED, or "" of another resource
	name string
}

// server is an API server that can list objects and replay changes, which is all that a
// barrier uses. Its storage is a history of changes, the first of which is revision 1.
type server struct {
	hasBookmarks bool
	oldest       int // the revision from which on a watch may begin

	mu       sync.Mutex
	failure  error // of every request
	history  []change
	requests []string
	selected []string // the path, label selector and field selector of each request
}

func (s *server) revision() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.history)
}

// fail makes every request fail with that error; nil ends that.
func (s *server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// do makes changes, such as "+a", "*a", "-a", and "." for one of another resource.
func (s *server) do(changes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := map[byte]string{'+': "ADDED", '*': "MODIFIED", '-': "DELETED", '.': ""}
	for _, c := range changes {
		s.history = append(s.history, change{kinds[c[0]], c[1:]})
	}
}

// objects returns the objects at a revision, with their resource versions.
func (s *server) objects(revision int) []metav1.PartialObjectMetadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := map[string]int{}
	for i, c := range s.history[:revision] {
		switch c.kind {
		case "ADDED", "MODIFIED":
			versions[c.name] = i + 1
		case "DELETED":
			delete(versions, c.name)
		}
	}
	var objects []metav1.PartialObjectMetadata
	for name, version := range versions {
		objects = append(objects, *object(name, version))
	}
	slices.SortFunc(objects, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	return objects
}

func object(name string, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: strconv.Itoa(version)},
	}
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	request := "list " + query.Get("limit")
	if query.Has("watch") {
		request = "watch " + query.Get("resourceVersion")
	}
	s.mu.Lock()
	s.requests = append(s.requests, strings.TrimSpace(request))
	s.selected = append(s.selected, r.URL.Path+" "+query.Get("labelSelector")+" "+query.Get("fieldSelector"))
	failure := s.failure
	s.mu.Unlock()
	if failure != nil {
		return nil, failure
	}
	if !query.Has("watch") {
		return s.list(query.Get("limit")), nil
	}
	from, err := strconv.Atoi(query.Get("resourceVersion"))
	if err != nil {
		return nil, err
	}
	if from < s.oldest {
		return answer(http.StatusGone, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
		}), nil
	}
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil {
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(s.watch(r, writer, from, time.Duration(seconds)*time.Second)) }()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: reader, Request: r}, nil
}

func (s *server) list(limit string) *http.Response {
	revision := s.revision()
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(revision)},
		Items:    s.objects(revision),
	}
	if most, err := strconv.Atoi(limit); err == nil && len(list.Items) > most {
		list.Items, list.Continue = list.Items[:most], "more"
	}
	return answer(http.StatusOK, list)
}

func answer(code int, body any) *http.Response {
	content, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(content)))}
}

// watch writes past changes since the revision, and new ones, until it times out.
func (s *server) watch(r *http.Request, to io.Writer, from int, during time.Duration) error {
	write := func(kind string, o *metav1.PartialObjectMetadata) error {
		return json.NewEncoder(to).Encode(map[string]any{"type": kind, "object": o})
	}
	for end := time.Now().Add(during); time.Now().Before(end); {
		for ; from < s.revision(); from++ {
			s.mu.Lock()
			c := s.history[from]
			s.mu.Unlock()
			if c.kind == "" {
				continue
			}
			if err := write(c.kind, object(c.name, from+1)); err != nil {
				return err
			}
		}
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case <-time.After(100 * time.Millisecond):
		}
		if s.hasBookmarks && time.Until(end) == 2*time.Second {
			if err := write("BOOKMARK", object("", from)); err != nil {
				return err
			}
		}
	}
	return nil
}

var resource = schema.GroupVersionResource{Group: "example.com", Version: "v1alpha1", Resource: "gadgets"}

func (s *server) client(t testing.TB) metadata.Interface {
	t.Helper()
	client, err := metadata.NewForConfigAndClient(&rest.Config{Host: "http://server.example", QPS: -1}, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// follower is a cache that follows the server's history.
type follower struct {
	cache.Store
	server *server
	at     int
}

// follow returns a cache that was filled by a list of that revision.
func (s *server) follow(t testing.TB, revision int) *follower {
	t.Helper()
	f := &follower{cache.NewStore(cache.MetaNamespaceKeyFunc), s, revision}
	var objects []any
	for _, o := range s.objects(revision) {
		objects = append(objects, &o)
	}
	if err := f.Replace(objects, strconv.Itoa(revision)); err != nil {
		t.Fatal(err)
	}
	return f
}

// next applies the next change to the cache, if there is one. Changes of other resources
// do not reach it.
func (f *follower) next() error {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	for f.at < len(f.server.history) {
		c := f.server.history[f.at]
		f.at++
		switch c.kind {
		case "":
		case "DELETED":
			return f.Delete(object(c.name, f.at))
		default:
			return f.Update(object(c.name, f.at))
		}
	}
	return nil
}
