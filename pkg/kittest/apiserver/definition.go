package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapi "k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// definition is what the model reads of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// Definition returns the kind of a CustomResourceDefinition in YAML or JSON that is namespaced,
// has one version, and has the status subresource. Unlike a kind of [CustomResource], it has
// the defaults of the schema, and drops fields that are not in the schema. validate returns what
// the schema and its rules find wrong with an object; old is nil for a new one. It may be nil.
func Definition(manifest []byte, validate func(old, obj *unstructured.Unstructured) field.ErrorList) (Kind, error) {
	var d definition
	if err := readYAML(manifest, &d); err != nil {
		return Kind{}, fmt.Errorf("reading a CustomResourceDefinition: %w", err)
	}
	if len(d.Spec.Versions) != 1 {
		return Kind{}, fmt.Errorf("a CustomResourceDefinition has %d versions, want one", len(d.Spec.Versions))
	}
	version := d.Spec.Versions[0]
	resource := schema.GroupVersionResource{Group: d.Spec.Group, Version: version.Name, Resource: d.Spec.Names.Plural}
	structure := version.Schema.OpenAPIV3Schema
	converter, err := converterFor(resource.GroupVersion().WithKind(d.Spec.Names.Kind), structure)
	if err != nil {
		return Kind{}, fmt.Errorf("converting the schema of %s: %w", d.Spec.Names.Kind, err)
	}
	hasRules := bytes.Contains(manifest, []byte("x-kubernetes-validations"))
	k := custom(resource, d.Spec.Names.Kind, converter, customStrategy(hasRules, validate))
	k.setDefaults = func(obj object) {
		content := obj.(*unstructured.Unstructured).Object
		pruneRoot(content, structure)
		setSchemaDefaults(content, structure)
	}
	return k, nil
}

// readYAML decodes YAML as the API server decodes JSON, with integers as int64.
func readYAML(text []byte, into any) error {
	encoded, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(encoded, into)
}

// converterFor returns a type converter for a kind with that schema.
func converterFor(gvk schema.GroupVersionKind, structure map[string]any) (managedfields.TypeConverter, error) {
	whole := runtime.DeepCopyJSON(structure)
	properties, ok := whole["properties"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no properties")
	}
	text := map[string]any{"type": "string"}
	properties["apiVersion"], properties["kind"] = text, text
	var meta map[string]any
	if err := readYAML([]byte(objectMeta), &meta); err != nil {
		return nil, err
	}
	properties["metadata"] = meta
	whole["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}}
	encoded, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	model := &openapi.Schema{}
	if err := json.Unmarshal(encoded, model); err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(map[string]*openapi.Schema{gvk.Kind: model}, false)
}

// objectMeta is the schema of metav1.ObjectMeta as far as merging is concerned.
const objectMeta = `
type: object
properties:
  annotations: {type: object, additionalProperties: {type: string}}
  creationTimestamp: {type: string, format: date-time}
  deletionGracePeriodSeconds: {type: integer, format: int64}
  deletionTimestamp: {type: string, format: date-time}
  finalizers: {type: array, items: {type: string}, x-kubernetes-list-type: set, x-kubernetes-patch-strategy: merge}
  generateName: {type: string}
  generation: {type: integer, format: int64}
  labels: {type: object, additionalProperties: {type: string}}
  managedFields:
    type: array
    x-kubernetes-list-type: atomic
    items:
      type: object
      properties:
        apiVersion: {type: string}
        fieldsType: {type: string}
        fieldsV1: {type: object}
        manager: {type: string}
        operation: {type: string}
        subresource: {type: string}
        time: {type: string, format: date-time}
  name: {type: string}
  namespace: {type: string}
  ownerReferences:
    type: array
    x-kubernetes-list-type: map
    x-kubernetes-list-map-keys: [uid]
    items:
      type: object
      x-kubernetes-map-type: atomic
      required: [apiVersion, kind, name, uid]
      properties:
        apiVersion: {type: string}
        blockOwnerDeletion: {type: boolean}
        controller: {type: boolean}
        kind: {type: string}
        name: {type: string}
        uid: {type: string}
  resourceVersion: {type: string}
  selfLink: {type: string}
  uid: {type: string}
`

// pruneRoot drops fields that are not in the schema, which does not mention the metadata.
func pruneRoot(content, structure map[string]any) {
	for name, value := range content {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			pruneField(content, name, value, structure)
		}
	}
}

func pruneField(content map[string]any, name string, value any, structure map[string]any) {
	property, ok := propertyOf(structure, name)
	if !ok {
		delete(content, name)
		return
	}
	prune(value, property)
}

// prune drops fields of value that are not in its schema.
func prune(value any, structure map[string]any) {
	if preserves, _ := structure["x-kubernetes-preserve-unknown-fields"].(bool); preserves {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(value)) {
			pruneField(value, name, value[name], structure)
		}
	case []any:
		items, _ := structure["items"].(map[string]any)
		for _, item := range value {
			prune(item, items)
		}
	}
}

// propertyOf returns the schema of a field.
func propertyOf(structure map[string]any, name string) (property map[string]any, ok bool) {
	if properties, isObject := structure["properties"].(map[string]any); isObject {
		if property, ok = properties[name].(map[string]any); ok {
			return property, true
		}
	}
	property, ok = structure["additionalProperties"].(map[string]any)
	return property, ok
}

// setSchemaDefaults sets the fields that are missing or null to the defaults of the schema.
func setSchemaDefaults(value any, structure map[string]any) {
	switch value := value.(type) {
	case map[string]any:
		properties, _ := structure["properties"].(map[string]any)
		for name, property := range properties {
			fallback, hasDefault := property.(map[string]any)["default"]
			if current, isSet := value[name]; hasDefault && (!isSet || current == nil) {
				value[name] = runtime.DeepCopyJSONValue(fallback)
			}
		}
		for name, child := range value {
			if property, ok := propertyOf(structure, name); ok {
				setSchemaDefaults(child, property)
			}
		}
	case []any:
		items, _ := structure["items"].(map[string]any)
		for _, item := range value {
			setSchemaDefaults(item, items)
		}
	}
}
