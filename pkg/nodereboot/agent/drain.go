package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	"k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/drain"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// drainAttempt is how long the agent drains before it looks at the Node again.
const drainAttempt = 20 * time.Second

// drain evicts the Pods of the node, as kubectl drain does. An attempt that fails is
// repeated for as long as the decision allows, which is for left from now on.
func (a *Agent) drain(ctx context.Context, node *corev1.Node, left time.Duration) (*corev1.Node, error) {
	if err := a.evict(ctx, min(left, drainAttempt)); err != nil {
		klog.FromContext(ctx).Info("The node is not drained yet", "err", err)
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

// evict makes one attempt to evict all Pods.
func (a *Agent) evict(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var progress, obstacles bytes.Buffer // one line each; drain writes them one at a time
	h := &drain.Helper{
		Ctx:                  ctx,
		Client:               a.kube,
		Force:                a.config.Force,
		GracePeriodSeconds:   -1, // the Pod's own
		IgnoreAllDaemonSets:  true,
		DeleteEmptyDirData:   a.config.DeleteEmptyDirData,
		Timeout:              timeout,
		EvictErrorRetryDelay: retryDelay,
		Out:                  &progress,
		ErrOut:               &obstacles,
		OnPodDeletionOrEvictionStarted: func(pod *corev1.Pod, _ bool) {
			klog.FromContext(ctx).Info("Evicting", "pod", klog.KObj(pod))
		},
	}
	if a.config.DryRun {
		h.DryRunStrategy = util.DryRunServer
	}
	supported, err := drain.CheckEvictionSupport(a.kube)
	if err != nil {
		return fmt.Errorf("finding out whether Pods can be evicted: %w", err)
	}
	if supported.Empty() {
		return errors.New("the API server does not support evictions, and the agent does not delete Pods")
	}
	pods, errs := h.GetPodsForDeletion(a.config.NodeName)
	if len(errs) > 0 {
		return errors.New(ourFlags.Replace(utilerrors.NewAggregate(errs).Error()))
	}
	if err := h.DeleteOrEvictPods(pods.Pods()); err != nil {
		// The obstacles say more than that an attempt took too long.
		lines := strings.Split(strings.TrimSpace(obstacles.String()), "\n")
		slices.Sort(lines)
		return fmt.Errorf("evicting Pods: %s: %w", strings.Join(slices.Compact(lines), "; "), err)
	}
	if a.config.DryRun {
		klog.FromContext(ctx).Info("These Pods would be evicted", "pods", klog.KObjSlice(pods.Pods()))
	}
	return nil
}

// ourFlags gives flags of kubectl drain, which its errors name, the names that they have here.
var ourFlags = strings.NewReplacer("--force", "-drain-force", "--delete-emptydir-data", "-drain-delete-emptydir-data")
