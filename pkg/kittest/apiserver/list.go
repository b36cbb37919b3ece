package apiserver

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func (c *call) list() (Response, error) {
	selection, err := SelectionOf(c.key, c.Query)
	if err != nil {
		return Response{}, err
	}
	items := []any{}
	for _, obj := range selection.In(c.store) {
		items = append(items, c.listed(obj))
	}
	return respond(http.StatusOK, map[string]any{
		"apiVersion": c.kind.Resource.GroupVersion().String(), "kind": c.kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": c.options.Version(c.store.Version)}, "items": items,
	}), nil
}

// Selection is what a list or a watch shows.
type Selection struct {
	resource  schema.GroupResource
	namespace string // all if empty
	labels    labels.Selector
	fields    fields.Selector
}

// SelectionOf parses the selectors of a request for the objects of the key's resource and namespace.
func SelectionOf(key Key, query url.Values) (Selection, error) {
	s := Selection{resource: key.Resource, namespace: key.Namespace}
	var errLabels, errFields error
	s.labels, errLabels = labels.Parse(query.Get("labelSelector"))
	s.fields, errFields = fields.ParseSelector(query.Get("fieldSelector"))
	if err := errors.Join(errLabels, errFields); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

// In returns the objects that are selected, sorted.
func (s Selection) In(store Store) (objects []*unstructured.Unstructured) {
	for _, key := range store.Keys(func(key Key) bool { return s.has(key, store.Objects[key]) }) {
		objects = append(objects, store.Objects[key])
	}
	return objects
}

// has reports whether an object is selected. Selectors of fields work for strings only.
func (s Selection) has(key Key, obj *unstructured.Unstructured) bool {
	if obj == nil || key.Resource != s.resource || s.namespace != "" && key.Namespace != s.namespace {
		return false
	}
	known := fields.Set{}
	for _, required := range s.fields.Requirements() {
		known[required.Field], _, _ = unstructured.NestedString(obj.Object, strings.Split(required.Field, ".")...)
	}
	return s.labels.Matches(labels.Set(obj.GetLabels())) && s.fields.Matches(known)
}

// Events returns what a watch delivers for the step from one store to the next, which one function of this
// package has to have taken. An object that is no longer selected is deleted for the watch.
func (s Selection) Events(before, after Store) (events []Event) {
	if after.Version == before.Version {
		return nil
	}
	for _, event := range after.last {
		wasShown, isShown := s.has(event.key, before.Objects[event.key]), event.Type != watch.Deleted && s.has(event.key, event.Object)
		switch {
		case wasShown && isShown:
			event.Type = watch.Modified
		case wasShown:
			event.Type = watch.Deleted
		case isShown:
			event.Type = watch.Added
		default:
			continue
		}
		events = append(events, event)
	}
	return events
}

// listed returns an object as it is in a list. Built-in objects are without their kind.
func (c *call) listed(stored *unstructured.Unstructured) map[string]any {
	if c.kind.isCustom {
		return stored.Object
	}
	content := maps.Clone(stored.Object)
	delete(content, "apiVersion")
	delete(content, "kind")
	return content
}
