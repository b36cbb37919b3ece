package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	podGCPeriod     = 20 * time.Second
	podGCQuarantine = 40 * time.Second // how long a node must be missing
)

// podGC deletes Pods that no kubelet will ever report on: those bound to a node that
// is gone, and those that were deleted before they were bound to any.
//
// It stands in for kube-controller-manager's pod-garbage-collector-controller, whose
// package imports most of the kubelet for the sake of one function. Of what that one
// does, this one leaves out terminated Pods beyond 12,500, and the Pods of nodes with
// the taint out-of-service.
type podGC struct {
	client  kubernetes.Interface
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	missing map[string]time.Time // since when a node is
}

func newPodGC(_ context.Context, m *manager) (func(context.Context), error) {
	client, err := m.accounts.Client("pod-garbage-collector")
	if err != nil {
		return nil, err
	}
	pods, nodes := m.informers.Core().V1().Pods(), m.informers.Core().V1().Nodes()
	c := &podGC{client: client, pods: pods.Lister(), nodes: nodes.Lister(), missing: map[string]time.Time{}}
	podsSynced, nodesSynced := pods.Informer().HasSynced, nodes.Informer().HasSynced
	return func(ctx context.Context) {
		if cache.WaitForCacheSync(ctx.Done(), podsSynced, nodesSynced) {
			wait.UntilWithContext(ctx, c.collect, podGCPeriod)
		}
	}, nil
}

func (c *podGC) collect(ctx context.Context) {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Cannot list Pods")
		return
	}
	orphans := map[string][]*corev1.Pod{} // by node
	for _, pod := range pods {
		switch {
		case pod.Spec.NodeName != "":
			if _, err := c.nodes.Get(pod.Spec.NodeName); apierrors.IsNotFound(err) {
				orphans[pod.Spec.NodeName] = append(orphans[pod.Spec.NodeName], pod)
			}
		case pod.DeletionTimestamp != nil:
			c.delete(ctx, pod)
		}
	}
	for node := range c.missing {
		if orphans[node] == nil {
			delete(c.missing, node)
		}
	}
	for node, pods := range orphans {
		since, isKnown := c.missing[node]
		if !isKnown {
			c.missing[node] = time.Now()
		}
		if !isKnown || time.Since(since) < podGCQuarantine {
			continue
		}
		if _, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			continue
		}
		for _, pod := range pods {
			c.delete(ctx, pod)
		}
	}
}

// delete removes a Pod at once. One that has not ended is marked as failed first, for
// controllers that count failures.
func (c *podGC) delete(ctx context.Context, pod *corev1.Pod) {
	pods := c.client.CoreV1().Pods(pod.Namespace)
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		patch := []byte(fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Failed"`, pod.UID))
		if pod.Spec.NodeName != "" {
			patch = append(patch, `,"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByPodGC","message":"PodGC: node no longer exists"}]`...)
		}
		patch = append(patch, "}}"...)
		if _, err := pods.Patch(ctx, pod.Name, "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
			if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				utilruntime.HandleErrorWithContext(ctx, err, "Cannot mark a Pod as failed", "pod", pod.Namespace+"/"+pod.Name)
			}
			return
		}
	}
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := pods.Delete(ctx, pod.Name, options); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		utilruntime.HandleErrorWithContext(ctx, err, "Cannot delete a Pod", "pod", pod.Namespace+"/"+pod.Name)
	}
}
