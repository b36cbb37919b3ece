// Package podgc deletes Pods that no kubelet will ever report on: those bound to a node
// that is gone, and those that were deleted before they were bound to any.
//
// It stands in for the package of the same name of kube-controller-manager, which
// imports most of the kubelet for the sake of one function. Of what that one does, this
// one leaves out terminated Pods beyond 12,500, and the Pods of nodes with the taint
// out-of-service.
package podgc

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	period     = 20 * time.Second
	quarantine = 40 * time.Second // how long a node must be missing
)

// Controller deletes such Pods.
type Controller struct {
	client  kubernetes.Interface
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	synced  []cache.InformerSynced
	missing map[string]time.Time // since when a node is
}

// New returns a controller that reads from these informers.
func New(client kubernetes.Interface, pods coreinformers.PodInformer, nodes coreinformers.NodeInformer) *Controller {
	return &Controller{
		client:  client,
		pods:    pods.Lister(),
		nodes:   nodes.Lister(),
		synced:  []cache.InformerSynced{pods.Informer().HasSynced, nodes.Informer().HasSynced},
		missing: map[string]time.Time{},
	}
}

// Run deletes Pods until the context ends.
func (c *Controller) Run(ctx context.Context) {
	if cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		wait.UntilWithContext(ctx, c.collect, period)
	}
}

func (c *Controller) collect(ctx context.Context) {
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
		if !isKnown || time.Since(since) < quarantine {
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
func (c *Controller) delete(ctx context.Context, pod *corev1.Pod) {
	pods := c.client.CoreV1().Pods(pod.Namespace)
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, failed(pod), metav1.PatchOptions{}, "status"); err != nil {
			report(ctx, err, "Cannot mark a Pod as failed", pod)
			return
		}
	}
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := pods.Delete(ctx, pod.Name, options); err != nil {
		report(ctx, err, "Cannot delete a Pod", pod)
	}
}

// failed returns a patch that marks a Pod as failed.
func failed(pod *corev1.Pod) []byte {
	status := map[string]any{"phase": corev1.PodFailed}
	if pod.Spec.NodeName != "" {
		status["conditions"] = []map[string]any{{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue,
			"reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
		}}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	utilruntime.Must(err)
	return patch
}

// report reports an error, unless the Pod is already gone.
func report(ctx context.Context, err error, message string, pod *corev1.Pod) {
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		utilruntime.HandleErrorWithContext(ctx, err, message, "pod", klog.KObj(pod))
	}
}
