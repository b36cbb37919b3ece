// What to report. Read Status, then conclude and cause, which choose the conditions; StatusEvent chooses the
// event. pkg/kit/pace/pace.go comes next.

package icecream

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/internal/text"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// Limits of a report: nodes of a status, and bytes of texts.
const (
	maxNodes     = 100
	maxPlacement = 256
	maxMessage   = 1024 // of an event (core/v1)
)

// Status returns what to report while plan, if it is open, is still unwritten. recheckAfter is how long the status stays right if no
// object changes; 0 is forever.
func Status(o Observed, plan Plan) (s v1alpha1.IcecreamStatus, recheckAfter time.Duration) {
	s = v1alpha1.IcecreamStatus{
		ObservedGeneration: o.Icecream.Generation,
		Conditions:         slices.Clone(o.Icecream.Status.Conditions),
		Selector:           metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector(o.Icecream)}),
	}
	if d := o.Own(); d != nil {
		s.Replicas = d.Status.Replicas
		s.ReadyReplicas = d.Status.ReadyReplicas
		s.AvailableReplicas = d.Status.AvailableReplicas
		s.UpdatedReplicas = updated(d)
	}
	nodes := o.placement()
	s.NodeCount = int32(len(nodes))
	s.Nodes = nodes[:min(len(nodes), maxNodes)]
	s.Placement = oneLine(nodes, maxPlacement, func(n v1alpha1.IcecreamNode) string { return fmt.Sprintf("%s (%d)", n.Name, n.Pods) })
	conclusion, recheckAfter := o.conclude(plan, nodes)
	conclusion.SetOn(&s.Conditions, s.ObservedGeneration, o.Now)
	return s, pace.Sooner(recheckAfter, plan.Wait)
}

// Own returns the live Deployment if the Icecream owns it; otherwise nil.
func (o Observed) Own() *appsv1.Deployment {
	if o.Live != nil && IsControlledBy(o.Live, o.Icecream) {
		return o.Live
	}
	return nil
}

// conclude returns the cause, and makes it Stalled if it has lasted too long.
func (o Observed) conclude(plan Plan, nodes []v1alpha1.IcecreamNode) (c kstatus.Conclusion, recheckAfter time.Duration) {
	c, recheckAfter = o.cause(plan, nodes)
	d := o.Own()
	switch {
	case c.State != kstatus.Reconciling:
	case slices.Contains(endedByOthers, c.Reason):
		left := o.untilStalled(c.Reason)
		if left == 0 {
			c.State = kstatus.Stalled
		}
		recheckAfter = pace.Sooner(recheckAfter, left)
	case hasTimedOut(d):
		c.State = kstatus.Stalled
		if c.Reason == v1alpha1.ReasonProgressing {
			c.Reason, c.Message = v1alpha1.ReasonProgressDeadlineExceeded, condition(d, appsv1.DeploymentProgressing).Message
		}
	}
	return c, recheckAfter
}

// endedByOthers are the reasons that this controller can only wait out.
var endedByOthers = []string{
	v1alpha1.ReasonDeploymentRefused,
	v1alpha1.ReasonErrResourceExists,
	v1alpha1.ReasonDeploymentContested,
	v1alpha1.ReasonDeploymentTerminating,
}

// With one of these reasons, an Icecream is Stalled once Ready has been False for maxWait, even if other reasons came
// first. A refusal must also have lasted for minRefusal.
const (
	maxWait    = 10 * time.Minute
	minRefusal = time.Minute
)

// untilStalled returns the time until the Icecream is Stalled for this reason. Once Stalled, it stays so while reason
// and generation stay the same. Otherwise a restart would end it, because a new process does not know how long a refusal
// has lasted.
func (o Observed) untilStalled(reason string) time.Duration {
	was := ptr.Deref(meta.FindStatusCondition(o.Icecream.Status.Conditions, v1alpha1.ConditionStalled), metav1.Condition{})
	if was.Status == metav1.ConditionTrue && was.Reason == reason && was.ObservedGeneration == o.Icecream.Generation {
		return 0
	}
	left := cmp.Or(o.unreadySince(), o.Now).Add(maxWait).Sub(o.Now)
	if reason == v1alpha1.ReasonDeploymentRefused {
		left = max(left, o.Last.Since.Add(minRefusal).Sub(o.Now))
	}
	return max(0, left)
}

