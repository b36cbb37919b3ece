package nodereboot

import (
	"errors"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// setTransforms makes the caches keep no more of each object than is read here.
func setTransforms(nodes informer.Cache[*corev1.Node], leases informer.Cache[*coordinationv1.Lease]) error {
	return errors.Join(
		nodes.SetTransform(informer.Stripped(Strip)),
		leases.SetTransform(informer.Stripped(stripLease)),
	)
}

// Strip removes from a node what is not read here.
func Strip(node *corev1.Node) {
	kept := map[string]string{}
	for _, name := range []string{request.Needed, request.Next, request.Now, request.Granted, request.InProgress} {
		if value, ok := node.Annotations[name]; ok {
			kept[name] = value
		}
	}
	node.Annotations, node.ManagedFields = kept, nil
	node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	node.Status = corev1.NodeStatus{Conditions: slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })}
}

// stripLease removes from a Lease all metadata that is not read here.
func stripLease(lease *coordinationv1.Lease) {
	lease.Annotations, lease.Labels, lease.OwnerReferences, lease.ManagedFields = nil, nil, nil, nil
}
