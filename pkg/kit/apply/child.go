package apply

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Child is an object that a controller writes for another. Without a UID it does not
// exist yet and is to be created; with one, Want is to be applied to that very object.
type Child struct {
	Resource schema.GroupVersionResource
	// Want is the object with all fields that the controller wants to own, and no others. A
	// field is in it unless it is nil, an empty list or map, or has the zero value of its
	// type where its JSON tag has omitempty or omitzero: the API server stores no such
	// value either. Nor does it have a UID, a resourceVersion, or an apiVersion and kind.
	Want metav1.Object

	// UID and ResourceVersion are those of the live object.
	UID             types.UID
	ResourceVersion string
	// Drift is in what the live object differs from Want.
	Drift []Difference
	// ManagedFields, unless nil, is what the live object's managedFields have to be
	// before an apply can drop the fields that Want no longer has.
	ManagedFields []metav1.ManagedFieldsEntry
}

// Deletion is an object to delete, provided that it is still the one that was seen: it
// may have been replaced or taken over since.
type Deletion struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// Delete returns the deletion of obj as it is.
func Delete(resource schema.GroupVersionResource, obj metav1.Object) Deletion {
	return Deletion{
		Resource:        resource,
		Namespace:       obj.GetNamespace(),
		Name:            obj.GetName(),
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}
}

// Patch returns the body of the server-side apply of c. The UID in it makes the API
// server refuse the patch for any other object of the name.
func (c Child) Patch() ([]byte, error) {
	fields, err := contentOf(c.Want)
	if err != nil {
		return nil, fmt.Errorf("building a patch: %w", err)
	}
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("building a patch: the object has no metadata")
	}
	metadata["uid"] = string(c.UID)
	fields["apiVersion"], fields["kind"] = c.Resource.GroupVersion().String(), kindOf(c.Want)
	return json.Marshal(fields)
}

// kindOf returns the kind of a typed object: by convention the name of its type.
func kindOf(obj metav1.Object) string {
	return reflect.TypeOf(obj).Elem().Name()
}

// ManagedFieldsPatch returns the JSON patch (RFC 6902) that sets c.ManagedFields. They
// were made from what the live object had, so the patch conflicts if that has changed.
func (c Child) ManagedFieldsPatch() ([]byte, error) {
	return json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": c.ManagedFields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": c.ResourceVersion},
	})
}
