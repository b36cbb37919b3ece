package simulation

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Namespace is where workloads are.
const Namespace = "parlor"

// NamespaceKey is the key of that namespace itself.
var NamespaceKey = apiserver.Key{Resource: schema.GroupResource{Resource: "namespaces"}, Name: Namespace}

// KeyOf returns the key of an object in that namespace.
func KeyOf(group, resource, name string) apiserver.Key {
	return apiserver.Key{Resource: schema.GroupResource{Group: group, Resource: resource}, Namespace: Namespace, Name: name}
}

// Pick draws one; the zero value if there is none.
func Pick[T any](draw *rand.Rand, of []T) (picked T) {
	if len(of) > 0 {
		picked = of[draw.IntN(len(of))]
	}
	return picked
}

// object is a pointer to a typed object.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// kindNamed returns a kind by its name, which is also the name of its Go type.
func (h *History) kindNamed(name string) apiserver.Kind {
	i := slices.IndexFunc(h.Kinds, func(k apiserver.Kind) bool { return k.Kind == name })
	return h.Kinds[i]
}

// Get returns the object of a key in a store, which must not be changed. It returns nil if
// there is none, or if the key is of another kind.
func Get[T any, P object[T]](h *History, store apiserver.Store, key apiserver.Key) P {
	stored := store.Objects[key]
	if stored == nil || stored.GetKind() != reflect.TypeFor[T]().Name() {
		return nil
	}
	if known, ok := h.typed[stored]; ok {
		return known.(P)
	}
	obj := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, obj); err != nil {
		h.Fail("simulation", "reading %s: %v", Describe(key), err)
	}
	h.typed[stored] = obj
	return obj
}

// All returns the objects of a kind in a store, sorted, which must not be changed.
func All[T any, P object[T]](h *History, store apiserver.Store) []P {
	resource := h.kindNamed(reflect.TypeFor[T]().Name()).Resource.GroupResource()
	var objects []P
	for key := range store.Objects {
		if key.Resource == resource {
			objects = append(objects, Get[T, P](h, store, key))
		}
	}
	slices.SortFunc(objects, func(a, b P) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// Put stores a typed object as it is.
func (h *History) Put(obj runtime.Object) {
	h.store(h.server.Put(h.Store, time.Now(), obj))
}

// Create stores a typed object as a POST does, with defaults, unless the API server refuses it.
func (h *History) Create(obj runtime.Object) {
	h.store(h.server.Create(h.Store, time.Now(), obj))
}

func (h *History) store(after apiserver.Store, err error) {
	switch {
	case err == nil:
		h.commit(after)
	case apierrors.IsAlreadyExists(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		h.Note("not stored: %v", err)
	default:
		h.Fail("simulation", "%v", err)
	}
}

// Delete deletes an object, as a DELETE does.
func (h *History) Delete(key apiserver.Key, policy metav1.DeletionPropagation) {
	h.delete(key, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// DeleteNow deletes an object without a grace period.
func (h *History) DeleteNow(key apiserver.Key) {
	h.delete(key, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func (h *History) delete(key apiserver.Key, options metav1.DeleteOptions) {
	if after, err := h.server.Delete(h.Store, time.Now(), key, options); err == nil {
		h.commit(after)
	}
}

// Collect lets the garbage collector and the namespace controller do everything that there is
// to do.
func (h *History) Collect() {
	for range 100 {
		after, did, ok := h.server.Collect(h.Store, time.Now())
		if !ok {
			return
		}
		h.Note("garbage collector: %s", did)
		h.commit(after)
	}
}
