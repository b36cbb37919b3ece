package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	coreinformers "k8s.io/client-go/informers/core/v1"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// idlePeriod is how often nodes are looked at while kubelets only report that nothing has
// changed. A step that the API server refuses is not repeated with each such report.
const idlePeriod = time.Minute

// watchNodes queues a sync when a node changes.
func (c *Controller) watchNodes(nodes coreinformers.NodeIndexInformer) error {
	registration, err := nodes.AddTypedEventHandler(coreinformers.NodeHandlerFuncs{
		AddFunc: func(*corev1.Node) { c.queue() },
		UpdateFunc: func(before, after *corev1.Node) {
			if isAlike(before, after) {
				c.AddAfter(allNodes, idlePeriod)
			} else {
				c.queue()
			}
		},
		DeleteFunc: func(coreinformers.DeletedNode) { c.queue() },
	})
	if err != nil {
		return err
	}
	c.WaitFor(registration.HasSyncedChecker())
	return nodes.SetTransform(func(object any) (any, error) {
		if node, ok := object.(*corev1.Node); ok {
			strip(node)
		}
		return object, nil
	})
}

func (c *Controller) queue() { c.AddAfter(allNodes, batchPeriod) }

// strip removes from a node what is not read here.
func strip(node *corev1.Node) {
	kept := map[string]string{}
	for _, name := range []string{request.Needed, request.Granted, request.Agent} {
		if value, ok := node.Annotations[name]; ok {
			kept[name] = value
		}
	}
	node.Annotations, node.ManagedFields = kept, nil
	node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	conditions := slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })
	for i, c := range conditions {
		conditions[i] = corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}
	}
	node.Status = corev1.NodeStatus{Conditions: conditions}
}

// isAlike reports whether nothing has changed that is read here.
func isAlike(before, after *corev1.Node) bool {
	previous := *before
	previous.ResourceVersion = after.ResourceVersion
	return equality.Semantic.DeepEqual(&previous, after)
}