// unreadySince returns when the condition Ready became False; the zero time if it is not False.
func (o Observed) unreadySince() time.Time {
	ready := meta.FindStatusCondition(o.Icecream.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return time.Time{}
	}
	return ready.LastTransitionTime.Time
}

// cause returns why the Icecream is Ready or not. If there are several causes, the first case counts.
func (o Observed) cause(plan Plan, nodes []v1alpha1.IcecreamNode) (c kstatus.Conclusion, recheckAfter time.Duration) {
	d, isOpen := o.Own(), plan.IsOpen()
	isContested, quietAfter := o.Last.IsContested(isOpen, o.Now)
	switch {
	case plan.Held.Reason != "":
		return plan.Held, 0
	case isOpen && o.Last.Failure != nil:
		return ofFailure(o.Last.Failure), 0
	case isContested:
		return reconciling(v1alpha1.ReasonDeploymentContested,
			"Somebody keeps reverting changes to Deployment %q, or deleting it; its managedFields or the audit log can say who",
			DeploymentName(o.Icecream)), quietAfter
	case d == nil:
		return reconciling(v1alpha1.ReasonProgressing, "The Deployment is being created"), 0
	}
	worst, recheckAfter := o.problem()
	left := o.untilPodsShow(nodes)
	recheckAfter = pace.Sooner(recheckAfter, left)
	// While the Deployment's status is about an earlier spec, what it says counts only if the Icecream already reports it.
	isCurrent := func(reason string) bool { return isObserved(d) || o.isReported(reason) }
	creation, progress := condition(d, appsv1.DeploymentReplicaFailure), condition(d, appsv1.DeploymentProgressing)
	switch {
	case isComplete(d) && !isOpen && replicas(d) < replicasOf(o.Icecream):
		return reconciling(v1alpha1.ReasonDeploymentAltered, "An admission policy or webhook has set the replicas of Deployment %q to %d",
			d.Name, replicas(d)), recheckAfter
	case isComplete(d) && !isOpen && worst.Reason != podproblem.CrashLoop && left == 0: // A crash counts for a minute.
		return kstatus.Conclusion{State: kstatus.Ready, Reason: v1alpha1.ReasonAvailable, Message: o.available()}, recheckAfter
	case worst.Reason != "":
		return reconciling(worst.Reason, "%s", worst.Message), recheckAfter
	case progress.Status == corev1.ConditionFalse && progress.Reason == "ReplicaSetCreateError":
		// The Deployment controller does not raise observedGeneration then.
		return reconciling(v1alpha1.ReasonReplicaFailure, "%s", progress.Message), recheckAfter
	case isCurrent(v1alpha1.ReasonReplicaFailure) && creation.Status == corev1.ConditionTrue: // by a quota, for example
		return reconciling(v1alpha1.ReasonReplicaFailure, "%s", creation.Message), recheckAfter
	case isCurrent(v1alpha1.ReasonDeploymentPaused) && isPausedMidRollout(d):
		return reconciling(v1alpha1.ReasonDeploymentPaused, "Deployment %q is paused; run kubectl rollout resume deployment/%[1]s",
			d.Name), recheckAfter
	default:
		return reconciling(v1alpha1.ReasonProgressing, "%s", o.available()), recheckAfter
	}
}

// isPausedMidRollout reports whether a Deployment was paused before it had replaced all of its Pods, or created any.
func isPausedMidRollout(d *appsv1.Deployment) bool {
	isMidRollout := d.Status.UpdatedReplicas < d.Status.Replicas || d.Status.Replicas == 0 && replicas(d) > 0
	return d.Spec.Paused && isMidRollout
}

