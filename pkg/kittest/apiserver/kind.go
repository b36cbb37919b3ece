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
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
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
	prefix    string                             // of keys in etcd, which some messages contain
	empty     func() object                      // a new object
	converter func() managedfields.TypeConverter // knows the schema

	unconditionalUpdate bool // whether an update needs no resource version
	createOnUpdate      bool // whether an update creates an object that does not exist
	returnsDeleted      bool // whether the response to a deletion is the deleted object

	resets, statusResets []fieldpath.Path // what an update, and one of the status, ignores

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
// status subresource. The converter knows the schema; generated code for apply
// configurations has one. validate returns what the schema and the rules of the definition
// find wrong with an object; old is nil for a new one. It may be nil. Use [Definition] if
// there are defaults, or fields that have to be dropped because the schema does not have
// them.
func CustomResource(resource schema.GroupVersionResource, name string, converter managedfields.TypeConverter, validate func(old, obj *unstructured.Unstructured) field.ErrorList) Kind {
	return custom(resource, name, converter, customStrategy(false, validate))
}

// custom returns a custom kind with that strategy, which it completes.
func custom(resource schema.GroupVersionResource, name string, converter managedfields.TypeConverter, s strategy) Kind {
	s.prefix = "/registry/" + resource.Group + "/" + resource.Resource
	s.converter = func() managedfields.TypeConverter { return converter }
	s.empty = func() object {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(resource.GroupVersion().WithKind(name))
		return obj
	}
	return Kind{Resource: resource, Kind: name, Namespaced: true, StatusSubresource: true, strategy: s}
}

// kind is a Kind with its field managers.
type kind struct {
	Kind
	managers map[string]*managedfields.FieldManager // by subresource
}

func newKind(k Kind) *kind {
	made := &kind{Kind: k, managers: map[string]*managedfields.FieldManager{}}
	made.managers[""] = made.newManager("", k.resets)
	if k.StatusSubresource {
		made.managers["status"] = made.newManager("status", k.statusResets)
	}
	return made
}

func (k *kind) newManager(subresource string, resets []fieldpath.Path) *managedfields.FieldManager {
	filters := fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(k.Resource.GroupVersion().String()): fieldpath.NewSet(resets...),
	})
	create := managedfields.NewDefaultFieldManager
	var convertor runtime.ObjectConvertor = scheme.Scheme
	if k.isCustom {
		create, convertor = managedfields.NewDefaultCRDFieldManager, sameVersion{}
	}
	manager, err := create(k.converter(), convertor, defaulter{k}, factory{k}, k.gvk(), k.Resource.GroupVersion(), subresource, filters)
	if err != nil {
		panic(err) // only for a nil converter
	}
	return manager
}

func (k *kind) gvk() schema.GroupVersionKind { return k.Resource.GroupVersion().WithKind(k.Kind.Kind) }

// serves reports whether there is such a subresource with the verb.
func (k *kind) serves(subresource, verb string) bool {
	switch subresource {
	case "":
		return true
	case "status":
		return k.StatusSubresource && slices.Contains([]string{"get", "update", "patch", "apply"}, verb)
	default:
		return false
	}
}

// decode reads an object from the body of a request, and sets the defaults.
func (k *kind) decode(body []byte) (object, error) {
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

func (k *kind) badBody(is *schema.GroupVersionKind, body []byte, err error) error {
	if is != nil && is.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", is.Kind, is.Version, k.Kind.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", k.Kind.Kind, err, summary(body)))
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
func (k *kind) normalize(obj object) error {
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
func (k *kind) fromStore(stored *unstructured.Unstructured) (object, error) {
	if k.isCustom {
		return stored.DeepCopy(), nil
	}
	obj := k.empty()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, obj)
	return obj, err
}

// toStore returns the form of an object that is stored and returned to clients.
func (k *kind) toStore(obj object) (*unstructured.Unstructured, error) {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		return custom, nil
	}
	obj.GetObjectKind().SetGroupVersionKind(k.gvk())
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return &unstructured.Unstructured{Object: content}, err
}

// storageKey returns the key of an object in etcd.
func (k *kind) storageKey(key Key) string {
	if key.Namespace == "" {
		return k.prefix + "/" + key.Name
	}
	return k.prefix + "/" + key.Namespace + "/" + key.Name
}

// The rest is what field managers need.

type defaulter struct{ k *kind }

func (d defaulter) Default(obj runtime.Object) {
	if obj, ok := obj.(object); ok && d.k.setDefaults != nil {
		d.k.setDefaults(obj)
	}
}

type factory struct{ k *kind }

func (f factory) New(schema.GroupVersionKind) (runtime.Object, error) { return f.k.empty(), nil }

// sameVersion converts the objects of a kind that has only one version.
type sameVersion struct{}

func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (sameVersion) Convert(_, _, _ any) error {
	return fmt.Errorf("there is nothing to convert between")
}

func (sameVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
