package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
)

// tried is the annotation that the agent tries to set in a dry run. Only the policy that keeps
// it to its own annotations of its own Node refuses that.
const tried = "controller.nicoleh.io/try"

// sync takes steps, and reports after them that this agent can reboot its host, if a reboot
// of it is asked for: a reboot is granted only to such a node. An agent that cannot, that
// only makes a dry run, or whose steps have ended with an error, reports nothing.
func (a *Agent) sync(ctx context.Context, _ cache.ObjectName) (requeueAfter time.Duration, err error) {
	node, requeueAfter, err := a.takeSteps(ctx)
	if err != nil {
		return requeueAfter, err
	}
	if node == nil {
		return requeueAfter, nil
	}
	if isAble := a.unable == nil && !a.config.DryRun; !isAble || !isAskedFor(node) {
		a.isRestricted = false
		return requeueAfter, nil
	}
	if left := request.ReportEvery - time.Since(a.reported); left > 0 && a.isRestricted {
		return pace.Sooner(requeueAfter, left), nil
	}
	if !a.isRestricted {
		if err := a.requireRestrictions(ctx); err != nil {
			return pace.Sooner(requeueAfter, retryDelay), worker.NoBackoff(err)
		}
		a.isRestricted = true
	}
	if err := a.renewLease(ctx, node); err != nil {
		return 0, err
	}
	a.reported = time.Now()
	return pace.Sooner(requeueAfter, request.ReportEvery), nil
}

// isAskedFor reports whether the controller may want to know soon that there is an agent.
func isAskedFor(node *corev1.Node) bool {
	at, err := request.NotBefore(node)
	isDue := request.IsNeeded(node) && err == nil && time.Until(at) < request.ReportedWithin
	_, isGranted := node.Annotations[request.Now]
	return isDue || request.IsNext(node) || isGranted
}

// requireRestrictions returns nil if a policy keeps the agent to its own Node and its own
// annotations. It may be created after the agent, takes effect only some time after that, and
// may be deleted, so this is asked before the first report for each request.
func (a *Agent) requireRestrictions(ctx context.Context) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, tried)
	_, err := a.kube.CoreV1().Nodes().Patch(ctx, a.config.NodeName, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: Name, DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return errors.New("no ValidatingAdmissionPolicy keeps this agent to its own Node: check that the policies of apps/nodereboot/install.yaml exist and that the agent runs as their service account")
	case response.IsByPolicy(err):
		return nil
	default:
		return fmt.Errorf("finding out whether policies restrict this agent: %w", err)
	}
}

// renewLease renews the Lease, which is deleted with the Node.
func (a *Agent) renewLease(ctx context.Context, node *corev1.Node) error {
	seconds, now := int32(request.ReportedWithin.Seconds()), metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       a.config.LeaseNamespace,
			Name:            node.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	body, err := json.Marshal(lease)
	if err != nil {
		return fmt.Errorf("encoding the Lease: %w", err)
	}
	leases := a.kube.CoordinationV1().Leases(a.config.LeaseNamespace)
	_, err = leases.Patch(ctx, lease.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: Name})
	if response.IsStale(err, coordinationv1.Resource("leases"), lease.Name) {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: Name})
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease: %w", err)
	}
	return nil
}
