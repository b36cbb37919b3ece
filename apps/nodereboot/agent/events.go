package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// The reasons of the events, which are about the Node.
const (
	ReasonRequested  = "RebootRequested" // because of the sentinel
	ReasonWithdrawn  = "RebootWithdrawn"
	ReasonStarted    = "RebootStarted"
	ReasonRebooting  = "Rebooting"
	ReasonGivenBack  = "RebootNotBegun" // the permission is over, or is none
	ReasonDrainWaits = "RebootDrainWaits"
	ReasonFailed     = "RebootFailed" // the command failed
	ReasonGivenUp    = "RebootGivenUp"
	ReasonFinished   = "RebootFinished"
	ReasonUnable     = "RebootImpossible" // this agent cannot reboot its host
)

// maxMessage is the length in bytes of the longest message: that about a node with many
// Pods could be longer than anybody reads.
const maxMessage = 1024

// patience is how long the sentinel file may be unknown before that is reported.
const patience = 30 * time.Second

// report records that a step was taken, best effort.
func (a *Agent) report(ctx context.Context, node *corev1.Node, d Decision) {
	switch d.Step {
	case Request:
		message := a.config.SentinelFile + " requests a reboot"
		if request.IsDeclined(node) {
			message += ", but the annotation " + request.Needed + " says no"
		}
		a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonRequested, message)
	case Withdraw:
		message := "No reboot is requested any more: " + a.config.SentinelFile + " is gone"
		if d.Annotations[request.Since] != nil {
			message = "The node was rebooted meanwhile, but " + a.config.SentinelFile + " still exists"
		}
		a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonWithdrawn, message)
	case Begin:
		a.tryRecord(ctx, node, corev1.EventTypeNormal, ReasonStarted, "The node will be cordoned, drained and rebooted")
	case GiveBack:
		a.tryRecord(ctx, node, corev1.EventTypeWarning, ReasonGivenBack, whyGivenBack(node, time.Now()))
	case Finish:
		eventType, message := corev1.EventTypeNormal, "The node was rebooted and is Ready"
		if next := d.Annotations[request.Needed]; next != nil {
			eventType, message = corev1.EventTypeWarning, fmt.Sprintf("%s, but %s still exists; the next reboot is requested for %s", message, a.config.SentinelFile, *next)
		}
		a.tryRecord(ctx, node, eventType, ReasonFinished, message)
	default:
	}
}

// reportTrouble records, once for each reason, that nothing can be decided, if err says so, or
// that the host cannot be rebooted. What is only not known yet has some time.
func (a *Agent) reportTrouble(ctx context.Context, node *corev1.Node, err error) {
	message := "The agent cannot decide about reboots of this node: "
	if err == nil {
		err, message = a.unable, "The agent cannot reboot this node and requests no reboot: "
	}
	if err == nil {
		a.trouble, a.troubleSince = "", time.Time{}
		return
	}
	if a.troubleSince.IsZero() {
		a.troubleSince = time.Now()
	}
	if a.trouble == err.Error() || errors.Is(err, errSentinelUnknown) && time.Since(a.troubleSince) < patience {
		return
	}
	a.trouble = err.Error()
	a.tryRecord(ctx, node, corev1.EventTypeWarning, ReasonUnable, message+err.Error())
}

// whyGivenBack returns the message about a permission that is given back.
func whyGivenBack(node *corev1.Node, now time.Time) string {
	if _, err := request.Until(node); err != nil {
		return fmt.Sprintf("Reboot not started: annotation %s is %v; the annotation was removed", request.Now, err)
	}
	if request.IsDeclined(node) {
		return fmt.Sprintf("Reboot not started: annotation %s says no", request.Needed)
	}
	return fmt.Sprintf("Reboot not started: the grant expired at %s (node clock: %s); the node is queued again", node.Annotations[request.Now], now.UTC().Format(time.RFC3339))
}

// whyGivenUp returns the message about a reboot that is given up.
func (a *Agent) whyGivenUp(node *corev1.Node, d Decision) string {
	if a.unable != nil {
		return "The reboot was given up, because the agent cannot reboot the node: " + a.unable.Error()
	}
	if d.Annotations[request.Failed] != nil {
		return fmt.Sprintf("The system has not gone down within %s: %s, and the boot ID is still the same. The reboot was given up, and none is requested until someone annotates the node with %s= or touches the sentinel file",
			a.config.Limits.Reboot, cmp.Or(a.outcome, "how the reboot command ended is not known"), request.Needed)
	}
	if request.IsDeclined(node) {
		return fmt.Sprintf("The reboot was given up, because annotation %s says no", request.Needed)
	}
	message := fmt.Sprintf("The node could not be drained within %s, so the reboot was given up; the next one is requested for %s", a.config.Limits.Drain, *d.Annotations[request.Needed])
	if a.drainErr != nil {
		message += ". The last obstacle: " + a.drainErr.Error()
	}
	return message
}

// tryRecord records an event, best effort.
func (a *Agent) tryRecord(ctx context.Context, node *corev1.Node, eventType, reason, message string) {
	if err := a.record(ctx, node, eventType, reason, message); err != nil {
		klog.FromContext(ctx).Info("Event lost", "reason", reason, "message", message, "err", err)
	}
}

// record writes an event about the Node, and returns when it is written: the machine goes
// down soon, so nothing is kept for later. The event's name is derived from its content, so
// an event that is recorded again after a restart exists once. An event that the API server
// refuses would always be refused; that is not an error.
func (a *Agent) record(ctx context.Context, node *corev1.Node, eventType, reason, message string) error {
	klog.FromContext(ctx).Info("Event", "reason", reason, "message", message, "dryRun", a.config.DryRun)
	if a.config.DryRun {
		return nil
	}
	content := fnv.New64a()
	fmt.Fprint(content, node.UID, reason, state(node), a.trouble)
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: util.GenerateEventName(node.Name, int64(content.Sum64()>>1))},
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
	switch {
	case response.IsAlreadyExists(err, corev1.Resource("events"), event.Name):
		return nil
	case response.IsRefusal(err) && !apierrors.IsInternalError(err):
		klog.FromContext(ctx).Error(err, "Event refused", "reason", reason, "message", message)
		return nil
	}
	return err
}
