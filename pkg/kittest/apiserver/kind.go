package apiserver

import (
	"encoding/hex"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// Kind is a resource and how the API server treats its objects.
type Kind struct {
	Resource          schema.GroupVersionResource
	Kind              string
	Namespaced        bool
	StatusSubresource bool

	strategy
}

// object is a typed object of client-go, or an Unstructured of a custom kind.
type object interface {
	runtime.Object
	metav1.Object
}

// strategy holds what differs between the kinds. The functions may be nil. Those that
// change an object get one that nobody else has.
type strategy struct {
	prefix string        // of keys in etcd, which some messages contain
	empty  func() object // a new object

	unconditionalUpdate bool // whether an update needs no resource version
	createOnUpdate      bool // whether an update creates an object that does not exist
	returnsDeleted      bool // whether the response to a deletion is the deleted object

	setDefaults func(object)
	admit       func(object) // what the admission plugins of a new cluster change in a new object

	prepareCreate        func(object, int64) // with the generation of new objects
	prepareUpdate        func(obj, old object)
	prepareStatusUpdate  func(obj, old object)
	validate             func(object) field.ErrorList
	validateUpdate       func(obj, old object) field.ErrorList
	validateStatusUpdate func(obj, old object) field.ErrorList
	canBeDeletedByUpdate func(object) bool
	gracePeriod          func(obj object, requested *int64) int64 // nil: no graceful deletion
	fields               func(object) fields.Set
	isCustom             bool
}

// CustomResource returns the namespaced kind of a CustomResourceDefinition that has the
// status subresource. validate returns what the schema and the rules of the definition find
// wrong with an object; old is nil for a new one. It may be nil. Use [Definition] if there
// are defaults, or fields that have to be dropped because the schema does not have them.
func CustomResource(resource schema.GroupVersionResource, name string, validate func(old, obj *unstructured.Unstructured) field.ErrorList) Kind {
	return custom(resource, name, customStrategy(false, validate))
}

// custom returns a custom kind with that strategy, which it completes.
func custom(resource schema.GroupVersionResource, name string, s strategy) Kind {
	s.prefix = "/registry/" + resource.Group + "/" + resource.Resource
	s.empty = func() object {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(resource.GroupVersion().WithKind(name))
		return obj
	}
	return Kind{Resource: resource, Kind: name, Namespaced: true, StatusSubresource: true, strategy: s}
}

func (k *Kind) gvk() schema.GroupVersionKind { return k.Resource.GroupVersion().WithKind(k.Kind) }

// serves reports whether there is such a subresource with the verb.
func (k *Kind) serves(subresource, verb string) bool {
	switch subresource {
	case "":
		return true
	case "status":
		return k.StatusSubresource && slices.Contains([]string{"get", "update", "patch"}, verb)
	default:
		return false
	}
}

// decode reads an object from the body of a request, and sets the defaults.
func (k *Kind) decode(body []byte) (object, error) {
	gvk := k.gvk()
	obj := k.empty()
	decoder := scheme.Codecs.UniversalDeserializer()
	if k.isCustom {
		decoder = unstructured.UnstructuredJSONScheme
	}
	decoded, is, err := decoder.Decode(body, &gvk, obj)
	if err != nil {
		return nil, k.badBody(is, body, err)
	}
	if decoded != runtime.Object(obj) || is.Kind != gvk.Kind {
		return nil, k.badBody(is, body, fmt.Errorf("it is a %s", is.Kind))
	}
	if is.GroupVersion() != gvk.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", is.GroupVersion(), gvk.GroupVersion()))
	}
	if err := k.normalize(obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

func (k *Kind) badBody(is *schema.GroupVersionKind, body []byte, err error) error {
	if is != nil && is.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", is.Kind, is.Version, k.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", k.Kind, err, summary(body)))
}

// summary returns the beginning of a body for a message.
func summary(body []byte) string {
	const most = 30
	text, ellipsis := body, ""
	if len(body) > most {
		text, ellipsis = body[:most], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(text) + ellipsis
	default:
		return hex.EncodeToString(text) + ellipsis
	}
}

// normalize sets defaults, and drops from the metadata of a custom object what ObjectMeta
// does not have.
func (k *Kind) normalize(obj object) error {
	if k.setDefaults != nil {
		k.setDefaults(obj)
	}
	custom, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	raw, _, err := unstructured.NestedMap(custom.Object, "metadata")
	if err != nil {
		return err
	}
	var meta metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &meta); err != nil {
		return err
	}
	clean, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if err != nil {
		return err
	}
	if clean["creationTimestamp"] == nil {
		delete(clean, "creationTimestamp")
	}
	custom.Object["metadata"] = clean
	return nil
}

// fromStore returns a copy of a stored object in the form in which it is processed.
func (k *Kind) fromStore(stored *unstructured.Unstructured) (object, error) {
	if k.isCustom {
		return stored.DeepCopy(), nil
	}
	obj := k.empty()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, obj)
	return obj, err
}

// toStore returns the form of an object that is stored and returned to clients.
func (k *Kind) toStore(obj object) (*unstructured.Unstructured, error) {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		return custom, nil
	}
	obj.GetObjectKind().SetGroupVersionKind(k.gvk())
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return &unstructured.Unstructured{Object: content}, err
}

// storageKey returns the key of an object in etcd.
func (k *Kind) storageKey(key Key) string {
	if key.Namespace == "" {
		return k.prefix + "/" + key.Name
	}
	return k.prefix + "/" + key.Namespace + "/" + key.Name
}
