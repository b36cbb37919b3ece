package apiserver

import (
	"maps"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// The rules, their order and their messages are those of pkg/apis/*/validation in Kubernetes,
// which validates the metadata here and once more for all kinds.

var metadata, spec, status = field.NewPath("metadata"), field.NewPath("spec"), field.NewPath("status")

func validateMeta(meta *metav1.ObjectMeta, isNamespaced bool) field.ErrorList {
	return apivalidation.ValidateObjectMeta(meta, isNamespaced, apivalidation.NameIsDNSSubdomain, metadata)
}

func validateMetaUpdate(meta, old *metav1.ObjectMeta) field.ErrorList {
	return apivalidation.ValidateObjectMetaUpdate(meta, old, metadata)
}

func nonnegative(value int64, path *field.Path) field.ErrorList {
	return apivalidation.ValidateNonnegativeField(value, path)
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	return append(validateMeta(&d.ObjectMeta, true), validateDeploymentSpec(&d.Spec)...)
}

func validateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	errs := append(validateMetaUpdate(&d.ObjectMeta, &old.ObjectMeta), validateDeploymentSpec(&d.Spec)...)
	return append(errs, apivalidation.ValidateImmutableField(d.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
}

func validateDeploymentSpec(s *appsv1.DeploymentSpec) field.ErrorList {
	errs := nonnegative(int64(*s.Replicas), spec.Child("replicas"))
	errs = append(errs, validateSelector(s.Selector, &s.Template)...)
	errs = append(errs, validateStrategy(&s.Strategy, spec.Child("strategy"))...)
	errs = append(errs, nonnegative(int64(s.MinReadySeconds), spec.Child("minReadySeconds"))...)
	errs = append(errs, nonnegative(int64(*s.RevisionHistoryLimit), spec.Child("revisionHistoryLimit"))...)
	errs = append(errs, nonnegative(int64(*s.ProgressDeadlineSeconds), spec.Child("progressDeadlineSeconds"))...)
	if *s.ProgressDeadlineSeconds <= s.MinReadySeconds {
		errs = append(errs, field.Invalid(spec.Child("progressDeadlineSeconds"), s.ProgressDeadlineSeconds, "must be greater than minReadySeconds"))
	}
	return errs
}

// validateSelector validates the selector and the template of a Deployment or ReplicaSet.
func validateSelector(selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) field.ErrorList {
	var errs field.ErrorList
	if selector == nil {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, spec.Child("selector"))...)
		if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			errs = append(errs, field.Invalid(spec.Child("selector"), selector, "empty selector is invalid for deployment"))
		}
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return append(errs, field.Invalid(spec.Child("selector"), selector, "invalid label selector"))
	}
	return append(errs, validateTemplate(template, parsed, spec.Child("template"))...)
}

func validateTemplate(template *corev1.PodTemplateSpec, selector labels.Selector, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, metav1validation.ValidateLabels(template.Labels, path.Child("labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, validatePodSpec(&template.Spec, path.Child("spec"))...)
	if template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), template.Spec.RestartPolicy, []string{string(corev1.RestartPolicyAlways)}))
	}
	return errs
}

func validateStrategy(strategy *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	if strategy.Type == appsv1.RecreateDeploymentStrategyType && strategy.RollingUpdate != nil {
		return field.ErrorList{field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")}
	}
	return nil
}

func validateDeploymentStatusUpdate(d, old *appsv1.Deployment) field.ErrorList {
	errs := validateMetaUpdate(&d.ObjectMeta, &old.ObjectMeta)
	s := d.Status
	errs = append(errs, nonnegative(s.ObservedGeneration, status.Child("observedGeneration"))...)
	errs = append(errs, nonnegative(int64(s.Replicas), status.Child("replicas"))...)
	errs = append(errs, nonnegative(int64(s.UpdatedReplicas), status.Child("updatedReplicas"))...)
	errs = append(errs, nonnegative(int64(s.ReadyReplicas), status.Child("readyReplicas"))...)
	errs = append(errs, nonnegative(int64(s.AvailableReplicas), status.Child("availableReplicas"))...)
	errs = append(errs, nonnegative(int64(s.UnavailableReplicas), status.Child("unavailableReplicas"))...)
	errs = append(errs, atMost("updatedReplicas", s.UpdatedReplicas, "status.replicas", s.Replicas)...)
	errs = append(errs, atMost("readyReplicas", s.ReadyReplicas, "status.replicas", s.Replicas)...)
	errs = append(errs, atMost("availableReplicas", s.AvailableReplicas, "status.replicas", s.Replicas)...)
	return append(errs, atMost("availableReplicas", s.AvailableReplicas, "readyReplicas", s.ReadyReplicas)...)
}

// atMost returns an error if a count in the status is greater than another.
func atMost(name string, count int32, limitName string, limit int32) field.ErrorList {
	if count <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(status.Child(name), count, "cannot be greater than "+limitName)}
}

func validateReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	return append(validateMeta(&r.ObjectMeta, true), validateReplicaSetSpec(&r.Spec)...)
}

func validateReplicaSetUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	errs := append(validateMetaUpdate(&r.ObjectMeta, &old.ObjectMeta), validateReplicaSetSpec(&r.Spec)...)
	return append(errs, apivalidation.ValidateImmutableField(r.Spec.Selector, old.Spec.Selector, spec.Child("selector"))...)
}

