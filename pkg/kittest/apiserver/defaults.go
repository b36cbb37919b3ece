package apiserver

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The values are those of pkg/apis/*/v1/defaults.go in Kubernetes. Fields of Pod templates that
// have no default unless something else is set, such as those of volumes, ports and probes, have
// to be complete.

// setDefault sets a field that is not set.
func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// setPointer sets a pointer that is nil to a new value.
func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setDeploymentDefaults(d *appsv1.Deployment) {
	setPointer(&d.Spec.Replicas, 1)
	strategy := &d.Spec.Strategy
	setDefault(&strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setPointer(&strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	setPointer(&d.Spec.RevisionHistoryLimit, 10)
	setPointer(&d.Spec.ProgressDeadlineSeconds, 600)
	setPodDefaults(&d.Spec.Template.Spec)
}

func setStatefulSetDefaults(s *appsv1.StatefulSet) {
	setPointer(&s.Spec.Replicas, 1)
	setDefault(&s.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	strategy := &s.Spec.UpdateStrategy
	setDefault(&strategy.Type, appsv1.RollingUpdateStatefulSetStrategyType)
	if strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		setPointer(&strategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		setPointer(&strategy.RollingUpdate.Partition, 0)
		setPointer(&strategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1)) // since Kubernetes 1.37
	}
	setPointer(&s.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	setDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setDefault(&s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	setPointer(&s.Spec.RevisionHistoryLimit, 10)
	setPodDefaults(&s.Spec.Template.Spec)
}

func setPodDefaults(pod *corev1.PodSpec) {
	setDefault(&pod.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&pod.RestartPolicy, corev1.RestartPolicyAlways)
	setPointer(&pod.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&pod.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	setDefault(&pod.SchedulerName, corev1.DefaultSchedulerName)
	for i := range pod.Containers {
		setContainerDefaults(&pod.Containers[i])
	}
	for i := range pod.InitContainers {
		setContainerDefaults(&pod.InitContainers[i])
	}
}

func setContainerDefaults(c *corev1.Container) {
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
}

// pullPolicy returns the default for an image: an image with the tag latest, or without tag
// and digest, may change.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, hasTag := strings.Cut(name, ":")
	if image != "" && !strings.Contains(name, "@") && (!hasTag || tag == "latest") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// setSecretDefaults also moves stringData, which is only for requests, to data.
func setSecretDefaults(s *corev1.Secret) {
	setDefault(&s.Type, corev1.SecretTypeOpaque)
	for key, value := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}
