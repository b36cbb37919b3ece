package apiserver

import (
	"maps"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (c *call) list() (Response, error) {
	byLabels, err := labels.Parse(c.Query.Get("labelSelector"))
	if err != nil {
		return Response{}, apierrors.NewBadRequest(err.Error())
	}
	byFields, err := fields.ParseSelector(c.Query.Get("fieldSelector"))
	if err != nil {
		return Response{}, apierrors.NewBadRequest(err.Error())
	}
	found := &unstructured.UnstructuredList{Object: map[string]any{}}
	found.SetAPIVersion(c.kind.Resource.GroupVersion().String())
	found.SetKind(c.kind.Kind + "List")
	found.SetResourceVersion(c.options.Version(c.store.Version))
	for _, key := range c.store.keys(c.isListed) {
		stored := c.store.Objects[key]
		if byLabels.Matches(labels.Set(stored.GetLabels())) && byFields.Matches(selected(stored, byFields)) {
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

// selected returns the fields of an object that a selector is about, all of which have to be
// strings.
func selected(stored *unstructured.Unstructured, selector fields.Selector) fields.Set {
	known := fields.Set{}
	for _, required := range selector.Requirements() {
		known[required.Field], _, _ = unstructured.NestedString(stored.Object, strings.Split(required.Field, ".")...)
	}
	return known
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