func validateReplicaSetSpec(s *appsv1.ReplicaSetSpec) field.ErrorList {
	errs := nonnegative(int64(*s.Replicas), spec.Child("replicas"))
	errs = append(errs, nonnegative(int64(s.MinReadySeconds), spec.Child("minReadySeconds"))...)
	return append(errs, validateSelector(s.Selector, &s.Template)...)
}

func validateReplicaSetStatusUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	errs := validateMetaUpdate(&r.ObjectMeta, &old.ObjectMeta)
	s := r.Status
	errs = append(errs, nonnegative(int64(s.Replicas), status.Child("replicas"))...)
	errs = append(errs, nonnegative(int64(s.FullyLabeledReplicas), status.Child("fullyLabeledReplicas"))...)
	errs = append(errs, nonnegative(int64(s.ReadyReplicas), status.Child("readyReplicas"))...)
	errs = append(errs, nonnegative(int64(s.AvailableReplicas), status.Child("availableReplicas"))...)
	errs = append(errs, nonnegative(s.ObservedGeneration, status.Child("observedGeneration"))...)
	errs = append(errs, atMost("fullyLabeledReplicas", s.FullyLabeledReplicas, "status.replicas", s.Replicas)...)
	errs = append(errs, atMost("readyReplicas", s.ReadyReplicas, "status.replicas", s.Replicas)...)
	errs = append(errs, atMost("availableReplicas", s.AvailableReplicas, "status.replicas", s.Replicas)...)
	return append(errs, atMost("availableReplicas", s.AvailableReplicas, "readyReplicas", s.ReadyReplicas)...)
}

func validatePod(p *corev1.Pod) field.ErrorList {
	return append(validateMeta(&p.ObjectMeta, true), validatePodSpec(&p.Spec, spec)...)
}

func validatePodUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := append(validateMetaUpdate(&p.ObjectMeta, &old.ObjectMeta), validatePod(p)...)
	if len(p.Spec.Containers) != len(old.Spec.Containers) {
		return append(errs, field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers"))
	}
	same := p.Spec.DeepCopy()
	for i := range same.Containers {
		if same.Containers[i].Image == "" {
			errs = append(errs, field.Required(spec.Child("containers").Index(i).Child("image"), ""))
		}
		same.Containers[i].Image = old.Spec.Containers[i].Image
	}
	if !equality.Semantic.DeepEqual(*same, old.Spec) {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
	}
	return errs
}

func validatePodStatusUpdate(p, old *corev1.Pod) field.ErrorList {
	errs := validateMetaUpdate(&p.ObjectMeta, &old.ObjectMeta)
	return append(errs, apivalidation.ValidateImmutableField(p.Status.QOSClass, old.Status.QOSClass, status.Child("qosClass"))...)
}

// validatePodSpec validates the names and images of containers.
func validatePodSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	path = path.Child("containers")
	if len(s.Containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	names := map[string]bool{}
	for i, container := range s.Containers {
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

func validateSecret(s *corev1.Secret) field.ErrorList {
	errs := validateMeta(&s.ObjectMeta, true)
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		for _, message := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, message))
		}
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validateMetaUpdate(&s.ObjectMeta, &old.ObjectMeta)
	errs = append(errs, apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))...)
	if ptr.Deref(old.Immutable, false) {
		if !ptr.Deref(s.Immutable, false) {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
		}
		if !reflect.DeepEqual(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
		}
	}
	return append(errs, validateSecret(s)...)
}

func validateNode(n *corev1.Node) field.ErrorList { return validateMeta(&n.ObjectMeta, false) }

func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	errs := validateMetaUpdate(&n.ObjectMeta, &old.ObjectMeta)
	if old.Spec.ProviderID != "" && old.Spec.ProviderID != n.Spec.ProviderID {
		errs = append(errs, field.Forbidden(spec.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

func validateNamespace(n *corev1.Namespace) field.ErrorList {
	return apivalidation.ValidateObjectMeta(&n.ObjectMeta, false, apivalidation.ValidateNamespaceName, metadata)
}

func validateNamespaceUpdate(n, old *corev1.Namespace) field.ErrorList {
	return append(validateNamespace(n), validateMetaUpdate(&n.ObjectMeta, &old.ObjectMeta)...)
}

func validateNamespaceStatusUpdate(n, old *corev1.Namespace) field.ErrorList {
	errs := validateMetaUpdate(&n.ObjectMeta, &old.ObjectMeta)
	switch {
	case n.DeletionTimestamp == nil && n.Status.Phase != corev1.NamespaceActive:
		errs = append(errs, field.Invalid(status.Child("Phase"), n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty"))
	case n.DeletionTimestamp != nil && n.Status.Phase != corev1.NamespaceTerminating:
		errs = append(errs, field.Invalid(status.Child("Phase"), n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"))
	}
	return errs
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	return append(validateMeta(&l.ObjectMeta, true), validateLeaseSpec(&l.Spec)...)
}

func validateLeaseUpdate(l, old *coordinationv1.Lease) field.ErrorList {
	return append(validateMetaUpdate(&l.ObjectMeta, &old.ObjectMeta), validateLeaseSpec(&l.Spec)...)
}

func validateLeaseSpec(s *coordinationv1.LeaseSpec) field.ErrorList {
	var errs field.ErrorList
	if s.LeaseDurationSeconds != nil && *s.LeaseDurationSeconds <= 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseDurationSeconds"), s.LeaseDurationSeconds, "must be greater than 0"))
	}
	if s.LeaseTransitions != nil && *s.LeaseTransitions < 0 {
		errs = append(errs, field.Invalid(spec.Child("leaseTransitions"), s.LeaseTransitions, "must be greater than or equal to 0"))
	}
	return errs
}
