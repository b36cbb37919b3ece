package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// Options configure a Server.
type Options struct {
	// Version returns the text of the n-th resource version, and UID that of the n-th UID;
	// n begins with 1. By default they are the decimal number, and the number in the form
	// of a UUID.
	Version func(n int64) string
	UID     func(n int64) string
	// Generation is the generation of a new object whose kind has one; 1 by default.
	Generation int64
	// NoManagedFields leaves the managedFields as a request has them, which saves much of the
	// time that requests take. A server-side apply then does not work.
	NoManagedFields bool
}

// Server answers requests about objects of some kinds. It has no state, and may be used by
// several goroutines.
type Server struct {
	options Options
	kinds   map[schema.GroupVersionResource]*kind
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
	if options.Generation == 0 {
		options.Generation = 1
	}
	s := &Server{options: options, kinds: map[schema.GroupVersionResource]*kind{}}
	for _, k := range kinds {
		s.kinds[k.Resource] = newKind(k)
	}
	return s
}

// call is a request that is being answered.
type call struct {
	*Server
	target
	Request

	now     metav1.Time
	store   Store
	manager string // of the fields that the request changes
}

// Answer returns what is stored after a request, and the response. A request that fails or
// changes nothing leaves the store as it is.
func (s *Server) Answer(store Store, now time.Time, r Request) (Store, Response) {
	t, err := s.parse(r)
	if err != nil {
		return store, refuse(err)
	}
	c := &call{Server: s, target: t, Request: r, now: metav1.NewTime(now.UTC().Truncate(time.Second)), store: store}
	c.store.last = nil
	response, err := c.answer()
	if c.store.Version == store.Version {
		c.store = store
	}
	if err != nil {
		return c.store, refuse(err)
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

// Create stores a new object as the named field manager. Like a POST, it drops the status of
// a kind with a status subresource, and sets the object's namespace and name from obj.
func (s *Server) Create(store Store, now time.Time, manager string, obj runtime.Object) (Store, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return store, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return store, err
	}
	// The kind is missing in most typed objects.
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return store, err
	}
	sent := &unstructured.Unstructured{Object: content}
	sent.SetGroupVersionKind(k.gvk())
	return s.write(store, now, http.MethodPost, k.path(accessor.GetNamespace(), "", ""), manager, sent)
}

// Update changes an object, or its status if that is the subresource, as the named field
// manager. change gets a copy of the object as it is stored.
func (s *Server) Update(store Store, now time.Time, manager string, key Key, subresource string, change func(*unstructured.Unstructured)) (Store, error) {
	k, err := s.kindFor(key)
	if err != nil {
		return store, err
	}
	stored := store.Objects[key]
	if stored == nil {
		return store, apierrors.NewNotFound(key.Resource, key.Name)
	}
	changed := stored.DeepCopy()
	change(changed)
	return s.write(store, now, http.MethodPut, k.path(key.Namespace, key.Name, subresource), manager, changed)
}

// Delete deletes an object, or requests its deletion.
func (s *Server) Delete(store Store, now time.Time, key Key, options metav1.DeleteOptions) (Store, error) {
	k, err := s.kindFor(key)
	if err != nil {
		return store, err
	}
	return s.write(store, now, http.MethodDelete, k.path(key.Namespace, key.Name, ""), "", options)
}

// Put stores an object just as it is, as an actor does that makes no mistakes. It sets only the
// resource version and, for a new object, the UID and the time of its creation. Other than
// Create and Update, it costs next to nothing.
func (s *Server) Put(store Store, now time.Time, obj *unstructured.Unstructured) (Store, error) {
	k, err := s.kindOf(obj)
	if err != nil {
		return store, err
	}
	key := Key{Resource: k.Resource.GroupResource(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
	store.last = nil
	if store.Objects[key] == nil {
		store.UIDs++
		obj.SetUID(types.UID(s.options.UID(store.UIDs)))
		obj.SetCreationTimestamp(metav1.NewTime(now.UTC().Truncate(time.Second)))
	}
	return s.with(store, key, obj), nil
}

// write sends a request that an actor makes, and returns its error if it is refused.
func (s *Server) write(store Store, now time.Time, method, path, manager string, body any) (Store, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return store, err
	}
	request := Request{Method: method, Path: path, ContentType: runtime.ContentTypeJSON, Body: encoded}
	if manager != "" {
		request.Query = url.Values{"fieldManager": {manager}}
	}
	after, response := s.Answer(store, now, request)
	return after, response.errOf()
}

// kindOf returns the kind of an object.
func (s *Server) kindOf(obj runtime.Object) (*kind, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk.Kind == "" {
		known, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		gvk = known[0]
	}
	for _, k := range s.kinds {
		if k.gvk() == gvk {
			return k, nil
		}
	}
	return nil, fmt.Errorf("the model has no %s", gvk)
}

// kindFor returns the kind of the object with that key.
func (s *Server) kindFor(key Key) (*kind, error) {
	for gvr, k := range s.kinds {
		if gvr.GroupResource() == key.Resource {
			return k, nil
		}
	}
	return nil, fmt.Errorf("the model has no %s", key.Resource)
}

// path returns the path of an object, or of all objects of a namespace if name is empty.
func (k *kind) path(namespace, name, subresource string) string {
	path := "/apis/" + k.Resource.Group + "/" + k.Resource.Version
	if k.Resource.Group == "" {
		path = "/api/" + k.Resource.Version
	}
	if k.Namespaced {
		path += "/namespaces/" + namespace
	}
	path += "/" + k.Resource.Resource
	for _, part := range []string{name, subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}
