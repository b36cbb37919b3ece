package apiserver

import (
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
	selection, err := SelectionOf(c.Query)
	if err != nil {
		return Response{}, err
	}
	found := &unstructured.UnstructuredList{Object: map[string]any{}}
	found.SetAPIVersion(c.kind.Resource.GroupVersion().String())
	found.SetKind(c.kind.Kind + "List")
	found.SetResourceVersion(c.options.Version(c.store.Version))
	for _, key := range c.store.keys(c.isListed) {
		if stored := c.store.Objects[key]; selection.Has(stored) {
			found.Items = append(found.Items, *c.listed(stored))
		}
	}
	content := found.UnstructuredContent()
	if len(found.Items) == 0 {
		content["items"] = []any{}
	}
	return respond(http.StatusOK, content), nil
}

// isListed reports whether the object with that key is in the requested namespace, or there
// is no requested one.
func (c *call) isListed(key Key) bool {
	return key.Resource == c.key.Resource && (c.key.Namespace == "" || c.key.Namespace == key.Namespace)
}

// Selection is the part of a kind's objects that the selectors of a list or a watch select.
type Selection struct {
	labels labels.Selector
	fields fields.Selector
}

// SelectionOf parses the selectors of a request.
func SelectionOf(query url.Values) (s Selection, err error) {
	if s.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

// Has reports whether an object is selected. Selectors of fields work for strings only.
func (s Selection) Has(obj *unstructured.Unstructured) bool {
	known := fields.Set{}
	for _, required := range s.fields.Requirements() {
		known[required.Field], _, _ = unstructured.NestedString(obj.Object, strings.Split(required.Field, ".")...)
	}
	return s.labels.Matches(labels.Set(obj.GetLabels())) && s.fields.Matches(known)
}

// Events returns what a watch delivers of the objects that are selected, in a namespace or in all
// if it is empty, for the step from one store to the next. See [Events]. An object that is no
// longer selected is deleted for the watch.
func (s Selection) Events(before, after Store, resource schema.GroupResource, namespace string) (events []Event) {
	for _, event := range Events(before, after, resource) {
		obj := event.Object
		if namespace != "" && namespace != obj.GetNamespace() {
			continue
		}
		was := before.Objects[Key{Resource: resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}]
		wasShown, isShown := was != nil && s.Has(was), event.Type != watch.Deleted && s.Has(obj)
		switch {
		case wasShown && isShown:
			events = append(events, Event{watch.Modified, obj})
		case wasShown:
			events = append(events, Event{watch.Deleted, obj})
		case isShown:
			events = append(events, Event{watch.Added, obj})
		}
	}
	return events
}

// listed returns an object as it is in a list. Built-in objects are without their kind.
func (c *call) listed(stored *unstructured.Unstructured) *unstructured.Unstructured {
	if c.kind.isCustom {
		return stored
	}
	content := maps.Clone(stored.Object)
	delete(content, "apiVersion")
	delete(content, "kind")
	return &unstructured.Unstructured{Object: content}
}
