package apiserver

import (
	"maps"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

func (c *call) list() (Response, error) {
	matches, err := c.selection()
	if err != nil {
		return Response{}, err
	}
	found := &unstructured.UnstructuredList{Object: map[string]any{}}
	found.SetAPIVersion(c.kind.Resource.GroupVersion().String())
	found.SetKind(c.kind.Kind.Kind + "List")
	found.SetResourceVersion(c.options.Version(c.store.Version))
	if c.kind.isCustom {
		found.Object["metadata"].(map[string]any)["continue"] = "" // which is left out for built-in kinds
	}
	for _, key := range c.store.keys(c.isListed) {
		if stored := c.store.Objects[key]; matches(stored) {
			found.Items = append(found.Items, *c.listed(stored))
		}
	}
	// What comes from the watch cache is not limited.
	if limit, err := strconv.Atoi(c.Query.Get("limit")); err == nil && limit > 0 && limit < len(found.Items) && c.Query.Get("resourceVersion") != "0" {
		return Response{}, notCovered("chunks of lists")
	}
	content := found.UnstructuredContent()
	if len(found.Items) == 0 {
		content["items"] = []any{}
	}
	return respond(http.StatusOK, content), nil
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

// isListed reports whether the object with that key is in the requested namespace, or there
// is no requested one.
func (c *call) isListed(key Key) bool {
	return key.Resource == c.key.Resource && (c.key.Namespace == "" || c.key.Namespace == key.Namespace)
}

// selection returns a function that reports whether an object is selected.
func (c *call) selection() (func(*unstructured.Unstructured) bool, error) {
	byLabels, err := labels.Parse(c.Query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byFields, err := fields.ParseSelector(c.Query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	known := c.kind.selectable(c.kind.empty())
	for _, required := range byFields.Requirements() {
		if !known.Has(required.Field) {
			return nil, c.kind.notSelectable(required.Field)
		}
	}
	return func(stored *unstructured.Unstructured) bool {
		if !byLabels.Matches(labels.Set(stored.GetLabels())) {
			return false
		}
		obj, err := c.kind.fromStore(stored)
		return err == nil && byFields.Matches(c.kind.selectable(obj))
	}, nil
}

// notSelectable returns the error for a field that objects cannot be selected by.
func (k *kind) notSelectable(name string) error {
	message := "field label not supported: " + name
	if k.fields == nil && !k.isCustom {
		if _, _, err := runtime.DefaultMetaV1FieldSelectorConversion(name, ""); err != nil {
			message = err.Error()
		}
	}
	return apierrors.NewBadRequest(message)
}

// selectable returns the fields that objects can be selected by.
func (k *kind) selectable(obj object) fields.Set {
	set := fields.Set{metav1.ObjectNameField: obj.GetName()}
	if k.Namespaced {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	if k.fields == nil {
		return set
	}
	maps.Copy(set, k.fields(obj))
	return set
}
