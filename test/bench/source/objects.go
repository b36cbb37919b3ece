package source

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
)

// since is when everything at rest was created.
var since = metav1.NewTime(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))

// samples are one of each object at rest, with tokens for what differs.
type samples struct {
	icecream   *v1alpha1.Icecream
	deployment *appsv1.Deployment
	pods       []*corev1.Pod
	// others are a Deployment and a Pod that are no Icecream's.
	otherDeployment *appsv1.Deployment
	otherPod        *corev1.Pod
}

// newSamples returns the samples for Icecreams with that many Pods each. It makes the
// Deployment and the status by the controller's own rules, so that they are what the
// controller would have written.
func newSamples(pods int) (samples, error) {
	s := samples{icecream: newIcecream(pods)}
	observed := icecream.Observed{Now: since.Time, StallAfter: time.Minute, Icecream: s.icecream}
	plan, err := icecream.Decide(observed)
	if err != nil || plan.Want == nil || plan.Live != nil {
		return s, fmt.Errorf("the controller would not create one Deployment, but %+v (%w)", plan, err)
	}
	s.deployment = plan.Want
	completeDeployment(s.deployment)
	observed.Named, observed.Owned = s.deployment, []*appsv1.Deployment{s.deployment}
	for i := range pods {
		pod := newPod(s.deployment, i)
		s.pods = append(s.pods, pod)
		if p, counts := icecream.PodOf(pod); counts {
			observed.Pods = append(observed.Pods, p)
		}
	}
	plan, err = icecream.Decide(observed)
	if err != nil || plan.IsWrite() {
		return s, fmt.Errorf("the controller would not leave the Deployment as it is, but %+v (%w)", plan, err)
	}
	s.icecream.Status = icecream.Status(observed, plan).Status
	s.addOthers()
	err = s.manageFields()
	return s, err
}

func newIcecream(pods int) *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Icecream"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-" + tokenNamespace, Name: "ice-" + tokenIcecream,
			UID:             types.UID("1cec0000-0000-4000-8000-0000" + tokenIcecream),
			ResourceVersion: tokenVersion, Generation: 1, CreationTimestamp: since,
			Labels: map[string]string{"team": "team-" + tokenNamespace},
		},
		Spec: v1alpha1.IcecreamSpec{
			Replicas: ptr.To(int32(pods)),
			Image:    "registry.nicoleh.io/cone:1.2.3",
			Resources: v1alpha1.IcecreamResources{
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			},
		},
	}
}

// completeDeployment adds what the API server and the Deployment controller add: identity,
// defaults, and the status after a complete rollout.
func completeDeployment(d *appsv1.Deployment) {
	d.TypeMeta = metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"}
	d.UID = types.UID("de910000-0000-4000-8000-0000" + tokenIcecream)
	d.ResourceVersion, d.Generation, d.CreationTimestamp = tokenVersion, 1, since
	d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	quarter := intstr.FromString("25%")
	d.Spec.Strategy = appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter},
	}
	d.Spec.RevisionHistoryLimit, d.Spec.ProgressDeadlineSeconds = ptr.To[int32](10), ptr.To[int32](600)
	completePodSpec(&d.Spec.Template.Spec)
	replicas := *d.Spec.Replicas
	condition := func(of appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: of, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: since, LastTransitionTime: since}
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: 1,
		Replicas:           replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", replicaSetName(d))),
		},
	}
}

// completePodSpec adds the API server's defaults.
func completePodSpec(s *corev1.PodSpec) {
	s.RestartPolicy, s.DNSPolicy, s.SchedulerName = corev1.RestartPolicyAlways, corev1.DNSClusterFirst, corev1.DefaultSchedulerName
	s.TerminationGracePeriodSeconds = ptr.To[int64](30)
	for i := range s.Containers {
		c := &s.Containers[i]
		c.TerminationMessagePath, c.TerminationMessagePolicy = corev1.TerminationMessagePathDefault, corev1.TerminationMessageReadFile
		c.ImagePullPolicy = corev1.PullIfNotPresent
	}
}

// templateHash is the label value that the Deployment controller would compute.
const templateHash = "6d5f8c9b74"

func replicaSetName(d *appsv1.Deployment) string { return d.Name + "-" + templateHash }

// newPod returns a Pod of a Deployment as it is once it has run for a while. Pods of a
// Deployment differ by their number.
func newPod(d *appsv1.Deployment, number int) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: fmt.Sprintf("%s-%05d", replicaSetName(d), number), GenerateName: replicaSetName(d) + "-",
			UID:             types.UID(fmt.Sprintf("90d00000-0000-4000-8000-%04d%s", number, tokenIcecream)),
			ResourceVersion: tokenVersion, Generation: 1, CreationTimestamp: since,
			Labels:      map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: templateHash},
			Annotations: maps.Clone(d.Spec.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: replicaSetName(d),
				UID:        types.UID("4e910000-0000-4000-8000-0000" + tokenIcecream),
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	maps.Copy(pod.Labels, d.Spec.Template.Labels)
	completeScheduled(&pod.Spec, number)
	pod.Status = runningStatus(pod.Spec, number)
	return pod
}

// completeScheduled adds what admission and the scheduler add to the spec of a Pod.
func completeScheduled(s *corev1.PodSpec, number int) {
	s.NodeName = fmt.Sprintf("node-%s%d", tokenNodes, number%10)
	s.ServiceAccountName, s.DeprecatedServiceAccount = "default", "default"
	s.EnableServiceLinks, s.Priority, s.PreemptionPolicy = ptr.To(true), ptr.To[int32](0), ptr.To(corev1.PreemptLowerPriority)
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		s.Tolerations = append(s.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
		})
	}
}

// runningStatus returns the status that the kubelet reports for a running Pod.
func runningStatus(spec corev1.PodSpec, number int) corev1.PodStatus {
	const digest = "2f1b5a0d3c4e69788796a5b4c3d2e1f00112233445566778899aabbccddeeff0"
	ip := fmt.Sprintf("10.64.%d.10", number)
	status := corev1.PodStatus{
		ObservedGeneration: 1,
		Phase:              corev1.PodRunning,
		HostIP:             "192.168.0.10", HostIPs: []corev1.HostIP{{IP: "192.168.0.10"}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		StartTime: &since, QOSClass: corev1.PodQOSBurstable,
	}
	for _, of := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: of, ObservedGeneration: 1, Status: corev1.ConditionTrue, LastTransitionTime: since})
	}
	for _, c := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + digest, ContainerID: "containerd://" + digest,
			Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}},
			AllocatedResources: c.Resources.Requests.DeepCopy(), Resources: c.Resources.DeepCopy(),
		})
	}
	return status
}

// addOthers adds the objects that are no Icecream's.
func (s *samples) addOthers() {
	d := s.deployment.DeepCopy()
	d.Name, d.OwnerReferences = "other-"+tokenIcecream, nil
	d.UID = types.UID("07440000-0000-4000-8000-0000" + tokenIcecream)
	own := map[string]string{"app.kubernetes.io/name": d.Name}
	d.Labels, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, d.Spec.Template.Annotations = own, own, own, nil
	s.otherDeployment = d
	s.otherPod = newPod(d, 0)
	s.otherPod.UID = types.UID("07490000-0000-4000-8000-0000" + tokenIcecream)
}
