package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/pkg/kit/text"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// The reasons of the events, which are about the Node.
const (
	ReasonRequested = "RebootRequested" // because of the sentinel
	ReasonStarted   = "RebootStarted"
	ReasonRebooting = "Rebooting"
	ReasonFailed    = "RebootFailed" // the command failed; it will be run again
	ReasonGivenUp   = "RebootGivenUp"
	ReasonFinished  = "RebootFinished"
	ReasonUnable    = "RebootImpossible" // this agent cannot reboot its host
)

// maxNote is the length in bytes of the longest note that the API server accepts.
const maxNote = 1024

// report records that a step was taken, best effort.
func (a *Agent) report(ctx context.Context, node *corev1.Node, d Decision) {
	switch d.Step {
	case Request:
		a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonRequested, a.config.SentinelFile+" requests a reboot")
	case Begin:
		a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonStarted, "The node will be cordoned, drained and rebooted")
	case Finish:
		eventType, note := corev1.EventTypeNormal, "The node was rebooted and is Ready"
		if next := d.Annotations[request.Needed]; next != nil {
			eventType, note = corev1.EventTypeWarning, fmt.Sprintf("%s, but %s still exists; the next reboot is requested for %s", note, a.config.SentinelFile, *next)
		}
		a.tryRecord(ctx, node, eventType, ReasonFinished, note)
	default:
	}
}

// reportUnable records once that the host cannot be rebooted, if that is so.
func (a *Agent) reportUnable(ctx context.Context, node *corev1.Node) {
	if a.unable != nil && !a.isReported {
		a.isReported = true
		klog.FromContext(ctx).Error(a.unable, "This host cannot be rebooted: no reboot is requested or begun")
		a.tryRecord(ctx, node, corev1.EventTypeWarning, ReasonUnable, "The agent cannot reboot this node and requests no reboot: "+a.unable.Error())
	}
}

// whyGivenUp returns the note about a reboot that is given up.
func (a *Agent) whyGivenUp(d Decision) string {
	if a.unable != nil {
		return "The reboot was given up, because this agent cannot reboot the node: " + a.unable.Error()
	}
	note := fmt.Sprintf("The node could not be drained within %s, so the reboot was given up; the next one is requested for %s", a.config.Limits.Drain, *d.Annotations[request.Needed])
	if a.drainErr != nil {
		note += ". The last obstacle: " + a.drainErr.Error()
	}
	return note
}

// tryRecord records an event, best effort.
func (a *Agent) tryRecord(ctx context.Context, node *corev1.Node, eventType, reason, note string) {
	if err := a.record(ctx, node, eventType, reason, note); err != nil {
		klog.FromContext(ctx).Info("Event lost", "reason", reason, "note", note, "err", err)
	}
}

// record writes an event about the Node, and returns when it is written. The event's name
// is derived from its content, so an event that is recorded again after a restart exists
// once. An event that the API server refuses would always be refused; that is not an
// error.
func (a *Agent) record(ctx context.Context, node *corev1.Node, eventType, reason, note string) error {
	klog.FromContext(ctx).Info("Event", "reason", reason, "note", note, "dryRun", a.config.DryRun)
	if a.config.DryRun {
		return nil
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, node.UID, reason, state(node))
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      fmt.Sprintf("%s.%x", strings.TrimRight(text.Clip(node.Name, 230), "-."), hash.Sum64()),
		},
		EventTime:           metav1.NewMicroTime(a.clock.Now()),
		ReportingController: Name,
		ReportingInstance:   text.Clip(a.config.NodeName, 128),
		Action:              "Reboot",
		Reason:              reason,
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		Note:                text.Clip(note, maxNote),
		Type:                eventType,
	}
	_, err := a.kube.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: Name})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		klog.FromContext(ctx).Error(err, "Event refused", "reason", reason, "note", note)
		return nil
	}
	return err
}
