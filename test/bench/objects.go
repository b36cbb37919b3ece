package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/test/lab"
)

const (
	namespace = metav1.NamespaceDefault
	// creators is how many Icecreams are created at a time.
	creators = 10
	// compactEach is after how many Icecreams etcd forgets the objects as they were created.
	compactEach = 1_000
	// clusterNodes is how many nodes have Pods, ten of them those of an Icecream.
	clusterNodes = 5_000
	// templateHash is the label value that the Deployment controller would compute.
	templateHash = "6d5f8c9b74"
)

// objects creates Icecreams, their Deployments and their Pods as they are after a complete
// rollout.
type objects struct {
	kube      kubernetes.Interface
	icecreams versioned.Interface
	now       metav1.Time
}

// startAtRest starts etcd and an API server, and creates Icecreams with that many Pods each.
// No controller and no kubelet changes them. The caller must stop the cluster.
func startAtRest(ctx context.Context, icecreams, pods int) (_ *cluster.Cluster, err error) {
	c, err := cluster.Start(ctx, cluster.Options{OnlyAPI: true, Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := lab.InstallCRD(c); err != nil {
		return nil, err
	}
	config := c.RESTConfig()
	o := &objects{now: metav1.NewTime(time.Now().Truncate(time.Second))}
	if o.icecreams, err = versioned.NewForConfig(config); err != nil {
		return nil, err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	if o.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // which Pods run as
	if _, err := o.kube.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for first := 0; first < icecreams; first += compactEach {
		fmt.Fprintf(os.Stderr, "%d of %d Icecreams are created\n", first, icecreams)
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(creators)
		for i := first; i < min(first+compactEach, icecreams); i++ {
			group.Go(func() error { return o.create(groupCtx, i, pods) })
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		if err := c.CompactEtcd(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// create creates the i-th Icecream with its Deployment and its Pods. The Deployment and the
// Icecream's status follow from the controller's own rules.
func (o *objects) create(ctx context.Context, i, pods int) error {
	ices := o.icecreams.SamplecontrollerV1alpha1().Icecreams(namespace)
	ice, err := ices.Create(ctx, newIcecream(fmt.Sprintf("ice-%05d", i), pods), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	d, err := o.createDeployment(ctx, ice)
	if err != nil {
		return err
	}
	observed := icecream.Observed{Now: o.now.Time, Icecream: ice, Live: d}
	for n := range pods {
		pod, err := o.createPod(ctx, d, n, fmt.Sprintf("node-%d", (10*i+n%10)%clusterNodes))
		if err != nil {
			return err
		}
		if p, counts := icecream.PodOf(pod, o.now.Time); counts {
			observed.Pods = append(observed.Pods, p)
		}
	}
	ice.Status, _ = icecream.Status(observed, icecream.Decide(observed))
	_, err = ices.UpdateStatus(ctx, ice, metav1.UpdateOptions{})
	return err
}

// withTemplate says whether the Icecreams have the template.
var withTemplate bool

const template = `{
	"metadata": {"annotations": {"example.com/mesh": "on"}},
	"spec": {
		"volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "64Mi"}}],
		"tolerations": [{"key": "example.com/cold", "operator": "Exists"}],
		"containers": [{
			"name": "icecream",
			"env": [
				{"name": "FLAVOR", "value": "vanilla"}, {"name": "LEVEL", "value": "info"}, {"name": "REGION", "value": "europe"},
				{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
			],
			"ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
			"readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
			"livenessProbe": {"httpGet": {"path": "/live", "port": "http"}},
			"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]
		}]
	}
}`

func newIcecream(name string, pods int) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "shop"}},
		Spec: v1alpha1.IcecreamSpec{
			Replicas: ptr.To(int32(pods)),
			Image:    image,
			Resources: v1alpha1.IcecreamResources{
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			},
		},
	}
	if withTemplate {
		ice.Spec.Template = &runtime.RawExtension{Raw: []byte(template)}
	}
	return ice
}

func replicaSetName(d *appsv1.Deployment) string { return d.Name + "-" + templateHash }

// createDeployment creates the Deployment of an Icecream, with the status after its rollout.
func (o *objects) createDeployment(ctx context.Context, ice *v1alpha1.Icecream) (*appsv1.Deployment, error) {
	deployments := o.kube.AppsV1().Deployments(namespace)
	create := icecream.Decide(icecream.Observed{Now: o.now.Time, Icecream: ice}).Apply
	d, err := deployments.Patch(ctx, ice.Name, create.Type, create.Body, create.Options(icecream.FieldManager))
	if err != nil {
		return nil, err
	}
	revision := []byte(`{"metadata":{"annotations":{"deployment.kubernetes.io/revision":"1"}}}`)
	if d, err = deployments.Patch(ctx, d.Name, types.MergePatchType, revision, metav1.PatchOptions{}); err != nil {
		return nil, err
	}
	condition := func(of appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: of, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: o.now, LastTransitionTime: o.now}
	}
	replicas := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		Replicas:           replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", replicaSetName(d))),
		},
	}
	return deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
}

// createPod creates the n-th Pod of a Deployment, which runs on the node.
func (o *objects) createPod(ctx context.Context, d *appsv1.Deployment, n int, node string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%05d", replicaSetName(d), n), GenerateName: replicaSetName(d) + "-",
			Labels:      map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: templateHash},
			Annotations: maps.Clone(d.Spec.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: replicaSetName(d),
				UID: d.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true), // any UID does
			}},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	maps.Copy(pod.Labels, d.Spec.Template.Labels)
	pod.Spec.NodeName = node
	pod, err := o.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	pod.Status = o.runningStatus(pod.Spec, n)
	return o.kube.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
}

// runningStatus returns the status that the kubelet reports for a running Pod.
func (o *objects) runningStatus(spec corev1.PodSpec, n int) corev1.PodStatus {
	const digest = "2f1b5a0d3c4e69788796a5b4c3d2e1f00112233445566778899aabbccddeeff0"
	ip := fmt.Sprintf("10.64.%d.10", n)
	status := corev1.PodStatus{
		ObservedGeneration: 1,
		Phase:              corev1.PodRunning,
		HostIP:             "192.168.0.10", HostIPs: []corev1.HostIP{{IP: "192.168.0.10"}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		StartTime: &o.now, QOSClass: corev1.PodQOSBurstable,
	}
	for _, of := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: of, ObservedGeneration: 1, Status: corev1.ConditionTrue, LastTransitionTime: o.now})
	}
	for _, c := range spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:" + digest, ContainerID: "containerd://" + digest,
			Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: o.now}},
			AllocatedResources: c.Resources.Requests.DeepCopy(), Resources: c.Resources.DeepCopy(),
		})
	}
	return status
}
