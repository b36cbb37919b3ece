package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// outdated is the reason for a conflict with another update.
const outdated = "the object has been modified; please apply your changes to the latest version and try again"

func (c *call) create() (Response, error) {
	options := &metav1.CreateOptions{FieldManager: c.Query.Get("fieldManager"), FieldValidation: c.Query.Get("fieldValidation")}
	if err := invalidOptions("CreateOptions", metav1validation.ValidateCreateOptions(options)); err != nil {
		return Response{}, err
	}
	obj, err := c.kind.decode(c.Body)
	if err != nil {
		return Response{}, err
	}
	c.manager = c.managerOr(options.FieldManager)
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetUID("")
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	obj.SetSelfLink("")
	if err := c.placeInNamespace(obj); err != nil {
		return Response{}, err
	}
	removeDuplicateOwners(obj)
	if obj, err = c.admitNew(c.manage(c.kind.empty(), obj)); err != nil {
		return Response{}, err
	}
	return c.insert(obj, true)
}

// insert stores a new object. isPost is whether the request may not overwrite anything.
func (c *call) insert(obj object, isPost bool) (Response, error) {
	c.store.UIDs++
	uid := c.options.UID(c.store.UIDs)
	obj.SetCreationTimestamp(c.now)
	obj.SetUID(types.UID(uid))
	if obj.GetGenerateName() != "" && obj.GetName() == "" {
		const suffix = 5 // as long as in reality, where it is random
		obj.SetName(obj.GetGenerateName() + uid[max(0, len(uid)-suffix):])
	}
	if err := c.placeInNamespace(obj); err != nil {
		return Response{}, err
	}
	if err := c.beforeCreate(obj); err != nil {
		return Response{}, err
	}
	key := Key{Resource: c.key.Resource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if isPost && obj.GetResourceVersion() != "" {
		return Response{}, errors.New("resourceVersion should not be set on objects to be created")
	}
	if stored := c.store.Objects[key]; stored != nil {
		err := apierrors.NewAlreadyExists(key.Resource, key.Name)
		if stored.GetDeletionTimestamp() != nil {
			err.ErrStatus.Message = "object is being deleted: " + err.ErrStatus.Message
		}
		return Response{}, err
	}
	made, err := c.put(key, obj)
	if err != nil {
		return Response{}, err
	}
	return respond(http.StatusCreated, made), nil
}

// beforeCreate prepares and validates a new object.
func (c *call) beforeCreate(obj object) error {
	if c.kind.prepareCreate != nil {
		c.kind.prepareCreate(obj, c.options.Generation)
	}
	if errs := c.kind.validate(obj); len(errs) > 0 {
		return c.invalid(obj, errs)
	}
	if errs := apivalidation.ValidateObjectMetaAccessor(obj, c.kind.Namespaced, validateName, field.NewPath("metadata")); len(errs) > 0 {
		return c.invalid(obj, errs)
	}
	return nil
}

func (c *call) invalid(obj object, errs field.ErrorList) error {
	return apierrors.NewInvalid(c.kind.gvk().GroupKind(), obj.GetName(), errs)
}

func (c *call) update() (Response, error) {
	options := &metav1.UpdateOptions{FieldManager: c.Query.Get("fieldManager"), FieldValidation: c.Query.Get("fieldValidation")}
	if err := invalidOptions("UpdateOptions", metav1validation.ValidateUpdateOptions(options)); err != nil {
		return Response{}, err
	}
	sent, err := c.kind.decode(c.Body)
	if err != nil {
		return Response{}, err
	}
	c.manager = c.managerOr(options.FieldManager)
	if err := c.placeInNamespace(sent); err != nil {
		return Response{}, err
	}
	if err := c.checkName(sent); err != nil {
		return Response{}, err
	}
	removeDuplicateOwners(sent)
	allowCreate := c.kind.createOnUpdate && c.subresource == ""
	return c.save(sent.GetUID(), allowCreate, func(old object) (object, error) {
		return c.manage(old, sent), nil
	})
}

// save stores what change makes of the stored object, or of an empty one if there is none
// and it may be created. If uid is not empty, the stored object must have it.
func (c *call) save(uid types.UID, allowCreate bool, change func(old object) (object, error)) (Response, error) {
	stored := c.store.Objects[c.key]
	if stored == nil && !allowCreate {
		return Response{}, c.notFound()
	}
	old := c.kind.empty()
	if stored != nil {
		var err error
		if old, err = c.kind.fromStore(stored); err != nil {
			return Response{}, err
		}
	}
	if uid != "" && uid != old.GetUID() {
		return Response{}, c.conflict(c.failedPrecondition("UID", uid, old.GetUID()))
	}
	obj, err := change(old)
	if err != nil {
		return Response{}, err
	}
	if stored == nil {
		if obj, err = c.admitNew(obj); err != nil {
			return Response{}, err
		}
		removeDuplicateOwners(obj)
		return c.insert(obj, false)
	}
	removeDuplicateOwners(obj)
	if err := c.checkVersion(obj, old); err != nil {
		return Response{}, err
	}
	if err := c.beforeUpdate(obj, old); err != nil {
		return Response{}, err
	}
	return c.replace(obj, old)
}

// failedPrecondition is how the storage says that an object is not the expected one.
func (c *call) failedPrecondition(what string, want, is any) error {
	const invalidObject = 4
	return fmt.Errorf("StorageError: invalid object, Code: %d, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w",
		invalidObject, c.kind.storageKey(c.key), differs(what, want, is))
}

// differs returns the error for a precondition that is not met.
func differs(what string, want, is any) error {
	return fmt.Errorf("Precondition failed: %s in precondition: %v, %s in object meta: %v", what, want, what, is) //nolint:staticcheck // as the API server writes it
}

// checkVersion returns an error unless obj was made from the stored version of the object,
// or needs no version.
func (c *call) checkVersion(obj, old object) error {
	version := obj.GetResourceVersion()
	switch {
	case version != "" && version != "0" && version != old.GetResourceVersion():
		return c.conflict(errors.New(outdated))
	case version != "" && version != "0":
	case c.kind.unconditionalUpdate:
		obj.SetResourceVersion(old.GetResourceVersion())
	default:
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")}
		return apierrors.NewInvalid(schema.GroupKind{Group: c.key.Resource.Group, Kind: c.key.Resource.Resource}, c.key.Name, errs)
	}
	return nil
}

// beforeUpdate resets what the request cannot change, and validates the rest.
func (c *call) beforeUpdate(obj, old object) error {
	if err := c.placeInNamespace(obj); err != nil {
		return err
	}
	obj.SetGeneration(old.GetGeneration())
	prepare, validate := c.kind.prepareUpdate, c.kind.validateUpdate
	if c.subresource == "status" {
		prepare, validate = c.kind.prepareStatusUpdate, c.kind.validateStatusUpdate
	}
	if prepare != nil {
		prepare(obj, old)
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
	errs := apivalidation.ValidateObjectMetaAccessor(obj, c.kind.Namespaced, validateName, field.NewPath("metadata"))
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))...)
	if errs = append(errs, validate(obj, old)...); len(errs) > 0 {
		return c.invalid(obj, errs)
	}
	return nil
}

