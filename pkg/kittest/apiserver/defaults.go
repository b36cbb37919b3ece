package apiserver

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// The values are those of pkg/apis/*/v1/defaults.go in Kubernetes.

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
	setPodSpecDefaults(&d.Spec.Template.Spec)
}

func setReplicaSetDefaults(r *appsv1.ReplicaSet) {
	setPointer(&r.Spec.Replicas, 1)
	setPodSpecDefaults(&r.Spec.Template.Spec)
}

func setPodDefaults(p *corev1.Pod) {
	setPodSpecDefaults(&p.Spec)
	setPointer(&p.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			setRequests(&containers[i].Resources)
		}
	}
}

// setRequests sets the requests that are missing to the limits.
func setRequests(r *corev1.ResourceRequirements) {
	if len(r.Limits) == 0 {
		return
	}
	requests := maps.Clone(r.Limits)
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}

func setPodSpecDefaults(spec *corev1.PodSpec) {
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setPointer(&spec.SecurityContext, corev1.PodSecurityContext{})
	setPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	setDefault(&spec.SchedulerName, corev1.DefaultSchedulerName)
	if spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != "" {
		setDefault(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
		spec.DeprecatedServiceAccount = spec.ServiceAccountName
	}
	for i := range spec.Volumes {
		setVolumeDefaults(&spec.Volumes[i].VolumeSource)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			setContainerDefaults(&containers[i])
		}
	}
}

func setVolumeDefaults(v *corev1.VolumeSource) {
	const mode int32 = 0o644
	if ptr.AllPtrFieldsNil(v) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		setPointer(&v.Secret.DefaultMode, mode)
	}
	if v.ConfigMap != nil {
		setPointer(&v.ConfigMap.DefaultMode, mode)
	}
}

func setContainerDefaults(c *corev1.Container) {
	setDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	setDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			setProbeDefaults(probe)
		}
	}
}

func setProbeDefaults(p *corev1.Probe) {
	setDefault(&p.TimeoutSeconds, 1)
	setDefault(&p.PeriodSeconds, 10)
	setDefault(&p.SuccessThreshold, 1)
	setDefault(&p.FailureThreshold, 3)
	if p.HTTPGet != nil {
		setDefault(&p.HTTPGet.Path, "/")
		setDefault(&p.HTTPGet.Scheme, corev1.URISchemeHTTP)
	}
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

func setNodeDefaults(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

func setNamespaceDefaults(n *corev1.Namespace) {
	setDefault(&n.Status.Phase, corev1.NamespaceActive)
	if n.Name != "" {
		metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name)
	}
}

// What the admission plugins ServiceAccount, Priority and DefaultTolerationSeconds set.
func admitPod(p *corev1.Pod) {
	setDefault(&p.Spec.ServiceAccountName, "default")
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	setPointer(&p.Spec.Priority, 0)
	setPointer(&p.Spec.PreemptionPolicy, corev1.PreemptLowerPriority)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerates := func(t corev1.Toleration) bool {
			return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}
		if !slices.ContainsFunc(p.Spec.Tolerations, tolerates) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
			})
		}
	}
}

// What the admission plugin TaintNodesByCondition sets.
func admitNode(n *corev1.Node) {
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		n.Spec.Taints = append(n.Spec.Taints, taint)
	}
}

// qualityOf returns the quality of service of a Pod.
func qualityOf(p *corev1.Pod) corev1.PodQOSClass {
	isBestEffort, isGuaranteed := true, true
	for _, container := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := container.Resources.Requests[name], container.Resources.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				isBestEffort = false
			}
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				isGuaranteed = false
			}
		}
	}
	switch {
	case isBestEffort:
		return corev1.PodQOSBestEffort
	case isGuaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}
