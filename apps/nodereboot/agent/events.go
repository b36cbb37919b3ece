package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/internal/text"
)

// The reasons of the events, which are about the Node.
const (
	ReasonStarted    = "RebootStarted"
	ReasonDrainWaits = "RebootDrainWaits"
	ReasonRebooting  = "Rebooting"
	ReasonFailed     = "RebootFailed" // the command failed
	ReasonGivenUp    = "RebootGivenUp"
	ReasonFinished   = "RebootFinished"
)

// maxMessage limits a message, in bytes: a node can have many Pods.
const maxMessage = 1024

// whyGivenUp returns the message about a reboot that is given up.
func whyGivenUp(d Decision) string {
	message := "The reboot was given up, because " + d.Why
	if !d.Record.NotBefore.IsZero() {
		message += fmt.Sprintf("; the next attempt is not before %s", d.Record.NotBefore.Format(time.RFC3339))
	}
	return message
}

// recordFinished records that the node is back.
func (a *Agent) recordFinished(ctx context.Context, node *corev1.Node, d Decision) {
	eventType, message := corev1.EventTypeNormal, "The node was rebooted and is Ready"
	switch r := d.Record; {
	case r.Failed != nil:
		eventType, message = corev1.EventTypeWarning, fmt.Sprintf("%s, but %s is still there and requests no other reboot until someone modifies or removes it", message, a.config.SentinelFile)
	case r.Why != "":
		eventType, message = corev1.EventTypeWarning, fmt.Sprintf("%s, but %s; the next reboot is not before %s", message, r.Why, r.NotBefore.Format(time.RFC3339))
	}
	a.record(ctx, node, eventType, ReasonFinished, message)
}

// record writes an event about the Node, best effort. It returns when the API server has answered: the
// machine goes down soon, so nothing is kept for later.
func (a *Agent) record(ctx context.Context, node *corev1.Node, eventType, reason, message string) {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: util.GenerateEventName(node.Name, now.UnixNano())},
		InvolvedObject:      corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		Type:                eventType,
		Reason:              reason,
		Message:             text.Clip(message, maxMessage),
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
		Source:              corev1.EventSource{Component: Name, Host: node.Name},
		ReportingController: Name,
		ReportingInstance:   node.Name,
	}
	_, err := a.kube.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: Name})
	klog.FromContext(ctx).Info("Event", "reason", reason, "message", message, "err", err)
}
