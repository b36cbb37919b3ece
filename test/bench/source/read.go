package source

import (
	"fmt"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (s *Source) readOne(w http.ResponseWriter, r *request) error {
	s.mu.Lock()
	obj, err := s.get(r.collection, r.name)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	f := negotiate(r.Request, r.kind)
	return ignoreClosed(f.respond(w, http.StatusOK, f.view(obj)))
}

// readMany responds with a list, or with one page of it. It makes the page in memory:
// clients that read many objects do so by watches.
func (s *Source) readMany(w http.ResponseWriter, r *request) error {
	selected, err := filterOf(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	limit, from := 0, 0
	for name, into := range map[string]*int{"limit": &limit, "continue": &from} {
		if text := query.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	snap, f := s.snapshot(r.collection), negotiate(r.Request, r.kind)
	var items []runtime.Object
	next := ""
	for at, e := range snap.each(selected, from) {
		// The changed objects at the end all belong to one page.
		if e.object == nil && limit > 0 && len(items) >= limit {
			next = strconv.Itoa(at)
			break
		}
		obj := e.object
		if obj == nil {
			if obj, err = snap.generate(e.item); err != nil {
				return err
			}
		}
		items = append(items, f.view(obj))
	}
	list, err := newList(r.kind, f.metadataOnly, items)
	if err != nil {
		return err
	}
	list.SetResourceVersion(strconv.Itoa(snap.version))
	list.SetContinue(next)
	return ignoreClosed(f.respond(w, http.StatusOK, list))
}

// listObject is a list of any kind.
type listObject interface {
	runtime.Object
	metav1.ListInterface
}

func newList(kind schema.GroupVersionKind, metadataOnly bool, items []runtime.Object) (listObject, error) {
	if metadataOnly {
		kind = schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"}
	}
	kind.Kind += "List"
	created, err := all.New(kind)
	if err != nil {
		return nil, err
	}
	if err := meta.SetList(created, items); err != nil {
		return nil, err
	}
	list, ok := created.(listObject)
	if !ok {
		return nil, fmt.Errorf("%T is not a list", created)
	}
	list.GetObjectKind().SetGroupVersionKind(kind)
	return list, nil
}