func reconciling(reason, format string, args ...any) kstatus.Conclusion {
	return kstatus.Conclusion{State: kstatus.Reconciling, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// ofFailure returns what to report about a write that was refused, or that has failed for ten seconds.
func ofFailure(err error) kstatus.Conclusion {
	switch {
	case response.IsOwnValidation(err): // Only an edit can help.
		return kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: err.Error()}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconciling(v1alpha1.ReasonDeploymentTerminating, "The namespace is being deleted")
	default:
		return reconciling(v1alpha1.ReasonDeploymentRefused, "%s", err)
	}
}

// isObserved reports whether the Deployment's status describes its current spec.
func isObserved(d *appsv1.Deployment) bool {
	return d != nil && d.Status.ObservedGeneration >= d.Generation
}

// hasTimedOut reports whether the rollout of the Deployment's current spec has made no progress for its
// progressDeadlineSeconds, which this controller does not set.
func hasTimedOut(d *appsv1.Deployment) bool {
	return isObserved(d) && condition(d, appsv1.DeploymentProgressing).Reason == v1alpha1.ReasonProgressDeadlineExceeded
}

// isComplete reports whether a Deployment has exactly the Pods that it asks for, all available and up to date.
// Terminating Pods do not count, as in its status.
func isComplete(d *appsv1.Deployment) bool {
	s := d.Status
	return isObserved(d) && s.Replicas == replicas(d) && s.UpdatedReplicas == replicas(d) && s.AvailableReplicas == replicas(d)
}

// updated returns how many Pods are made from the current template.
func updated(d *appsv1.Deployment) int32 {
	if !isObserved(d) {
		return 0
	}
	return d.Status.UpdatedReplicas
}

// untilPodsShow returns how long to wait for the cache to show all Pods, so that a Ready Icecream lists its nodes. It
// ends a minute after the Deployment's latest progress, or after Ready became False if that was later.
func (o Observed) untilPodsShow(nodes []v1alpha1.IcecreamNode) time.Duration {
	d := o.Own()
	var placed, ready int32
	for _, node := range nodes {
		placed += node.Pods
		ready += node.ReadyPods
	}
	if placed == d.Status.Replicas && ready == d.Status.Replicas {
		return 0
	}
	since := condition(d, appsv1.DeploymentProgressing).LastUpdateTime.Time
	if at := o.unreadySince(); at.After(since) {
		since = at
	}
	return min(time.Minute, max(0, since.Add(time.Minute).Sub(o.Now)))
}

// condition returns a condition of a Deployment; the zero value if it has none of the type.
func condition(d *appsv1.Deployment, of appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	if d != nil {
		for _, c := range d.Status.Conditions {
			if c.Type == of {
				return c
			}
		}
	}
	return appsv1.DeploymentCondition{}
}

// available says how many Pods are available and up to date.
func (o Observed) available() string {
	d := o.Own()
	switch {
	case replicas(d) == 0 && d.Status.Replicas == 0:
		return "Scaled to zero"
	case updated(d) < d.Status.Replicas || !isObserved(d):
		return fmt.Sprintf("%d of %s available, %d up to date", d.Status.AvailableReplicas, pods(replicas(d)), updated(d))
	default:
		return fmt.Sprintf("%d of %s available", d.Status.AvailableReplicas, pods(replicas(d)))
	}
}

// Event is a Kubernetes event about an Icecream; the zero value means none.
type Event struct{ Type, Reason, Message string }

// WriteEvent returns the event for a write that the API server answered with stored. isWhole is false if only the
// replicas were written.
func (o Observed) WriteEvent(stored *appsv1.Deployment, isWhole bool) Event {
	e := Event{Type: corev1.EventTypeNormal}
	switch {
	case o.Live == nil:
		e.Reason, e.Message = v1alpha1.ReasonDeploymentCreated, fmt.Sprintf("Created Deployment %q", stored.Name)
		if o.Icecream.Status.Replicas > 0 {
			e.Message += " again; what others had set in it is gone"
		}
	case o.Live.ResourceVersion == stored.ResourceVersion:
		return Event{}
	case !IsControlledBy(o.Live, o.Icecream):
		e.Reason, e.Message = v1alpha1.ReasonDeploymentAdopted, fmt.Sprintf("Adopted Deployment %q", stored.Name)
	default:
		e.Reason, e.Message = v1alpha1.ReasonDeploymentUpdated, fmt.Sprintf("Updated Deployment %q", stored.Name)
	}
	if image := imageOf(stored); isWhole && image != o.Icecream.Spec.Image || replicas(stored) != replicasOf(o.Icecream) {
		e.Reason = v1alpha1.ReasonDeploymentAltered
		e.Message += fmt.Sprintf("; an admission policy or webhook has made it %s of %q", pods(replicas(stored)), image)
		e.Message = text.Clip(e.Message, maxMessage)
	}
	return e
}

// StatusEvent returns the event for a change of the status: a problem, a new placement, or that the Icecream is Ready.
// While the generation and the reason stay the same, a problem has one event.
func StatusEvent(before, s v1alpha1.IcecreamStatus) Event {
	isNew := before.ObservedGeneration != s.ObservedGeneration
	was, is := ReadyOf(before), ReadyOf(s)
	wasStalled := meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionStalled)
	isStalled := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled)
	const synced = "Icecream synced successfully"
	limit := maxMessage - len(", 5000000 more; "+synced)
	placement := oneLine(s.Nodes, limit, func(n v1alpha1.IcecreamNode) string { return pods(n.Pods) + " on " + n.Name })
	switch {
	case isWarning(is.Reason) && (isNew || was.Reason != is.Reason), !isWarning(is.Reason) && isStalled && (isNew || !wasStalled):
		return Event{corev1.EventTypeWarning, is.Reason, is.Message}
	case is.Status == metav1.ConditionTrue && (isNew || was.Status != metav1.ConditionTrue):
		return Event{corev1.EventTypeNormal, v1alpha1.ReasonSynced, strings.TrimPrefix(placement+"; "+synced, "; ")}
	case HasMoved(before, s) && placement != "" && is.Reason != v1alpha1.ReasonProgressing: // Synced follows, with all nodes.
		return Event{corev1.EventTypeNormal, v1alpha1.ReasonScheduled, placement}
	default:
		return Event{}
	}
}

