package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Options configure a Server.
type Options struct {
	// Version returns the text of the n-th resource version, and UID that of the n-th UID;
	// n begins with 1. By default they are the decimal number, and the number in the form
	// of a UUID.
	Version func(n int64) string
	UID     func(n int64) string
	// Mutate and Admit take the place of webhooks, policies and quotas. If they are not nil, they
	// see each creation and change that is requested, after the API server's defaults and after
	// its validation. Mutate may change the object. An error of Admit refuses the request.
	Mutate func(Admission)
	Admit  func(Admission) error
}

// Admission is a request that is about to create or change an object.
type Admission struct {
	Verb        string // create, also by an apply, update or patch
	Key         Key
	Subresource string
	Object      Object
	Old         Object // what there is, which must not be changed; nil for a new object
}

// Server answers requests about objects of some kinds. It has no state, and may be used by
// several goroutines.
type Server struct {
	options Options
	kinds   map[schema.GroupVersionResource]*Kind
}

// New returns a server for these kinds. If [Namespaces] is one of them, objects can only be
// created in a namespace that exists and is not being deleted; otherwise, in any.
func New(options Options, kinds ...Kind) *Server {
	if options.Version == nil {
		options.Version = func(n int64) string { return strconv.FormatInt(n, 10) }
	}
	if options.UID == nil {
		options.UID = func(n int64) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }
	}
	s := &Server{options: options, kinds: map[schema.GroupVersionResource]*Kind{}}
	for _, k := range kinds {
		s.kinds[k.Resource] = &k
	}
	return s
}

// call is a request that is being answered.
type call struct {
	*Server
	target
	Request

	now   metav1.Time
	store Store
}

// Answer returns what is stored after a request, and the response. A request that fails,
// changes nothing or is a dry run leaves the store as it is.
func (s *Server) Answer(store Store, now time.Time, r Request) (Store, Response) {
	t, err := s.parse(r)
	if err != nil {
		return store, Refuse(err)
	}
	c := &call{Server: s, target: t, Request: r, now: metav1.NewTime(now.UTC().Truncate(time.Second)), store: store}
	c.store.last = nil
	response, err := c.answer()
	if c.store.Version == store.Version || r.Query.Has("dryRun") {
		c.store = store
	}
	if err != nil {
		return c.store, Refuse(err)
	}
	if r.AsMetadata {
		response = response.asMetadata()
	}
	return c.store, response
}

func (c *call) answer() (Response, error) {
	switch c.verb {
	case "get":
		return c.get()
	case "list":
		return c.list()
	case "create":
		if c.subresource == "eviction" {
			return c.evict()
		}
		return c.create()
	case "update":
		return c.update()
	case "delete":
		return c.delete()
	default:
		return c.patch()
	}
}

func (c *call) get() (Response, error) {
	stored := c.store.Objects[c.key]
	if stored == nil {
		return Response{}, c.notFound()
	}
	return respond(http.StatusOK, stored), nil
}

func (c *call) notFound() error { return apierrors.NewNotFound(c.key.Resource, c.key.Name) }

func (c *call) conflict(err error) error {
	return apierrors.NewConflict(c.key.Resource, c.key.Name, err)
}

// Create stores a new object, as a POST does.
func (s *Server) Create(store Store, now time.Time, obj runtime.Object) (Store, error) {
	sent, k, err := s.untyped(obj)
	if err != nil {
		return store, err
	}
	return s.send(store, now, Request{Method: http.MethodPost, Path: k.path(sent.GetNamespace(), ""), ContentType: runtime.ContentTypeJSON}, sent)
}

// Update changes an object, as a PUT does.
func (s *Server) Update(store Store, now time.Time, obj runtime.Object) (Store, error) {
	sent, k, err := s.untyped(obj)
	if err != nil {
		return store, err
	}
	return s.send(store, now, Request{Method: http.MethodPut, Path: k.path(sent.GetNamespace(), sent.GetName()), ContentType: runtime.ContentTypeJSON}, sent)
}

// Delete deletes an object, or requests its deletion.
func (s *Server) Delete(store Store, now time.Time, key Key, options metav1.DeleteOptions) (Store, error) {
	k, err := s.kindFor(key)
	if err != nil {
		return store, err
	}
	return s.send(store, now, Request{Method: http.MethodDelete, Path: k.path(key.Namespace, key.Name), ContentType: runtime.ContentTypeJSON}, options)
}

// Put stores an object just as it is, as an actor does that makes no mistakes. It sets only the
// resource version, the managed fields of a Deployment and, for a new object, the UID and the time
// of its creation. An Unstructured is not copied, so that it has these afterwards.
func (s *Server) Put(store Store, now time.Time, obj runtime.Object) (Store, error) {
	put, k, err := s.untyped(obj)
	if err != nil {
		return store, err
	}
	key := k.keyOf(put)
	store.last = nil
	k.trackPut(put, store.Objects[key])
	if store.Objects[key] == nil {
		store.uids++
		put.SetUID(types.UID(s.options.UID(store.uids)))
		put.SetCreationTimestamp(metav1.NewTime(now.UTC().Truncate(time.Second)))
	}
	return s.with(store, key, put), nil
}

// KeyOf returns the key of an object.
func (s *Server) KeyOf(obj Object) (Key, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return Key{}, err
	}
	return k.keyOf(obj), nil
}

// untyped returns an object in the form in which it is stored, and its kind.
func (s *Server) untyped(obj runtime.Object) (*unstructured.Unstructured, *Kind, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return nil, nil, err
	}
	if already, ok := obj.(*unstructured.Unstructured); ok {
		return already, k, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, nil, err
	}
	untyped := &unstructured.Unstructured{Object: content}
	untyped.SetGroupVersionKind(k.gvk())
	return untyped, k, nil
}

// send has the model answer a request with that body, and returns the error if it is refused.
func (s *Server) send(store Store, now time.Time, r Request, body any) (_ Store, err error) {
	if r.Body, err = json.Marshal(body); err != nil {
		return store, err
	}
	after, response := s.Answer(store, now, r)
	return after, response.errOf()
}

// kindOf returns the kind of an object. Most typed objects do not say it, but it is the name of
// their type.
func (s *Server) kindOf(obj runtime.Object) (*Kind, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	for _, k := range s.kinds {
		if k.gvk() == gvk || gvk.Empty() && k.Kind == reflect.TypeOf(obj).Elem().Name() {
			return k, nil
		}
	}
	return nil, fmt.Errorf("the model has no %T %s", obj, gvk)
}

// kindFor returns the kind of the object with that key.
func (s *Server) kindFor(key Key) (*Kind, error) {
	for gvr, k := range s.kinds {
		if gvr.GroupResource() == key.Resource {
			return k, nil
		}
	}
	return nil, fmt.Errorf("the model has no %s", key.Resource)
}

// path returns the path of an object, or of all objects of a namespace if name is empty.
func (k *Kind) path(namespace, name string) string {
	prefix := "/apis/" + k.Resource.Group
	if k.Resource.Group == "" {
		prefix = "/api"
	}
	if k.Namespaced {
		return path.Join(prefix, k.Resource.Version, "namespaces", namespace, k.Resource.Resource, name)
	}
	return path.Join(prefix, k.Resource.Version, k.Resource.Resource, name)
}
