package apply

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Child is an object that a controller writes for another. Without a UID it does not
// exist yet and is to be created; with one, Want is to be applied to that very object.
type Child struct {
	Resource schema.GroupVersionResource
	// Want has all fields that the controller wants to own, and no others. It has no
	// UID and no resourceVersion.
	Want Configuration

	// UID and ResourceVersion are those of the live object.
	UID             types.UID
	ResourceVersion string
	// Drift is in what the live object differs from Want.
	Drift []Difference
	// ManagedFields, unless nil, is what the live object's managedFields have to be
	// before an apply can drop the fields that Want no longer has.
	ManagedFields []metav1.ManagedFieldsEntry
}

// Configuration is an apply configuration of any kind, as client-go and its generators
// make them.
type Configuration interface {
	runtime.ApplyConfiguration
	GetName() *string
	GetNamespace() *string
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

// Convert copies a configuration into an object of its kind, to POST it for example.
func Convert(from Configuration, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("building an object: %w", err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("building an object: %w", err)
	}
	return nil
}

// Patch returns the body of the server-side apply of c. The UID in it makes the API
// server refuse the patch for any other object of the name.
func (c Child) Patch() ([]byte, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Want)
	if err != nil {
		return nil, fmt.Errorf("building a patch: %w", err)
	}
	if err := setUID(raw, c.UID); err != nil {
		return nil, err
	}
	return json.Marshal(raw)
}

func setUID(object map[string]any, uid types.UID) error {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("building a patch: the configuration has no metadata")
	}
	metadata["uid"] = string(uid)
	return nil
}

// ManagedFieldsPatch returns the JSON patch (RFC 6902) that sets c.ManagedFields. They
// were made from what the live object had, so the patch conflicts if that has changed.
func (c Child) ManagedFieldsPatch() ([]byte, error) {
	return json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": c.ManagedFields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": c.ResourceVersion},
	})
}
