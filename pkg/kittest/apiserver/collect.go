package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Collect takes one step of the garbage collector, the first that is possible in the order of
// the objects' keys. It deletes a dependent whose owners are gone or are being deleted in the
// foreground, removes references to owners that are gone, orphans a dependent, or removes the
// finalizer of an owner that has no dependents to wait for. It also empties namespaces that
// are being deleted, and then removes them. It returns the store after the step and says what
// it did; ok is false if there is nothing to do. The model assumes that an owner exists if it
// does not have the owner's kind.
func (s *Server) Collect(store Store, now time.Time) (after Store, did string, ok bool) {
	for _, key := range store.Keys(func(Key) bool { return true }) {
		for _, step := range []func(Store, time.Time, Key) (Store, string, bool){s.collectDependent, s.finishOwner, s.finishNamespace} {
			if after, did, ok := step(store, now, key); ok {
				return after, did, true
			}
		}
	}
	return store, "", false
}

// owners sorts the owner references of an object.
type owners struct {
	solid, dangling, waiting []metav1.OwnerReference
}

// collectDependent deletes an object without owners, or removes its references to those that
// are gone.
func (s *Server) collectDependent(store Store, now time.Time, key Key) (Store, string, bool) {
	obj := store.Objects[key]
	if obj.GetDeletionTimestamp() != nil && !isForeground(obj) {
		return store, "", false
	}
	o := s.ownersOf(store, key, obj)
	switch {
	case len(o.dangling)+len(o.waiting) == 0:
		return store, "", false
	case len(o.solid) > 0:
		gone := slices.Concat(o.dangling, o.waiting)
		return s.removeOwners(store, now, key, fmt.Sprintf("%s lost owners that are gone", key), gone)
	case obj.GetDeletionTimestamp() != nil:
		return store, "", false
	}
	options := metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: ptr.To(obj.GetUID()), ResourceVersion: ptr.To(obj.GetResourceVersion())},
		PropagationPolicy: ptr.To(s.propagation(store, key, obj, o)),
	}
	if len(o.waiting) > 0 {
		options.Preconditions.ResourceVersion = nil
	}
	after, err := s.Delete(store, now, key, options)
	if err != nil || after.Version == store.Version {
		return store, "", false
	}
	return after, fmt.Sprintf("%s was deleted because its owners are", key), true
}

// propagation returns how the dependents of a dependent are deleted.
func (s *Server) propagation(store Store, key Key, obj *unstructured.Unstructured, o owners) metav1.DeletionPropagation {
	switch {
	case len(o.waiting) > 0 && len(s.dependents(store, key, obj.GetUID())) > 0:
		return metav1.DeletePropagationForeground
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case isForeground(obj):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

func (s *Server) ownersOf(store Store, key Key, obj *unstructured.Unstructured) (o owners) {
	for _, reference := range obj.GetOwnerReferences() {
		owner, isKnown := s.owner(store, key.Namespace, reference)
		switch {
		case !isKnown:
			o.solid = append(o.solid, reference)
		case owner == nil:
			o.dangling = append(o.dangling, reference)
		case owner.GetDeletionTimestamp() != nil && isForeground(owner):
			o.waiting = append(o.waiting, reference)
		default:
			o.solid = append(o.solid, reference)
		}
	}
	return o
}

// owner returns the object of an owner reference, or nil if it is gone. isKnown is false if
// the server does not have the kind.
func (s *Server) owner(store Store, namespace string, reference metav1.OwnerReference) (owner *unstructured.Unstructured, isKnown bool) {
	gvk := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind)
	for _, k := range s.kinds {
		if k.gvk() != gvk {
			continue
		}
		key := Key{Resource: k.Resource.GroupResource(), Name: reference.Name}
		if k.Namespaced {
			key.Namespace = namespace
		}
		if owner := store.Objects[key]; owner != nil && owner.GetUID() == reference.UID {
			return owner, true
		}
		return nil, true
	}
	return nil, false
}

// dependents returns the keys of the objects that have the one with that UID as an owner.
func (s *Server) dependents(store Store, key Key, uid types.UID) []Key {
	return store.Keys(func(other Key) bool {
		isNear := key.Namespace == "" || key.Namespace == other.Namespace
		return isNear && slices.ContainsFunc(store.Objects[other].GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == uid })
	})
}

