package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// Kind is a resource and how the API server treats its objects.
type Kind struct {
	Resource schema.GroupVersionResource
	Kind     string

	strategy
}

// Object is a typed object of client-go, or an Unstructured of a custom kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// strategy holds what differs between the kinds. All functions but empty may be nil. Those
// that change an object get one that nobody else has.
type strategy struct {
	empty func() Object // a new object

	Namespaced          bool
	isCustom            bool // with a status subresource
	isNamespace         bool // whether Collect completes deletions
	isPut               bool // whether only Put stores new objects
	unconditionalUpdate bool // whether an update needs no resource version
	createOnUpdate      bool // whether the API server creates an object that an update does not find
	returnsDeleted      bool // whether the response to a deletion is the deleted object

	fields func() *managedfields.FieldManager // nil: the model does not track who manages a field

	setDefaults   func(Object)
	prepareCreate func(Object)
	prepareUpdate func(obj, old Object)
	validate      func(obj, old Object) field.ErrorList             // beyond the metadata; old is nil for a new object
	gracePeriod   func(obj Object, requested *int64) int64          // nil: no graceful deletion
	validateName  func(name string, isPrefix bool) (wrong []string) // nil: it has to be a DNS subdomain
}

func (k *Kind) gvk() schema.GroupVersionKind { return k.Resource.GroupVersion().WithKind(k.Kind) }

func (k *Kind) keyOf(obj Object) Key {
	return Key{Resource: k.Resource.GroupResource(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// decode reads an object from the body of a request, and sets the defaults.
func (k *Kind) decode(body []byte) (Object, error) {
	gvk, obj := k.gvk(), k.empty()
	decoder := scheme.Codecs.UniversalDeserializer()
	if k.isCustom {
		decoder = unstructured.UnstructuredJSONScheme
	}
	decoded, is, err := decoder.Decode(body, &gvk, obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if decoded != runtime.Object(obj) || *is != gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %s, not a %s", is, gvk))
	}
	if err := k.normalize(obj); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

// normalize sets defaults, and drops from the metadata of a custom object what is empty.
func (k *Kind) normalize(obj Object) error {
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
	custom.Object["metadata"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	return err
}

// fromStore returns a copy of a stored object in the form in which it is processed.
func (k *Kind) fromStore(stored *unstructured.Unstructured) (Object, error) {
	if k.isCustom {
		return stored.DeepCopy(), nil
	}
	obj := k.empty()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, obj)
	return obj, err
}

// toStore returns the form of an object that is stored and returned to clients.
func (k *Kind) toStore(obj Object) (*unstructured.Unstructured, error) {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		return custom, nil
	}
	obj.GetObjectKind().SetGroupVersionKind(k.gvk())
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return &unstructured.Unstructured{Object: content}, err
}
