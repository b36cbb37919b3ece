package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// drainAttempt is how long the API server has to answer to one attempt to drain.
const drainAttempt = 20 * time.Second

// drainPatience is how long a drain may wait before an event says what for.
const drainPatience = time.Minute

// drain makes one attempt to evict the Pods of the node. It is repeated until none is left
// that has to leave, for as long as the decision allows, which is for left from now on.
func (a *Agent) drain(ctx context.Context, node *corev1.Node, left time.Duration) (*corev1.Node, error) {
	attempt, cancel := context.WithTimeout(ctx, min(left, drainAttempt))
	defer cancel()
	if stuck, leaving := a.evict(attempt); len(stuck)+len(leaving) > 0 {
		err := errors.New(strings.Join(append(stuck, leaving...), "; "))
		a.reportStuck(ctx, node, stuck)
		klog.FromContext(ctx).Info("Node not drained yet", "err", err)
		if a.drainErr == nil || left > retryDelay { // a last attempt that is too short finds out nothing
			a.drainErr = err
		}
		return nil, nil
	}
	a.drained = node.Annotations[request.InProgress]
	if a.config.DryRun {
		return node, nil
	}
	return a.kube.CoreV1().Nodes().Get(ctx, a.config.NodeName, metav1.GetOptions{})
}

// reportStuck records, once for each reboot, what a drain waits for that has gone on for a
// while: it may never succeed.
func (a *Agent) reportStuck(ctx context.Context, node *corev1.Node, stuck []string) {
	record, err := RecordOf(node)
	if err != nil || record == nil || len(stuck) == 0 || a.toldOf == *encode(record) || time.Since(record.Since) < drainPatience {
		return
	}
	a.toldOf = *encode(record)
	a.tryRecord(ctx, node, corev1.EventTypeWarning, ReasonDrainWaits, "The node cannot be drained now: "+strings.Join(stuck, "; "))
}

// evict evicts all Pods of the node that have to leave, side by side. It returns why some of
// them do not leave, and which ones have not ended yet. As for kubectl drain, a Pod that has come
// since the first list is neither evicted nor in the way: it tolerates the cordon, and would come
// again. It ends with the system.
func (a *Agent) evict(ctx context.Context) (stuck, leaving []string) {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", a.config.NodeName).String()
	pods, err := a.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: ofNode})
	if err != nil {
		return []string{"the node's Pods cannot be listed: " + err.Error()}, nil
	}
	if a.toEvict == nil {
		a.toEvict = sets.New[types.UID]()
		for i := range pods.Items {
			a.toEvict.Insert(pods.Items[i].UID)
		}
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !a.toEvict.Has(pod.UID) })
	why, isLeaving := make([]string, len(pods.Items)), make([]bool, len(pods.Items))
	var evictions sync.WaitGroup
	for i := range pods.Items {
		evictions.Go(func() { why[i], isLeaving[i] = a.evictPod(ctx, &pods.Items[i]) })
	}
	evictions.Wait()
	for i, pod := range pods.Items {
		said := fmt.Sprintf("%s/%s %s", pod.Namespace, pod.Name, why[i])
		switch {
		case why[i] == "":
		case isLeaving[i]:
			leaving = append(leaving, said)
		default:
			stuck = append(stuck, said)
		}
	}
	return stuck, leaving
}

// stays reports whether a Pod need not leave a node that is to be rebooted: it has ended, it
// is the kubelet's own, or its DaemonSet would put another one there.
func stays(pod *corev1.Pod) bool {
	_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	hasEnded := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	owner := metav1.GetControllerOf(pod)
	isDaemon := owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/")
	return isMirror || hasEnded || isDaemon
}

// evictPod evicts a Pod, and not another one of that name, if it has to leave. It returns why
// the Pod is still in the way of the reboot, and whether it is about to end; empty if it is not
// in the way.
func (a *Agent) evictPod(ctx context.Context, pod *corev1.Pod) (why string, isLeaving bool) {
	hasEmptyDir := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
	switch deleted := pod.DeletionTimestamp; {
	case stays(pod):
		return "", false
	case deleted != nil && time.Since(deleted.Time) > request.ClockSkew:
		klog.FromContext(ctx).Info("Pod deletion hangs; not waiting for it", "pod", klog.KObj(pod), "deletion", deleted.Time)
		return "", false
	case deleted != nil:
		return "may take until " + deleted.UTC().Format(time.RFC3339) + " to end", true
	case metav1.GetControllerOf(pod) == nil && !a.config.Force:
		return "has no controller that would create it again (-drain-force evicts it)", false
	case hasEmptyDir && !a.config.DeleteEmptyDirData:
		return "has an emptyDir, whose content would be lost (-drain-delete-emptydir-data evicts it)", false
	}
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if a.config.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	err := a.kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &options,
	})
	switch {
	case err == nil && a.config.DryRun:
		klog.FromContext(ctx).Info("Dry run: the Pod would be evicted", "pod", klog.KObj(pod))
		return "", false
	case err == nil:
		klog.FromContext(ctx).Info("Evicted", "pod", klog.KObj(pod))
		return "is being evicted", true
	case response.IsStale(err, corev1.Resource("pods"), pod.Name): // it is gone, as the next list says
		return "has changed meanwhile", true
	}
	return "is not evicted: " + inWords(err), false
}

// inWords returns an error with its causes: a refusal for a PodDisruptionBudget names it there.
func inWords(err error) string {
	words := []string{err.Error()}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			words = append(words, cause.Message)
		}
	}
	return strings.Join(words, " ")
}
