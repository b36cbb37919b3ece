package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func (c *call) create() (Response, error) {
	if c.kind.isPut {
		return Response{}, notCovered("the creation of a " + c.kind.Kind)
	}
	obj, err := c.kind.decode(c.Body)
	if err != nil {
		return Response{}, err
	}
	if err := c.placeInNamespace(obj); err != nil {
		return Response{}, err
	}
	wipe(obj)
	c.track(obj, c.kind.empty())
	return c.add(obj)
}

// wipe removes what a request cannot set in a new object.
func wipe(obj Object) {
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
}

// add stores a new object.
func (c *call) add(obj Object) (Response, error) {
	if err := c.requireNamespace(obj); err != nil {
		return Response{}, err
	}
	c.mutate(obj, nil)
	wipe(obj)
	c.store.uids++
	obj.SetUID(types.UID(c.options.UID(c.store.uids)))
	obj.SetCreationTimestamp(c.now)
	if c.kind.prepareCreate != nil {
		c.kind.prepareCreate(obj)
	}
	if errs := c.validate(obj, nil); len(errs) > 0 {
		return Response{}, c.invalid(obj, errs)
	}
	if err := c.admit(obj, nil); err != nil {
		return Response{}, err
	}
	isDryRun, sent := c.Query.Has("dryRun"), obj.GetResourceVersion()
	if sent != "" && !isDryRun {
		return Response{}, errors.New("resourceVersion should not be set on objects to be created")
	}
	key := Key{Resource: c.key.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if c.store.Objects[key] != nil {
		return Response{}, apierrors.NewAlreadyExists(key.Resource, key.Name)
	}
	made, err := c.put(key, obj)
	if err != nil {
		return Response{}, err
	}
	if isDryRun {
		made.SetResourceVersion(sent)
	}
	return respond(http.StatusCreated, made), nil
}

// validate returns what is wrong with an object. old is nil for a new one.
func (c *call) validate(obj, old Object) field.ErrorList {
	metadata, validateName := field.NewPath("metadata"), c.kind.validateName
	if validateName == nil {
		validateName = apivalidation.NameIsDNSSubdomain
	}
	errs := apivalidation.ValidateObjectMetaAccessor(obj, c.kind.Namespaced, validateName, metadata)
	if old != nil {
		errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, metadata)...)
	}
	if c.kind.validate != nil {
		errs = append(errs, c.kind.validate(obj, old)...)
	}
	return errs
}

func (c *call) invalid(obj Object, errs field.ErrorList) error {
	return apierrors.NewInvalid(c.kind.gvk().GroupKind(), obj.GetName(), errs)
}

func (c *call) update() (Response, error) {
	sent, err := c.kind.decode(c.Body)
	if err != nil {
		return Response{}, err
	}
	if err := c.checkPlace(sent); err != nil {
		return Response{}, err
	}
	return c.save(sent.GetUID(), func(old Object) (Object, error) {
		c.track(sent, old)
		return sent, nil
	})
}

// save stores what change makes of the stored object. If uid is not empty, the stored object must
// have it.
func (c *call) save(uid types.UID, change func(old Object) (Object, error)) (Response, error) {
	stored := c.store.Objects[c.key]
	if stored == nil && c.verb == "update" && c.kind.createOnUpdate {
		return Response{}, notCovered("the creation of a " + c.kind.Kind + " by an update")
	}
	if stored == nil {
		return Response{}, c.notFound()
	}
	old, err := c.kind.fromStore(stored)
	if err != nil {
		return Response{}, err
	}
	if uid != "" && uid != old.GetUID() {
		return Response{}, c.conflict(fmt.Errorf("the precondition has the UID %s, the object %s", uid, old.GetUID()))
	}
	obj, err := change(old)
	if err != nil {
		return Response{}, err
	}
	c.mutate(obj, old)
	if err := c.checkVersion(obj, old); err != nil {
		return Response{}, err
	}
	c.beforeUpdate(obj, old)
	if errs := c.validate(obj, old); len(errs) > 0 {
		return Response{}, c.invalid(obj, errs)
	}
	if err := c.admit(obj, old); err != nil {
		return Response{}, err
	}
	return c.replace(obj, old)
}

