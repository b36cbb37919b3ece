package apiserver

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// customStrategy returns the strategy for objects of a CustomResourceDefinition with the
// status subresource.
func customStrategy(hasRules bool, validate func(old, obj *unstructured.Unstructured) field.ErrorList) strategy {
	if validate == nil {
		validate = func(_, _ *unstructured.Unstructured) field.ErrorList { return nil }
	}
	return strategy{
		isCustom:            true,
		resets:              statusPath,
		statusResets:        append([]fieldpath.Path{fieldpath.MakePathOrDie("metadata")}, specPath...),
		prepareCreate:       prepareNewCustom,
		prepareUpdate:       prepareCustomUpdate,
		prepareStatusUpdate: prepareCustomStatusUpdate,
		validate: func(obj object) field.ErrorList {
			errs := apivalidation.ValidateObjectMetaAccessor(obj, true, apivalidation.NameIsDNSSubdomain, metadata)
			return withSkipped(hasRules, append(errs, validate(nil, obj.(*unstructured.Unstructured))...))
		},
		validateUpdate:       validateCustomUpdate(hasRules, validate),
		validateStatusUpdate: validateCustomUpdate(hasRules, validate),
	}
}

func prepareNewCustom(obj object, generation int64) {
	delete(obj.(*unstructured.Unstructured).Object, "status")
	obj.SetGeneration(generation)
}

func prepareCustomUpdate(obj, old object) {
	is, was := obj.(*unstructured.Unstructured).Object, old.(*unstructured.Unstructured).Object
	delete(is, "status")
	if status, ok := was["status"]; ok {
		is["status"] = status
	}
	if !equality.Semantic.DeepEqual(withoutMetadata(is), withoutMetadata(was)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

func withoutMetadata(content map[string]any) map[string]any {
	rest := maps.Clone(content)
	delete(rest, "metadata")
	return rest
}

func prepareCustomStatusUpdate(obj, old object) {
	is := obj.(*unstructured.Unstructured)
	status, hasStatus := is.Object["status"]
	entries := is.GetManagedFields()
	is.Object = old.(*unstructured.Unstructured).DeepCopy().Object
	is.SetManagedFields(entries)
	delete(is.Object, "status")
	if hasStatus {
		is.Object["status"] = status
	}
}

func validateCustomUpdate(hasRules bool, validate func(old, obj *unstructured.Unstructured) field.ErrorList) func(obj, old object) field.ErrorList {
	return func(obj, old object) field.ErrorList {
		errs := apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, metadata)
		return withSkipped(hasRules, append(errs, validate(old.(*unstructured.Unstructured), obj.(*unstructured.Unstructured))...))
	}
}

// withSkipped adds the error that says that the rules of a definition were not checked because
// of another error.
func withSkipped(hasRules bool, errs field.ErrorList) field.ErrorList {
	blocking := []field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}
	if !hasRules || !slices.ContainsFunc(errs, func(err *field.Error) bool { return slices.Contains(blocking, err.Type) }) {
		return errs
	}
	return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
}