// finishOwner orphans a dependent, or removes the finalizer of an owner that need not wait for
// its dependents.
func (s *Server) finishOwner(store Store, now time.Time, key Key) (Store, string, bool) {
	obj := store.Objects[key]
	if obj.GetDeletionTimestamp() == nil {
		return store, "", false
	}
	dependents := s.dependents(store, key, obj.GetUID())
	switch {
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
		if len(dependents) > 0 {
			own := metav1.OwnerReference{UID: obj.GetUID()}
			return s.removeOwners(store, now, dependents[0], fmt.Sprintf("%s was orphaned", dependents[0]), []metav1.OwnerReference{own})
		}
		return s.removeFinalizer(store, now, key, metav1.FinalizerOrphanDependents)
	case isForeground(obj) && !slices.ContainsFunc(dependents, func(dependent Key) bool { return blocks(store.Objects[dependent], obj.GetUID()) }):
		return s.removeFinalizer(store, now, key, metav1.FinalizerDeleteDependents)
	default:
		return store, "", false
	}
}

// blocks reports whether the owner has to wait for the deletion of a dependent.
func blocks(dependent *unstructured.Unstructured, owner types.UID) bool {
	return slices.ContainsFunc(dependent.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.UID == owner && ptr.Deref(o.BlockOwnerDeletion, false)
	})
}

func isForeground(obj *unstructured.Unstructured) bool {
	return slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// removeOwners removes the owner references with the UIDs of those.
func (s *Server) removeOwners(store Store, now time.Time, key Key, did string, gone []metav1.OwnerReference) (Store, string, bool) {
	left := slices.DeleteFunc(store.Objects[key].GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(gone, func(g metav1.OwnerReference) bool { return g.UID == o.UID })
	})
	return s.patchMetadata(store, now, key, did, map[string]any{"ownerReferences": left})
}

func (s *Server) removeFinalizer(store Store, now time.Time, key Key, finalizer string) (Store, string, bool) {
	left := slices.DeleteFunc(store.Objects[key].GetFinalizers(), func(f string) bool { return f == finalizer })
	return s.patchMetadata(store, now, key, fmt.Sprintf("%s lost its finalizer %s", key, finalizer), map[string]any{"finalizers": left})
}

// patchMetadata merges a patch into the metadata of an object of which nothing has changed.
func (s *Server) patchMetadata(store Store, now time.Time, key Key, did string, patch map[string]any) (Store, string, bool) {
	k, err := s.kindFor(key)
	if err != nil {
		return store, "", false
	}
	patch["uid"], patch["resourceVersion"] = store.Objects[key].GetUID(), store.Objects[key].GetResourceVersion()
	request := Request{Method: http.MethodPatch, Path: k.path(key.Namespace, key.Name), ContentType: string(types.MergePatchType)}
	after, err := s.send(store, now, request, map[string]any{"metadata": patch})
	return after, did, err == nil && after.Version != store.Version
}

// finishNamespace deletes an object of a namespace that is being deleted, or the namespace if
// it is empty.
func (s *Server) finishNamespace(store Store, now time.Time, key Key) (Store, string, bool) {
	namespace := store.Objects[key]
	if key.Resource != (schema.GroupResource{Resource: "namespaces"}) || namespace.GetDeletionTimestamp() == nil {
		return store, "", false
	}
	content := store.Keys(func(other Key) bool { return other.Namespace == key.Name })
	for _, inside := range content {
		after, err := s.Delete(store, now, inside, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err == nil && after.Version != store.Version {
			return after, fmt.Sprintf("%s was deleted with its namespace", inside), true
		}
	}
	if len(content)+len(namespace.GetFinalizers()) > 0 {
		return store, "", false
	}
	after := store
	after.last = nil
	after, _ = s.without(after, key)
	return after, fmt.Sprintf("%s was removed because it is empty", key), true
}