// ReadyOf returns the Ready condition of a status, or an Unknown one if there is none.
func ReadyOf(s v1alpha1.IcecreamStatus) metav1.Condition {
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready != nil {
		return *ready
	}
	return metav1.Condition{Status: metav1.ConditionUnknown}
}

// HasTurned reports whether a condition has a new status or reason.
func HasTurned(before, after v1alpha1.IcecreamStatus) bool {
	return slices.ContainsFunc(after.Conditions, func(is metav1.Condition) bool {
		was := meta.FindStatusCondition(before.Conditions, is.Type)
		return was == nil || was.Status != is.Status || was.Reason != is.Reason
	})
}

// HasMoved reports whether the number of Pods on some node has changed.
func HasMoved(before, after v1alpha1.IcecreamStatus) bool {
	return !slices.EqualFunc(before.Nodes, after.Nodes, func(a, b v1alpha1.IcecreamNode) bool { return a.Name == b.Name && a.Pods == b.Pods })
}

// isWarning reports whether a reason deserves a Warning even before the Icecream is Stalled.
func isWarning(reason string) bool {
	switch reason {
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing, v1alpha1.ReasonPodNotReady, v1alpha1.ReasonDeploymentTerminating,
		v1alpha1.ReasonDeploymentAltered: // intended by an administrator
		return false
	}
	return true
}

// oneLine joins the words about each node, up to limit bytes but at least those about the first, and says how many
// nodes are left out.
func oneLine(nodes []v1alpha1.IcecreamNode, limit int, say func(v1alpha1.IcecreamNode) string) string {
	var said []string
	length := 0
	for i, node := range nodes {
		words := say(node)
		if length += len(words); i > 0 && length > limit {
			said = append(said, fmt.Sprintf("%d more", len(nodes)-i))
			break
		}
		length += len(", ")
		said = append(said, words)
	}
	return strings.Join(said, ", ")
}

// pods returns a number of Pods in words.
func pods(n int32) string {
	if n == 1 {
		return "1 Pod"
	}
	return strconv.Itoa(int(n)) + " Pods"
}
