package apiserver

import (
	"maps"
	"reflect"
	"slices"
	"strings"

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
	errs = append(errs, validateTemplate(&s.Template, spec.Child("template", "spec"))...)
	if old, ok := was.(*appsv1.Deployment); ok {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, spec.Child("selector"))...)
	}
	return errs
}

func validateStatefulSet(is, was Object) field.ErrorList {
	s := is.(*appsv1.StatefulSet).Spec
	errs := append(validateReplicas(*s.Replicas, s.Selector, &s.Template), validateTemplate(&s.Template, spec.Child("template", "spec"))...)
	if old, ok := was.(*appsv1.StatefulSet); ok {
		same := s // but for what can change
		same.Replicas, same.Ordinals, same.Template, same.UpdateStrategy = old.Spec.Replicas, old.Spec.Ordinals, old.Spec.Template, old.Spec.UpdateStrategy
		same.RevisionHistoryLimit, same.MinReadySeconds = old.Spec.RevisionHistoryLimit, old.Spec.MinReadySeconds
		same.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
		if !equality.Semantic.DeepEqual(same, old.Spec) {
			errs = append(errs, field.Forbidden(spec, "updates to statefulset spec for fields other than these are forbidden"))
		}
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
	return errs
}

// validateTemplate validates the containers, and what has to be right as a whole: fields that
// exclude each other, or that have to agree.
func validateTemplate(template *corev1.PodTemplateSpec, path *field.Path) (errs field.ErrorList) {
	pod := &template.Spec
	if len(pod.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	names := map[string]bool{}
	errs = append(errs, validateContainers(pod.Containers, path.Child("containers"), names)...)
	errs = append(errs, validateContainers(pod.InitContainers, path.Child("initContainers"), names)...)

	isWindows := pod.OS != nil && pod.OS.Name == corev1.Windows
	if pod.SecurityContext != nil {
		path := path.Child("securityContext")
		errs = append(errs, validateSeccomp(pod.SecurityContext.SeccompProfile, template.Annotations, corev1.SeccompPodAnnotationKey, path, isWindows)...)
		errs = append(errs, forbidden(path.Child("runAsUser"), isWindows && pod.SecurityContext.RunAsUser != nil)...)
	}
	for kind, containers := range map[string][]corev1.Container{"containers": pod.Containers, "initContainers": pod.InitContainers} {
		for i, container := range containers {
			sc, path := container.SecurityContext, path.Child(kind).Index(i).Child("securityContext")
			if sc == nil {
				continue
			}
			key := corev1.SeccompContainerAnnotationKeyPrefix + container.Name
			errs = append(errs, validateSeccomp(sc.SeccompProfile, template.Annotations, key, path, isWindows)...)
			errs = append(errs, validatePower(sc, path)...)
			for name, isSet := range map[string]bool{
				"capabilities": sc.Capabilities != nil, "readOnlyRootFilesystem": sc.ReadOnlyRootFilesystem != nil, "privileged": sc.Privileged != nil,
				"allowPrivilegeEscalation": sc.AllowPrivilegeEscalation != nil, "runAsUser": sc.RunAsUser != nil,
			} {
				errs = append(errs, forbidden(path.Child(name), isWindows && isSet)...)
			}
		}
	}
	return errs
}

// validatePower returns an error if a container may not get more power, and has it already.
func validatePower(sc *corev1.SecurityContext, path *field.Path) (errs field.ErrorList) {
	if ptr.Deref(sc.AllowPrivilegeEscalation, true) {
		return nil
	}
	if ptr.Deref(sc.Privileged, false) {
		errs = append(errs, field.Invalid(path, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		errs = append(errs, field.Invalid(path, "", "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
	}
	return errs
}

// validateSeccomp validates a union: a profile has a path if it is one of the node. The annotation
// that was in its place has to say the same.
func validateSeccomp(profile *corev1.SeccompProfile, annotations map[string]string, key string, path *field.Path, isWindows bool) (errs field.ErrorList) {
	if profile == nil {
		return nil
	}
	path = path.Child("seccompProfile")
	errs = forbidden(path, isWindows)
	annotation, isAnnotated := annotations[key]
	isWrong := false
	switch profile.Type {
	case corev1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile == nil {
			errs = append(errs, field.Required(path.Child("localhostProfile"), ""))
		}
		isWrong = !strings.HasPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix)
		if suffix := strings.TrimPrefix(annotation, corev1.SeccompLocalhostProfileNamePrefix); isAnnotated && !isWrong && suffix != ptr.Deref(profile.LocalhostProfile, "") {
			errs = append(errs, field.Forbidden(path.Child("localhostProfile"), "seccomp profile in annotation and field must match"))
		}
	case corev1.SeccompProfileTypeRuntimeDefault:
		isWrong = annotation != corev1.SeccompProfileRuntimeDefault && annotation != corev1.DeprecatedSeccompProfileDockerDefault
	case corev1.SeccompProfileTypeUnconfined:
		isWrong = annotation != corev1.SeccompProfileNameUnconfined
	case "":
		errs = append(errs, field.Required(path.Child("type"), ""))
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), profile.Type, []corev1.SeccompProfileType{}))
	}
	if isAnnotated && isWrong {
		errs = append(errs, field.Forbidden(path.Child("type"), "seccomp type in annotation and field must match"))
	}
	if profile.Type != corev1.SeccompProfileTypeLocalhost && profile.LocalhostProfile != nil {
		errs = append(errs, field.Invalid(path.Child("localhostProfile"), profile, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func forbidden(path *field.Path, isSet bool) field.ErrorList {
	if !isSet {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "cannot be set for a windows pod")}
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
