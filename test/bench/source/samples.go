package source

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// since is when everything at rest was created.
var since = metav1.NewTime(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))

// object is an object of any kind.
type object interface {
	runtime.Object
	metav1.Object
}

// samples are one of each object at rest, with tokens for what differs between Icecreams.
type samples struct {
	icecream   *v1alpha1.Icecream
	deployment *appsv1.Deployment
	pods       []object
}

// newSamples returns the samples for Icecreams with that many Pods each. The Deployment and
// the status follow from the controller's own rules, and the Deployment's defaults from the model
// of an API server.
func newSamples(pods int) (samples, error) {
	const user, cluster, kubelet = "kubectl-create", "kube-controller-manager", "kubelet"
	s, m := samples{icecream: newIcecream(pods)}, newModel()
	if err := m.create(user, s.icecream); err != nil {
		return s, err
	}
	observed := icecream.Observed{Now: since.Time, Icecream: s.icecream}
	if plan := icecream.Decide(observed); plan.Asks == nil {
		return s, fmt.Errorf("the controller would not create a Deployment, but %+v", plan)
	}
	s.deployment = icecream.NewDeployment(s.icecream)
	s.deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	s.deployment.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	if err := m.create(icecream.FieldManager, s.deployment); err != nil {
		return s, err
	}
	s.deployment.Status = rolledOutStatus(s.deployment)
	if err := m.setStatus(cluster, s.deployment); err != nil {
		return s, err
	}
	observed.Live = s.deployment
	for i := range pods {
		pod := newPod(s.deployment, i)
		if err := m.create(cluster, pod); err != nil {
			return s, err
		}
		pod.Status = runningStatus(pod.Spec, i)
		if err := m.setStatus(kubelet, pod); err != nil {
			return s, err
		}
		s.pods = append(s.pods, pod)
		if p, counts := icecream.PodOf(pod); counts {
			observed.Pods = append(observed.Pods, p)
		}
	}
	plan := icecream.Decide(observed)
	for _, ask := range plan.Asks {
		if ask.Left != "" {
			return s, fmt.Errorf("the controller would not leave the Deployment as it is, but %+v", plan)
		}
	}
	s.icecream.Status = icecream.Status(observed, plan).Status
	return s, m.setStatus(icecream.FieldManager, s.icecream)
}

func newIcecream(pods int) *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Icecream"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-shop", Name: "ice-" + tokenIcecream, Labels: map[string]string{"team": "shop"}},
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

// templateHash is the label value that the Deployment controller would compute.
const templateHash = "6d5f8c9b74"

func replicaSetName(d *appsv1.Deployment) string { return d.Name + "-" + templateHash }

// rolledOutStatus returns the status of a Deployment after a complete rollout.
func rolledOutStatus(d *appsv1.Deployment) appsv1.DeploymentStatus {
	replicas := *d.Spec.Replicas
	condition := func(of appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: of, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: since, LastTransitionTime: since}
	}
	return appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		Replicas:           replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", replicaSetName(d))),
		},
	}
}

// newPod returns a scheduled Pod of a Deployment. Pods of a Deployment differ by their number.
func newPod(d *appsv1.Deployment, number int) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: fmt.Sprintf("%s-%05d", replicaSetName(d), number), GenerateName: replicaSetName(d) + "-",
			Labels:      map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: templateHash},
			Annotations: maps.Clone(d.Spec.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: replicaSetName(d),
				UID:        types.UID("4e910000-0000-4000-8000-0000000" + tokenIcecream),
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	maps.Copy(pod.Labels, d.Spec.Template.Labels)
	pod.Spec.NodeName = fmt.Sprintf("node-%s%d", tokenNodes, number%10)
	setAdmitted(&pod.Spec)
	return pod
}

// setAdmitted sets what an API server sets in a Pod beyond the defaults of a template.
func setAdmitted(spec *corev1.PodSpec) {
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "default", "default"
	spec.EnableServiceLinks, spec.Priority, spec.PreemptionPolicy = ptr.To(true), ptr.To[int32](0), ptr.To(corev1.PreemptLowerPriority)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
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

// model is a model of an API server, and what it has stored.
type model struct {
	server *apiserver.Server
	store  apiserver.Store
}

// newModel returns a model whose UIDs and resource versions contain the Icecream's token.
func newModel() *model {
	icecreams := apiserver.CustomResource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version), "Icecream")
	return &model{server: apiserver.New(apiserver.Options{
		UID:     func(n int64) string { return fmt.Sprintf("1cec0000-0000-4000-8000-%07d%s", n, tokenIcecream) },
		Version: func(n int64) string { return fmt.Sprintf("1%s%02d", tokenIcecream, n) },
	}, icecreams, apiserver.Deployments(), apiserver.Pods())}
}

// create creates an object, and sets it to what is stored. The model knows the defaults of
// Deployments only.
func (m *model) create(manager string, obj object) (err error) {
	if _, isDeployment := obj.(*appsv1.Deployment); isDeployment {
		if m.store, err = m.server.Create(m.store, since.Time, obj); err != nil {
			return fmt.Errorf("creating %s: %w", obj.GetName(), err)
		}
		if err := m.read(obj); err != nil {
			return err
		}
	}
	obj.SetGeneration(1)
	return m.put(manager, "", obj, "metadata", "spec")
}

// setStatus stores the status of an object, and sets the object to what is stored.
func (m *model) setStatus(manager string, obj object) error {
	return m.put(manager, "status", obj, "status")
}

// put stores an object of which the manager has set these parts.
func (m *model) put(manager, subresource string, obj object, parts ...string) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	entry, err := entryFor(manager, subresource, content, parts)
	if err != nil {
		return fmt.Errorf("the managed fields of %s: %w", obj.GetName(), err)
	}
	stored := &unstructured.Unstructured{Object: content}
	stored.SetManagedFields(append(obj.GetManagedFields(), entry))
	if m.store, err = m.server.Put(m.store, since.Time, stored); err != nil {
		return err
	}
	return m.read(obj)
}

// entryFor returns the entry for the manager of all fields in some parts of an object.
func entryFor(manager, subresource string, content map[string]any, parts []string) (metav1.ManagedFieldsEntry, error) {
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": content["apiVersion"], "kind": content["kind"]}}
	for _, part := range parts {
		set.Object[part] = content[part]
	}
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: set.GetAPIVersion(),
		Time: &since, FieldsType: "FieldsV1", Subresource: subresource,
	}
	converter := managedfields.NewDeducedTypeConverter()
	if kubescheme.Scheme.Recognizes(set.GroupVersionKind()) {
		converter = applyconfigurations.NewTypeConverter(kubescheme.Scheme)
	}
	typed, err := converter.ObjectToTyped(set)
	if err != nil {
		return entry, err
	}
	fields, err := typed.ToFieldSet()
	if err != nil {
		return entry, err
	}
	encoded, err := fields.Leaves().ToJSON()
	entry.FieldsV1 = metav1.NewFieldsV1(string(encoded))
	return entry, err
}

func (m *model) read(obj object) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(m.store.Objects[keyOf(obj)].Object, obj)
}

func keyOf(obj object) apiserver.Key {
	return apiserver.Key{Resource: resourceOf(obj).GroupResource(), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// resourceOf returns the resource that an object belongs to.
func resourceOf(obj object) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(obj.GetObjectKind().GroupVersionKind())
	return resource
}
