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
	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

const (
	// drainAttempt is how long one attempt to drain can take.
	drainAttempt = 20 * time.Second
	// drainPatience is how long a drain may wait before an event says what for.
	drainPatience = time.Minute
	// tellEvery is how often that is said again.
	tellEvery = 30 * time.Minute
	// detachFor is how long volumes may take to detach after the last Pod has ended.
	detachFor = 2 * time.Minute
)

// drain is what this process knows of its drain of the node.
type drain struct {
	Drained
	pods    sets.Set[types.UID] // in the first list after the cordon; nil before
	emptyAt time.Time           // since when none of them is left; zero before
	toldAt  time.Time           // when an event has last said what it waits for; zero before
	isSaid  bool                // whether an event says that it is done, and the node is being rebooted
}

// look returns why kubectl drain would refuse to drain the node, for the first such Pod; empty if it would not
// refuse.
func (a *Agent) look(ctx context.Context) (*string, error) {
	if !a.config.Drain {
		return new(string), nil
	}
	pods, err := a.listPods(ctx)
	if err != nil {
		return nil, err
	}
	return new(a.blockers(pods)), nil
}

// listPods lists the Pods of the node that have to leave it.
func (a *Agent) listPods(ctx context.Context) ([]corev1.Pod, error) {
	ofNode := fields.OneTermEqualSelector("spec.nodeName", a.config.NodeName).String()
	pods, err := a.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: ofNode})
	if err != nil {
		return nil, fmt.Errorf("listing the node's Pods: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return stays(&pod) }), nil
}

// blockers returns why one of these Pods must not be evicted, by the flags; empty if all may be.
func (a *Agent) blockers(pods []corev1.Pod) string {
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		hasEmptyDir := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil })
		switch {
		case pod.DeletionTimestamp != nil:
		case metav1.GetControllerOf(pod) == nil && !a.config.Force:
			return "the Pod " + name + " has no controller that would create it again (-drain-force evicts it)"
		case hasEmptyDir && !a.config.DeleteEmptyDirData:
			return "the Pod " + name + " has an emptyDir, whose content would be lost (-drain-delete-emptydir-data evicts it)"
		}
	}
	return ""
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

// drainNode makes one attempt to evict the Pods of the node. It is repeated until none is left
// that has to leave, and no volume is attached, for as long as the decision allows. If a Pod must not be
// evicted, it evicts none, and says why.
func (a *Agent) drainNode(ctx context.Context, node *corev1.Node) (blocked *string) {
	attempt, cancel := context.WithTimeout(ctx, drainAttempt)
	defer cancel()
	pods, err := a.listPods(attempt)
	if err != nil {
		a.wait(ctx, node, []string{err.Error()}, a.drain.LeavesBy)
		return nil
	}
	if a.drain.pods == nil {
		if why := a.blockers(pods); why != "" {
			return &why
		}
		a.drain.pods = sets.New[types.UID]()
		for i := range pods {
			a.drain.pods.Insert(pods[i].UID)
		}
	}
	// As for kubectl drain, a Pod that has come since the first list is neither evicted nor in the way: it
	// tolerates the cordon, and would come again. It ends with the system.
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !a.drain.pods.Has(pod.UID) })
	obstacles, leavesBy := a.evict(attempt, pods)
	if len(obstacles) == 0 {
		obstacles, leavesBy = a.attached(node)
	}
	if !leavesBy.IsZero() {
		leavesBy = leavesBy.Add(retryDelay + drainAttempt) // when the next attempt has noticed
	}
	a.wait(ctx, node, obstacles, leavesBy)
	return nil
}

// wait notes what the drain waits for; nothing means that it is done. A drain may never succeed, so an
// event says it after a while, and again every half hour.
func (a *Agent) wait(ctx context.Context, node *corev1.Node, obstacles []string, leavesBy time.Time) {
	a.drain.Drained = Drained{IsDone: len(obstacles) == 0, LeavesBy: leavesBy}
	if a.drain.IsDone {
		return
	}
	a.drain.Obstacle = text.Clip(strings.Join(obstacles, "; "), maxMessage/2)
	klog.FromContext(ctx).Info("Node not drained yet", "obstacles", obstacles)
	if record := request.Read(node).Record; record != nil && record.Work != nil && time.Since(record.Work.Since) > drainPatience && time.Since(a.drain.toldAt) > tellEvery {
		a.drain.toldAt = time.Now()
		a.record(ctx, node, corev1.EventTypeWarning, ReasonDrainWaits, "The node is not drained yet: "+a.drain.Obstacle)
	}
}

// attached returns the volumes that are still attached to the node, and until when they are waited for: a
// reboot that comes before they are detached delays their Pods elsewhere. Volumes of DaemonSets stay attached.
func (a *Agent) attached(node *corev1.Node) (obstacles []string, until time.Time) {
	if a.drain.emptyAt.IsZero() {
		a.drain.emptyAt = time.Now()
	}
	if until = a.drain.emptyAt.Add(detachFor); time.Now().Before(until) {
		for _, volume := range node.Status.VolumesAttached {
			obstacles = append(obstacles, fmt.Sprintf("the volume %s is still attached", volume.Name))
		}
	}
	return obstacles, until
}

// evict evicts these Pods concurrently. It returns why some of them have not left yet and, if all remaining Pods are
// ending, when the last one will have ended.
func (a *Agent) evict(ctx context.Context, pods []corev1.Pod) (obstacles []string, leavesBy time.Time) {
	why, until := make([]string, len(pods)), make([]time.Time, len(pods))
	var evictions sync.WaitGroup
	for i := range pods {
		evictions.Go(func() { why[i], until[i] = a.evictPod(ctx, &pods[i]) })
	}
	evictions.Wait()
	isStuck := false
	for i := range pods {
		if why[i] == "" {
			continue
		}
		obstacles = append(obstacles, fmt.Sprintf("%s/%s %s", pods[i].Namespace, pods[i].Name, why[i]))
		isStuck = isStuck || until[i].IsZero()
		if until[i].After(leavesBy) {
			leavesBy = until[i]
		}
	}
	if isStuck {
		return obstacles, time.Time{}
	}
	return obstacles, leavesBy
}

// evictPod evicts a Pod, but no other of the same name. It returns why the Pod is still in the way of the reboot,
// empty if it is not, and until when; zero if that is unknown.
func (a *Agent) evictPod(ctx context.Context, pod *corev1.Pod) (why string, until time.Time) {
	if deleted := pod.DeletionTimestamp; deleted != nil {
		until = deleted.Add(request.ClockSkew)
		if time.Now().After(until) {
			klog.FromContext(ctx).Info("Pod deletion hangs; not waiting for it", "pod", klog.KObj(pod), "deletion", deleted.Time)
			return "", until
		}
		return "may take until " + deleted.UTC().Format(time.RFC3339) + " to end", until
	}
	err := a.kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Evicted", "pod", klog.KObj(pod))
		return "is being evicted", time.Now().Add(retryDelay + request.ClockSkew)
	case response.IsStale(err, corev1.Resource("pods"), pod.Name): // it is gone, as the next list says
		return "has changed meanwhile", time.Now().Add(retryDelay + request.ClockSkew)
	}
	return "is not evicted: " + inWords(err), time.Time{}
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
