package apiserver

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CustomResource returns the namespaced kind of a CustomResourceDefinition that has the status
// subresource. The model does not know its schema, so it sets no defaults, validates nothing but
// that these fields of the spec do not change, and only [Server.Put] creates objects. An absent
// field is the same as one with the name of the object.
func CustomResource(resource schema.GroupVersionResource, name string, immutable ...string) Kind {
	return Kind{Resource: resource, Kind: name, strategy: strategy{
		Namespaced: true,
		empty: func() Object {
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(resource.GroupVersion().WithKind(name))
			return obj
		},
		isCustom:      true,
		isPut:         true,
		prepareUpdate: prepareCustomUpdate,
		validate: func(obj, old Object) (errs field.ErrorList) {
			for _, name := range immutable {
				if old != nil && specField(obj, name) != specField(old, name) {
					errs = append(errs, field.Invalid(field.NewPath("spec", name), nil, "cannot be changed"))
				}
			}
			return errs
		},
	}}
}

// specField returns the text in a field of the spec, or else the name of the object.
func specField(obj Object, name string) string {
	text, found, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", name)
	if !found {
		return obj.GetName()
	}
	return text
}

func prepareCustomUpdate(obj, old Object) {
	is, was := obj.(*unstructured.Unstructured).Object, old.(*unstructured.Unstructured).Object
	setStatus(is, was)
	if !equality.Semantic.DeepEqual(withoutMetadata(is), withoutMetadata(was)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// prepareStatusUpdate resets everything but the status.
func prepareStatusUpdate(obj, old Object) {
	is := obj.(*unstructured.Unstructured)
	sent := is.Object
	is.Object = old.(*unstructured.Unstructured).DeepCopy().Object
	setStatus(is.Object, sent)
}

// setStatus copies the status from another object, or removes it if that has none.
func setStatus(content, from map[string]any) {
	delete(content, "status")
	if status, ok := from["status"]; ok {
		content["status"] = status
	}
}

func withoutMetadata(content map[string]any) map[string]any {
	rest := maps.Clone(content)
	delete(rest, "metadata")
	return rest
}
