package simulation

import (
	"cmp"
	"maps"
	"math/rand" //nolint:gosec,depguard // what client-go uses
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

func seedGlobal(seed int64) { rand.Seed(seed) } //nolint:staticcheck // It is client-go that uses it.

// kinds are those that a world can contain.
var kinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "Node"},
	{Version: "v1", Kind: "Namespace"},
	{Version: "v1", Kind: "Event"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Group: "controller.nicoleh.io", Version: "v1alpha1", Kind: "Icecream"},
}

// kindOf is the kind of each resource.
var kindOf = func() map[string]string {
	names := map[string]string{}
	for _, gvk := range kinds {
		names[strings.ToLower(gvk.Kind)+"s"] = gvk.Kind
	}
	return names
}()

func (h *History) kindNamed(kind string) schema.GroupVersionKind {
	i := slices.IndexFunc(kinds, func(gvk schema.GroupVersionKind) bool { return gvk.Kind == kind })
	return kinds[i]
}

// resources returns the resources that watches can be about.
func (h *History) resources() []schema.GroupResource {
	var all []schema.GroupResource
	for _, w := range h.watches {
		if !slices.Contains(all, w.key.Resource) {
			all = append(all, w.key.Resource)
		}
	}
	return all
}

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// sortedObjects returns the keys of all objects, in order.
func sortedObjects(store apiserver.Store) []apiserver.Key {
	return slices.SortedFunc(maps.Keys(store.Objects), func(a, b apiserver.Key) int {
		return cmp.Or(strings.Compare(a.Resource.Resource, b.Resource.Resource), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

func splitPath(field string) []string { return strings.Split(field, ".") }

// object is a pointer to a typed object.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// typedOf returns a stored object as a typed one, which must not be changed.
func typedOf[T any, P object[T]](h *History, stored *unstructured.Unstructured) P {
	if stored == nil {
		return nil
	}
	if known, ok := h.typed[stored]; ok {
		return known.(P)
	}
	obj := P(new(T))
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, obj); err != nil {
		h.Fail("simulation", "reading %s: %v", stored.GetName(), err)
	}
	h.typed[stored] = obj
	return obj
}

// all returns the objects of a resource in a store, sorted, which must not be changed.
func all[T any, P object[T]](h *History, store apiserver.Store, resource string) []P {
	var keys []apiserver.Key
	for key := range store.Objects {
		if key.Resource.Resource == resource {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b apiserver.Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	objects := make([]P, len(keys))
	for i, key := range keys {
		objects[i] = typedOf[T, P](h, store.Objects[key])
	}
	return objects
}

// put stores a typed object as it is.
func (h *History) put(obj runtime.Object) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		h.Fail("simulation", "%v", err)
		return
	}
	after, err := h.Server.Put(h.store, time.Now(), &unstructured.Unstructured{Object: content})
	if err != nil {
		h.Fail("simulation", "%v", err)
		return
	}
	h.commit(after)
}

// create stores a typed object as a POST does, with defaults.
func (h *History) create(obj runtime.Object) {
	after, err := h.Server.Create(h.store, time.Now(), "somebody", obj)
	if err != nil {
		h.Note("not created: %v", err)
		return
	}
	h.commit(after)
}

// remove deletes an object, as a DELETE does.
func (h *History) remove(key apiserver.Key, policy metav1.DeletionPropagation) {
	after, err := h.Server.Delete(h.store, time.Now(), key, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err == nil {
		h.commit(after)
	}
}

// removeNow deletes an object at once.
func (h *History) removeNow(key apiserver.Key) {
	after, err := h.Server.Delete(h.store, time.Now(), key, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err == nil {
		h.commit(after)
	}
}

// controlledBy reports whether the controller of an object has a UID.
func controlledBy(obj metav1.Object, uid types.UID) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.UID == uid
}
