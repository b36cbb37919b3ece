package podtimestamp

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// The reasons of the events, which are about Pods.
const (
	ReasonStamped = "Stamped"      // the Pod has got its timestamp
	ReasonRefused = "StampRefused" // the API server refuses the timestamp
	ReasonDropped = "StampDropped" // the API server accepts the timestamp but does not store it
)

// warn records, once for each Pod, why the Pod does not get its timestamp.
func (c *Controller) warn(name cache.ObjectName, o Observed, reason string, err error) {
	if c.warnings.IsNew(name, o.Pod.UID) {
		c.record(name, o, corev1.EventTypeWarning, reason, "Retrying: "+err.Error())
	}
}

func (c *Controller) record(name cache.ObjectName, o Observed, eventType, reason, note string) {
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: name.Namespace, Name: name.Name, UID: o.Pod.UID, ResourceVersion: o.Pod.ResourceVersion}
	c.recorder.Eventf(pod, nil, eventType, reason, "Stamp", "%s", note)
}
