package apiserver

import (
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// The rules are some of those of pkg/apis/*/validation in Kubernetes: the ones that a
// controller breaks that mixes up objects, or that confuses what it wants with what there is.

var spec = field.NewPath("spec")

func validateDeployment(is, was object) field.ErrorList {
	s, template := is.(*appsv1.Deployment).Spec, spec.Child("template")
	errs := apivalidation.ValidateNonnegativeField(int64(*s.Replicas), spec.Child("replicas"))
	if s.Selector == nil {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	selector, err := metav1.LabelSelectorAsSelector(s.Selector)
	if err != nil || s.Selector != nil && selector.Empty() {
		errs = append(errs, field.Invalid(spec.Child("selector"), s.Selector, "invalid or empty label selector"))
	}
	if err == nil && !selector.Empty() && !selector.Matches(labels.Set(s.Template.Labels)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), s.Template.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, validateContainers(s.Template.Spec.Containers, template.Child("spec", "containers"))...)
	if old, ok := was.(*appsv1.Deployment); ok {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
	}
	return errs
}

func validateContainers(containers []corev1.Container, path *field.Path) (errs field.ErrorList) {
	if len(containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	names := map[string]bool{}
	for i, container := range containers {
		name := path.Index(i).Child("name")
		if container.Name == "" {
			errs = append(errs, field.Required(name, ""))
		} else {
			for _, message := range validation.IsDNS1123Label(container.Name) {
				errs = append(errs, field.Invalid(name, container.Name, message))
			}
		}
		if container.Image == "" {
			errs = append(errs, field.Required(path.Index(i).Child("image"), ""))
		}
		if names[container.Name] {
			errs = append(errs, field.Duplicate(name, container.Name))
		}
		names[container.Name] = true
	}
	return errs
}

// validatePod allows no change of the spec. The API server allows a few.
func validatePod(is, was object) field.ErrorList {
	if old, ok := was.(*corev1.Pod); ok && !equality.Semantic.DeepEqual(is.(*corev1.Pod).Spec, old.Spec) {
		return field.ErrorList{field.Forbidden(spec, "the model knows no changes of the spec of a Pod")}
	}
	return nil
}

func validateSecret(is, was object) (errs field.ErrorList) {
	s := is.(*corev1.Secret)
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		for _, message := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, message))
		}
	}
	old, ok := was.(*corev1.Secret)
	if !ok {
		return errs
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))...)
	if ptr.Deref(old.Immutable, false) {
		const immutable = "field is immutable when `immutable` is set"
		if !ptr.Deref(s.Immutable, false) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), immutable))
		}
		if !reflect.DeepEqual(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), immutable))
		}
	}
	return errs
}
