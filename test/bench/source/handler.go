package source

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// request is a request for one collection, or one of its objects.
type request struct {
	*http.Request
	*collection
	name        cache.ObjectName
	subresource string
	code        int // of the response
}

// handler returns the handler of all paths. Every handler of a resource returns an error
// only if it has not responded yet.
func (s *Source) handler() http.Handler {
	mux := http.NewServeMux()
	s.handleDiscovery(mux)
	for _, prefix := range []string{"/api/{version}", "/apis/{group}/{version}"} {
		handle := func(method, path string, verb func(*request) string, serve func(http.ResponseWriter, *request) error) {
			for _, scope := range []string{"", "/namespaces/{namespace}"} {
				mux.HandleFunc(method+" "+prefix+scope+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, verb, serve) })
			}
		}
		is := func(verb string) func(*request) string { return func(*request) string { return verb } }
		handle("GET", "/{resource}", verbOfMany, s.readMany)
		handle("GET", "/{resource}/{name}", is("get"), s.readOne)
		handle("POST", "/{resource}", is("create"), s.create)
		handle("PUT", "/{resource}/{name}", is("update"), s.update)
		handle("PUT", "/{resource}/{name}/{subresource}", is("update"), s.update)
		handle("PATCH", "/{resource}/{name}", is("patch"), s.patch)
		handle("PATCH", "/{resource}/{name}/{subresource}", is("patch"), s.patch)
	}
	return mux
}

// isWatch reports whether a request is for a watch.
func isWatch(r *http.Request) bool {
	value := r.URL.Query().Get("watch")
	return value == "true" || value == "1"
}

func verbOfMany(r *request) string {
	if isWatch(r.Request) {
		return "watch"
	}
	return "list"
}

// serve serves a request for a resource, and records it.
func (s *Source) serve(w http.ResponseWriter, r *http.Request, verb func(*request) string, serve func(http.ResponseWriter, *request) error) {
	resource := schema.GroupVersionResource{Group: r.PathValue("group"), Version: r.PathValue("version"), Resource: r.PathValue("resource")}
	q := &request{
		Request: r, collection: s.collections[resource], subresource: r.PathValue("subresource"), code: http.StatusOK,
		name: cache.ObjectName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")},
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	recorded := Request{At: time.Now(), Agent: agent, Verb: verb(q), Resource: resource.Resource, Subresource: q.subresource, Name: q.name}
	var err error
	switch {
	case resource.Resource == "events" && r.Method == http.MethodPost:
		q.code, err = http.StatusCreated, drop(w, r)
	case q.collection == nil:
		err = apierrors.NewNotFound(resource.GroupResource(), q.name.Name)
	case isWatch(r):
		// Recorded when it has sent its initial events.
		if err = s.watch(w, q, func() { recorded.At, recorded.Code = time.Now(), q.code; s.record(recorded) }); err == nil {
			return
		}
	default:
		err = serve(w, q)
	}
	if err != nil {
		q.code = fail(w, err)
	}
	recorded.Name, recorded.Code = q.name, q.code
	s.record(recorded)
}

// drop responds to an event as if it had been stored.
func drop(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(body)
	return ignoreClosed(err)
}

// ignoreClosed returns nil: nobody is left to be told that a response could not be sent.
func ignoreClosed(error) error { return nil }

// fail responds with an error, and returns its code.
func fail(w http.ResponseWriter, err error) int {
	status := apierrors.NewBadRequest(err.Error()).Status()
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	_ = format{SerializerInfo: mediaType("application/json")}.respond(w, int(status.Code), &status)
	return int(status.Code)
}

func notFound(c *collection, name string) error {
	return apierrors.NewNotFound(c.resource.GroupResource(), name)
}

// filterOf returns what a list or watch selects.
func filterOf(r *request) (filter, error) {
	f := filter{namespace: r.name.Namespace}
	query := r.URL.Query()
	var err error
	if f.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return f, err
	}
	selected, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return f, err
	}
	for _, requirement := range selected.Requirements() {
		if requirement.Field != metav1.ObjectNameField || requirement.Operator != "=" && requirement.Operator != "==" {
			return f, fmt.Errorf("field selector %q is not supported", selected)
		}
		f.name = requirement.Value
	}
	return f, nil
}
