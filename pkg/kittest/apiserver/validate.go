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

func validateDeployment(is, was Object) field.ErrorList {
	s := is.(*appsv1.Deployment).Spec
	errs := validateReplicas(*s.Replicas, s.Selector, &s.Template)
	if s.Strategy.Type == appsv1.RecreateDeploymentStrategyType && s.Strategy.RollingUpdate != nil { // perhaps an old default
		errs = append(errs, field.Forbidden(spec.Child("strategy", "rollingUpdate"), "may not be specified when it is Recreate"))
	}
	if old, ok := was.(*appsv1.Deployment); ok {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
	}
	return errs
}

func validateStatefulSet(is, was Object) field.ErrorList {
	s := is.(*appsv1.StatefulSet).Spec
	errs := validateReplicas(*s.Replicas, s.Selector, &s.Template)
	if old, ok := was.(*appsv1.StatefulSet); ok {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.VolumeClaimTemplates, old.Spec.VolumeClaimTemplates, spec.Child("volumeClaimTemplates"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.ServiceName, old.Spec.ServiceName, spec.Child("serviceName"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.PodManagementPolicy, old.Spec.PodManagementPolicy, spec.Child("podManagementPolicy"))...)
	}
	return errs
}

// validateReplicas validates what all kinds have that run the same Pod several times.
func validateReplicas(replicas int32, ofSelector *metav1.LabelSelector, template *corev1.PodTemplateSpec) field.ErrorList {
	errs := apivalidation.ValidateNonnegativeField(int64(replicas), spec.Child("replicas"))
	if ofSelector == nil {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	selector, err := metav1.LabelSelectorAsSelector(ofSelector)
	if err != nil || ofSelector != nil && selector.Empty() {
		errs = append(errs, field.Invalid(spec.Child("selector"), ofSelector, "invalid or empty label selector"))
	}
	if err == nil && !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		path := spec.Child("template", "metadata", "labels")
		errs = append(errs, field.Invalid(path, template.Labels, "`selector` does not match template `labels`"))
	}
	return append(errs, validatePodSpec(&template.Spec, spec.Child("template", "spec"))...)
}

// validatePodSpec validates the containers.
func validatePodSpec(pod *corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	if len(pod.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	names := map[string]bool{}
	errs = append(errs, validateContainers(pod.Containers, path.Child("containers"), names)...)
	return append(errs, validateContainers(pod.InitContainers, path.Child("initContainers"), names)...)
}

func validateContainers(containers []corev1.Container, path *field.Path, names map[string]bool) (errs field.ErrorList) {
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
func validatePod(is, was Object) field.ErrorList {
	if old, ok := was.(*corev1.Pod); ok && !equality.Semantic.DeepEqual(is.(*corev1.Pod).Spec, old.Spec) {
		return field.ErrorList{field.Forbidden(spec, "the model knows no changes of the spec of a Pod")}
	}
	return nil
}

func validateSecret(is, was Object) (errs field.ErrorList) {
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
