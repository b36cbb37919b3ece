package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func (s *Source) create(w http.ResponseWriter, r *request) error {
	obj, err := decode(r.Request, r.kind)
	if err != nil {
		return err
	}
	obj.SetNamespace(r.name.Namespace)
	r.name = cache.MetaObjectToName(obj)
	s.mu.Lock()
	if _, err := s.get(r.collection, r.name); err == nil {
		s.mu.Unlock()
		return apierrors.NewAlreadyExists(r.resource.GroupResource(), r.name.Name)
	}
	obj.SetUID(uuid.NewUUID())
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.Now())
	s.store(r.collection, watch.Added, obj)
	s.mu.Unlock()
	r.code = http.StatusCreated
	return s.respond(w, r, obj)
}

func (s *Source) update(w http.ResponseWriter, r *request) error {
	obj, err := decode(r.Request, r.kind)
	if err != nil {
		return err
	}
	return s.replace(w, r, func(object) (object, error) { return obj, nil })
}

// patch carries out an apply or a strategic merge patch.
func (s *Source) patch(w http.ResponseWriter, r *request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	of, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	switch types.PatchType(of) { //nolint:exhaustive // clients here send no others
	case types.ApplyYAMLPatchType:
		return s.replace(w, r, func(current object) (object, error) { return applied(r, current, body) })
	case types.StrategicMergePatchType:
		return s.replace(w, r, func(current object) (object, error) { return merged(current, body) })
	}
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", r.resource.GroupResource(), r.name.Name, of, 0, false)
}

// applied returns what an apply makes of an object.
func applied(r *request, current object, body []byte) (object, error) {
	var patch unstructured.Unstructured
	if err := json.Unmarshal(body, &patch.Object); err != nil {
		return nil, fmt.Errorf("an apply has to be JSON here: %w", err)
	}
	manager, err := fieldManagerOf(r.kind, r.subresource)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	made, err := manager.Apply(current.DeepCopyObject(), &patch, query.Get("fieldManager"), query.Get("force") == "true")
	if err != nil {
		return nil, err
	}
	obj := made.(object)
	// As in any update, these are preconditions if they are given.
	obj.SetResourceVersion(patch.GetResourceVersion())
	obj.SetUID(patch.GetUID())
	obj.GetObjectKind().SetGroupVersionKind(r.kind)
	return obj, nil
}

// merged returns what a strategic merge patch makes of an object.
func merged(current object, patch []byte) (object, error) {
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, current)
	if err != nil {
		return nil, err
	}
	obj := current.DeepCopyObject().(object)
	field(obj, "ObjectMeta").SetZero()
	for _, name := range []string{"Spec", "Status"} {
		if f := field(obj, name); f.IsValid() {
			f.SetZero()
		}
	}
	return obj, json.Unmarshal(after, obj)
}

// replace stores what change returns in place of an object, under the rules of an update:
// preconditions, what belongs to the API server, and either the status or all but it.
func (s *Source) replace(w http.ResponseWriter, r *request, change func(current object) (object, error)) error {
	stored, err := s.replaceStored(r, change)
	if err != nil {
		return err
	}
	return s.respond(w, r, stored)
}

func (s *Source) replaceStored(r *request, change func(current object) (object, error)) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current, err := s.get(r.collection, r.name)
	if err != nil {
		return nil, err
	}
	changed, err := change(current)
	if err != nil {
		return nil, err
	}
	if version := changed.GetResourceVersion(); version != "" && version != current.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.resource.GroupResource(), r.name.Name, errors.New("the object has been modified"))
	}
	if uid := changed.GetUID(); uid != "" && uid != current.GetUID() {
		return nil, apierrors.NewConflict(r.resource.GroupResource(), r.name.Name, errors.New("the UID in the precondition does not match"))
	}
	stored := current.DeepCopyObject().(object)
	status := field(stored, "Status")
	switch {
	case r.subresource == "status" && status.IsValid():
		status.Set(field(changed, "Status"))
	case r.subresource == "":
		stored = changed.DeepCopyObject().(object)
		if status := field(stored, "Status"); status.IsValid() {
			status.Set(field(current, "Status"))
		}
		keepServersFields(stored, current)
		if !equality.Semantic.DeepEqual(field(stored, "Spec").Interface(), field(current, "Spec").Interface()) {
			stored.SetGeneration(current.GetGeneration() + 1)
		}
	default:
		return nil, notFound(r.collection, r.name.Name)
	}
	if equality.Semantic.DeepEqual(stored, current) {
		return current, nil
	}
	s.store(r.collection, watch.Modified, stored)
	return stored, nil
}

// keepServersFields restores the metadata that clients cannot change.
func keepServersFields(obj, current object) {
	obj.SetNamespace(current.GetNamespace())
	obj.SetUID(current.GetUID())
	obj.SetResourceVersion(current.GetResourceVersion())
	obj.SetGeneration(current.GetGeneration())
	obj.SetCreationTimestamp(current.GetCreationTimestamp())
	if obj.GetManagedFields() == nil {
		obj.SetManagedFields(current.GetManagedFields())
	}
}

// respond responds with an object that was written.
func (s *Source) respond(w http.ResponseWriter, r *request, obj object) error {
	f := negotiate(r.Request, r.kind)
	return ignoreClosed(f.respond(w, r.code, f.view(obj)))
}