// mutate lets webhooks change an object. old is nil for a new one.
func (c *call) mutate(obj, old Object) {
	if c.options.Mutate != nil {
		c.options.Mutate(c.admission(obj, old))
	}
}

// admit returns the error with which a policy refuses an object, if one does.
func (c *call) admit(obj, old Object) error {
	if c.options.Admit == nil {
		return nil
	}
	return c.options.Admit(c.admission(obj, old))
}

func (c *call) admission(obj, old Object) Admission {
	key, verb := c.key, c.verb
	key.Name = obj.GetName() // which the path of a creation does not have
	if old == nil {
		verb = "create" // also by an apply
	}
	return Admission{Verb: verb, Key: key, Subresource: c.subresource, Object: obj, Old: old}
}

// checkVersion returns an error unless obj was made from the stored version of the object,
// or needs no version.
func (c *call) checkVersion(obj, old Object) error {
	version := obj.GetResourceVersion()
	switch {
	case version != "" && version != "0" && version != old.GetResourceVersion():
		return c.conflict(errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	case version != "" && version != "0":
	case c.kind.unconditionalUpdate:
		obj.SetResourceVersion(old.GetResourceVersion())
	default:
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")}
		return apierrors.NewInvalid(schema.GroupKind{Group: c.key.Resource.Group, Kind: c.key.Resource.Resource}, c.key.Name, errs)
	}
	return nil
}

// beforeUpdate resets what the request cannot change.
func (c *call) beforeUpdate(obj, old Object) {
	obj.SetGeneration(old.GetGeneration())
	if c.subresource == "status" {
		prepareStatusUpdate(obj, old)
	} else if c.kind.prepareUpdate != nil {
		c.kind.prepareUpdate(obj, old)
	}
	if obj.GetUID() == "" {
		obj.SetUID(old.GetUID())
	}
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if old.GetDeletionTimestamp() != nil {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	}
	if old.GetDeletionGracePeriodSeconds() != nil && obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
}

// replace stores an object that has passed all checks. An object that is being deleted and
// has lost its last finalizer is deleted instead.
func (c *call) replace(obj, old Object) (Response, error) {
	grace := ptr.Deref(old.GetDeletionGracePeriodSeconds(), 0)
	if old.GetDeletionTimestamp() != nil && grace == 0 && len(obj.GetFinalizers()) == 0 && !c.kind.isNamespace {
		last, err := c.kind.toStore(obj)
		if err != nil {
			return Response{}, err
		}
		c.store, _ = c.without(c.store, c.key)
		return respond(http.StatusOK, last), nil
	}
	changed, err := c.put(c.key, obj)
	if err != nil {
		return Response{}, err
	}
	return respond(http.StatusOK, changed), nil
}

// requireNamespace returns an error if there is no namespace for a new object, or it is being
// deleted.
func (c *call) requireNamespace(obj Object) error {
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	if c.kinds[namespaces] == nil || !c.kind.Namespaced {
		return nil
	}
	name := c.key.Namespace
	namespace := c.store.Objects[Key{Resource: namespaces.GroupResource(), Name: name}]
	if namespace == nil {
		return apierrors.NewNotFound(namespaces.GroupResource(), name)
	}
	if namespace.GetDeletionTimestamp() == nil {
		return nil
	}
	err := apierrors.NewForbidden(c.key.Resource, obj.GetName(), fmt.Errorf("unable to create new content in namespace %s because it is being terminated", name))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", name),
		Field:   "metadata.namespace",
	})
	return err
}

// checkPlace returns an error if an object does not have the name and namespace of the request.
func (c *call) checkPlace(obj Object) error {
	if err := c.placeInNamespace(obj); err != nil {
		return err
	}
	if obj.GetName() != c.key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), c.key.Name))
	}
	return nil
}

// placeInNamespace sets the namespace of an object to that of the request. It returns an error
// if the object has another one.
func (c *call) placeInNamespace(obj Object) error {
	switch {
	case obj.GetNamespace() == c.key.Namespace:
	case obj.GetNamespace() == "" || c.key.Namespace == "":
		obj.SetNamespace(c.key.Namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}
