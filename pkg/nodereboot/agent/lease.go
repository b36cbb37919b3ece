package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// keepLease reports, until ctx ends, that the agent runs and can reboot its host: a reboot
// is granted only to such a node. An agent that cannot, or that only makes a dry run,
// reports nothing.
func (a *Agent) keepLease(ctx context.Context) {
	if a.unable != nil || a.config.DryRun || !cache.WaitFor(ctx, "", a.hasSynced) {
		return
	}
	isRestricted := false
	for logged := ""; ; {
		var err error
		if !isRestricted {
			err = a.requireRestrictions(ctx)
			isRestricted = err == nil
		}
		if err == nil {
			err = a.renewLease(ctx)
		}
		wait, text := request.ReportEvery, ""
		if err != nil {
			wait, text = retryDelay, err.Error()
		}
		if text != logged && ctx.Err() == nil {
			klog.FromContext(ctx).Info("Reporting that the agent runs", "succeeded", err == nil, "err", err)
			logged = text
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// requireRestrictions returns nil if the API server keeps the agent from granting itself a
// reboot. A policy takes effect only some time after it was created, and may be created
// after the agent.
func (a *Agent) requireRestrictions(ctx context.Context) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"try"}}}`, request.Now)
	_, err := a.kube.CoreV1().Nodes().Patch(ctx, a.config.NodeName, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: Name, DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return errors.New("no ValidatingAdmissionPolicy keeps this agent from granting itself a reboot: check that the policies of artifacts/reboot-agent.yaml exist and that the agent runs as their service account")
	case apierrors.IsForbidden(err):
		return nil
	default:
		return fmt.Errorf("finding out whether policies restrict this agent: %w", err)
	}
}

// renewLease renews the Lease, which is deleted with the Node.
func (a *Agent) renewLease(ctx context.Context) error {
	node, err := a.nodes.Get(a.config.NodeName)
	if err != nil {
		return fmt.Errorf("reading the Node from the cache: %w", err)
	}
	lease := coordinationv1ac.Lease(a.config.NodeName, a.config.LeaseNamespace).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName(node.Name).WithUID(node.UID)).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(a.config.NodeName).
			WithLeaseDurationSeconds(int32(request.ReportedWithin.Seconds())).
			WithRenewTime(metav1.NewMicroTime(time.Now())))
	if _, err = a.kube.CoordinationV1().Leases(a.config.LeaseNamespace).Apply(ctx, lease, metav1.ApplyOptions{FieldManager: Name, Force: true}); err != nil {
		return fmt.Errorf("renewing the Lease: %w", err)
	}
	return nil
}