// replace stores an object that has passed all checks. An object that is being deleted and
// has lost its last finalizer is deleted instead.
func (c *call) replace(obj, old object) (Response, error) {
	keepTimes(obj, old)
	if c.isToBeDeleted(obj, old) {
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

// isToBeDeleted reports whether an update completes the deletion of an object.
func (c *call) isToBeDeleted(obj, old object) bool {
	grace := old.GetDeletionGracePeriodSeconds()
	return len(obj.GetFinalizers()) == 0 && old.GetDeletionTimestamp() != nil && (grace == nil || *grace == 0) &&
		(c.kind.canBeDeletedByUpdate == nil || c.kind.canBeDeletedByUpdate(obj))
}

// keepTimes restores the times in the managedFields if they are all that has changed.
func keepTimes(obj, old object) {
	is, was := obj.GetManagedFields(), old.GetManagedFields()
	if len(is) != len(was) || len(is) == 0 {
		return
	}
	restored := slices.Clone(is)
	for i := range restored {
		restored[i].Time = was[i].Time
	}
	if !equality.Semantic.DeepEqual(restored, was) {
		return
	}
	same := obj.DeepCopyObject().(object)
	same.SetManagedFields(was)
	if equality.Semantic.DeepEqual(same, old) {
		obj.SetManagedFields(was)
	}
}

// validateName returns what is wrong with the name of an object of any kind.
func validateName(name string, isPrefix bool) []string {
	if isPrefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// admitNew does what the admission plugins do with a new object.
func (c *call) admitNew(obj object) (object, error) {
	if err := c.requireNamespace(obj); err != nil {
		return nil, err
	}
	if c.kind.admit != nil {
		c.kind.admit(obj)
	}
	return obj, nil
}

// requireNamespace returns an error if there is no namespace for a new object, or it is being
// deleted.
func (c *call) requireNamespace(obj object) error {
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

// placeInNamespace sets the namespace of an object to that of the request. It returns an error
// if the object has another one.
func (c *call) placeInNamespace(obj object) error {
	switch {
	case obj.GetNamespace() == c.key.Namespace:
	case obj.GetNamespace() == "" || c.key.Namespace == "":
		obj.SetNamespace(c.key.Namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

func (c *call) checkName(obj object) error {
	if obj.GetName() != c.key.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", obj.GetName(), c.key.Name))
	}
	return nil
}

// managerOr returns the name of the field manager: by default, the beginning of the user
// agent.
func (c *call) managerOr(manager string) string {
	if manager != "" {
		return manager
	}
	program, _, _ := strings.Cut(c.UserAgent, "/")
	var name strings.Builder
	for _, r := range program {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metav1validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}

// removeDuplicateOwners removes owner references that are completely the same as another.
func removeDuplicateOwners(obj object) {
	owners := obj.GetOwnerReferences()
	var unique []metav1.OwnerReference
	for _, owner := range owners {
		if !slices.ContainsFunc(unique, func(other metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(owner, other) }) {
			unique = append(unique, owner)
		}
	}
	if len(unique) < len(owners) {
		obj.SetOwnerReferences(unique)
	}
}

// invalidOptions returns the error for the options of a request.
func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}
