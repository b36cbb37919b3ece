package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file has what the package knows about the spec of an Icecream, and about its
// children. A controller that owns other kinds replaces it.

// workload is the kind of child by which the witness proves that a Current status was true,
// and workloads is its resource.
type workload = appsv1.Deployment

var workloads = appsv1.SchemeGroupVersion.WithResource("deployments")

// workloadOf returns the name of the workload in the status of an Icecream.
func workloadOf(ice *v1alpha1.Icecream) cache.ObjectName {
	return cache.NewObjectName(ice.Namespace, ice.Status.DeploymentName)
}

// imageOf returns the image that an Icecream asks for.
func imageOf(ice *v1alpha1.Icecream) string { return ice.Spec.Image }

// stateOf returns the state of a workload.
func stateOf(d *workload) version {
	v := version{replicas: ptr.Deref(d.Spec.Replicas, 1)}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == "icecream" {
			v.image = container.Image
		}
	}
	v.isRolledOut = d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == v.replicas &&
		d.Status.Replicas == v.replicas && d.Status.AvailableReplicas == v.replicas
	return v
}

// currentFlaws returns the parts of a Current status that contradict the spec: counts of
// replicas, the name of the Deployment, and the Pods on the nodes.
func currentFlaws(ice *v1alpha1.Icecream) (found []string) {
	s, want := ice.Status, ptr.Deref(ice.Spec.Replicas, 1)
	for what, count := range map[string]int32{
		"replicas": s.Replicas, "updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
	} {
		if count != want {
			found = append(found, fmt.Sprintf("it is Current with %d %s, want %d", count, what, want))
		}
	}
	name := ice.Spec.DeploymentName
	if name == "" {
		name = ice.Name
	}
	if s.DeploymentName != name {
		found = append(found, fmt.Sprintf("it is Current with Deployment %q, want %q", s.DeploymentName, name))
	}
	if int(s.NodeCount) != len(s.Nodes) {
		return found // a status lists no more than 100 nodes
	}
	var pods, readyPods int32
	for _, node := range s.Nodes {
		pods += node.Pods
		readyPods += node.ReadyPods
	}
	if pods != want || readyPods != want {
		found = append(found, fmt.Sprintf("it is Current with %d Pods on its nodes, %d of them ready, want %d", pods, readyPods, want))
	}
	return found
}

// NodesOf returns what the status of an Icecream with these Pods says about their nodes, if
// each Pod is ready unless it is being deleted.
func NodesOf(pods []corev1.Pod) (nodes []v1alpha1.IcecreamNode) {
	onNode := map[string]int32{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil {
			onNode[pod.Spec.NodeName]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(onNode)) {
		nodes = append(nodes, v1alpha1.IcecreamNode{Name: name, Pods: onNode[name], ReadyPods: onNode[name]})
	}
	return nodes
}

// createUnowned tries to create a workload without an owner, as the policies of artifacts/
// forbid, in a dry run.
func createUnowned(ctx context.Context, account kubernetes.Interface) error {
	selected := map[string]string{"app": canary}
	_, err := account.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: canary},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selected},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/canary:1"}}},
			},
		},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
