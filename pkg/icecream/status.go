// What to report. Read Status and conclude, which choose the conditions; StatusEvent chooses the
// event. Skip the rest: it counts Pods by node and finds words.

package icecream

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/response"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// Limits of a report: the nodes that a status lists, and the bytes of lines for people.
const (
	maxNodes     = 100
	maxPlacement = 256
	maxRoster    = 4096
)

// Report is what to report about one Icecream.
type Report struct {
	Status v1alpha1.IcecreamStatus
	// Memory is for the next sync, which comes after RequeueAfter even if nothing changes; 0
	// means never.
	Memory       Memory
	RequeueAfter time.Duration
}

// Status returns what to report after a plan was carried out (see [Observed.With]). The
// status of an Icecream that is being deleted stays as it is.
func Status(o Observed, plan Plan) Report {
	present := o.Icecream.Status
	if o.Icecream.DeletionTimestamp != nil {
		return Report{Status: present, Memory: o.Memory}
	}
	if o.Live != nil {
		o.shape = ptr.To(o.hasShape())
	}
	o.Memory = o.remember()
	s := v1alpha1.IcecreamStatus{
		ObservedGeneration: o.Icecream.Generation,
		Conditions:         slices.Clone(present.Conditions),
		UpdatedReplicas:    o.updated(),
	}
	if d := o.own(); d != nil {
		s.Replicas = d.Status.Replicas
		s.ReadyReplicas = d.Status.ReadyReplicas
		s.AvailableReplicas = d.Status.AvailableReplicas
		s.Selector = metav1.FormatLabelSelector(d.Spec.Selector)
	}
	nodes := o.placement()
	s.NodeCount = int32(len(nodes))
	s.Nodes = nodes[:min(len(nodes), maxNodes)]
	s.Placement = oneLine(nodes, maxPlacement, ", ", func(n v1alpha1.IcecreamNode) string { return fmt.Sprintf("%s (%d)", n.Name, n.Pods) })
	o.conclude(plan).SetOn(&s.Conditions, s.ObservedGeneration, o.Now)
	return Report{s, o.Memory, o.requeueAfter(plan)}
}

// requeueAfter returns when the passing of time alone changes something; 0 means never.
func (o Observed) requeueAfter(plan Plan) time.Duration {
	deadlines := []time.Duration{o.deadline()}
	if o.waitsFor() != "" {
		deadlines = append(deadlines, o.quiet())
	}
	next := backoff.MinRequeue(plan.RequeueAfter, o.Memory.RequeueAfter(o.Now, settle, deadlines...))
	return backoff.MinRequeue(next, o.Standing.Wait)
}

// conclude returns what the conditions say. What may still come right is Reconciling until the deadline
// has passed without progress.
func (o Observed) conclude(plan Plan) kstatus.Conclusion {
	switch c := o.cause(plan); {
	case c.State != kstatus.Reconciling || o.Memory.Left(o.Now, o.deadline()) > 0:
		return c
	case c.Reason != v1alpha1.ReasonProgressing:
		return stalled(c.Reason, c.Message)
	case o.isRolledOut(): // Only the cache of Pods does not show it yet.
		return c
	default:
		return stalled(v1alpha1.ReasonProgressDeadlineExceeded, o.exceeded())
	}
}

// cause returns the first case that applies.
func (o Observed) cause(plan Plan) kstatus.Conclusion {
	switch {
	case plan.Held.Reason != "":
		return plan.Held
	case o.Standing.Refusal != nil:
		return refusalOf(o.Standing.Refusal)
	case o.Standing.Undone != "":
		return reconciling(v1alpha1.ReasonDeploymentContested, o.Standing.Undone)
	case o.own() == nil:
		return reconciling(v1alpha1.ReasonProgressing, "The Deployment is being created")
	}
	if p := cmp.Or(o.Memory.Recurring, o.findProblem()); p.Reason != "" {
		return reconciling(p.Reason, p.Message)
	}
	if o.isComplete() {
		return kstatus.Conclusion{State: kstatus.Ready, Reason: v1alpha1.ReasonAvailable, Message: o.available()}
	}
	if message := o.waitsFor(); message != "" && o.Memory.Left(o.Now, o.quiet()) == 0 {
		return reconciling(v1alpha1.ReasonPodNotReady, message)
	}
	return reconciling(v1alpha1.ReasonProgressing, o.available())
}

// refusalOf returns what to report about a write that the API server has refused.
func refusalOf(err error) kstatus.Conclusion {
	switch {
	case response.IsOwnValidation(err):
		return stalled(v1alpha1.ReasonInvalidSpec, err.Error())
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconciling(v1alpha1.ReasonDeploymentTerminating, "The namespace is being deleted")
	default:
		return reconciling(v1alpha1.ReasonDeploymentRefused, err.Error())
	}
}

// Event is one to be recorded about an Icecream; the zero value is none.
type Event struct{ Type, Reason, Message string }

// maxMessage is the maximum length of an event's message in bytes (core/v1).
const maxMessage = 1024

// StatusEvent returns what to record about the change to another status, if it is worth an
// event: a problem, other nodes, or that the Icecream is Ready. A problem has one event, however long
// it lasts and in whatever words.
func StatusEvent(o Observed, s v1alpha1.IcecreamStatus) Event {
	before := o.Icecream.Status
	isNew := before.ObservedGeneration != s.ObservedGeneration
	was := kstatus.ReadinessOf(before.Conditions)
	is := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	wasStalled, isStalled := isTrue(before, v1alpha1.ConditionStalled), isTrue(s, v1alpha1.ConditionStalled)
	if isWarning(is.Reason) && (isNew || was.Reason != is.Reason) || !isWarning(is.Reason) && isStalled && (isNew || !wasStalled) {
		return Event{corev1.EventTypeWarning, is.Reason, is.Message}
	}
	const synced = "Icecream synced successfully"
	limit := maxMessage - len(", 5000000 more; "+synced)
	placement := oneLine(s.Nodes, limit, ", ", func(n v1alpha1.IcecreamNode) string { return pods(n.Pods) + " on " + n.Name })
	switch {
	case is.Status == metav1.ConditionTrue && (isNew || was.Status != metav1.ConditionTrue):
		message := synced
		if placement != "" {
			message = placement + "; " + message
		}
		return Event{corev1.EventTypeNormal, v1alpha1.ReasonSynced, message}
	case HasMoved(before, s) && placement != "" && is.Reason != v1alpha1.ReasonProgressing: // The end of a rollout tells all.
		return Event{corev1.EventTypeNormal, v1alpha1.ReasonScheduled, placement}
	default:
		return Event{}
	}
}

// HasMoved reports whether the number of Pods on some node has changed.
func HasMoved(before, after v1alpha1.IcecreamStatus) bool {
	return !slices.EqualFunc(before.Nodes, after.Nodes, func(a, b v1alpha1.IcecreamNode) bool { return a.Name == b.Name && a.Pods == b.Pods })
}

func isTrue(s v1alpha1.IcecreamStatus, condition string) bool {
	return meta.IsStatusConditionTrue(s.Conditions, condition)
}

// SaysTheSame reports whether two statuses differ in the messages of conditions at most.
func SaysTheSame(before, after v1alpha1.IcecreamStatus) bool {
	wordless := func(s v1alpha1.IcecreamStatus) v1alpha1.IcecreamStatus {
		s.Conditions = slices.Clone(s.Conditions)
		for i := range s.Conditions {
			s.Conditions[i].Message = ""
		}
		return s
	}
	return equality.Semantic.DeepEqual(wordless(before), wordless(after))
}

// isWarning reports whether a reason deserves a Warning before the Icecream is Stalled by it.
func isWarning(reason string) bool {
	switch reason {
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing, v1alpha1.ReasonPodNotReady, v1alpha1.ReasonDeploymentTerminating:
		return false
	}
	return true
}

// Roster lists the Icecream's Pods by node, in one line of bounded length for a log:
// "node-1: a, b; node-3: c".
func Roster(o Observed) string {
	names := map[string][]string{}
	for pod := range o.placed() {
		names[pod.Node] = append(names[pod.Node], pod.Name)
	}
	line := oneLine(o.placement(), maxRoster, "; ", func(n v1alpha1.IcecreamNode) string {
		slices.Sort(names[n.Name])
		return n.Name + ": " + strings.Join(names[n.Name], ", ")
	})
	return text.Clip(line, maxRoster)
}

// available describes the progress of the Deployment.
func (o Observed) available() string {
	d, updated := o.own(), o.updated()
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	switch {
	case replicas == 0 && d.Status.Replicas == 0:
		return "Scaled to zero"
	case updated < d.Status.Replicas || !isObserved(d):
		return fmt.Sprintf("%d of %s available, %d up to date", d.Status.AvailableReplicas, pods(replicas), updated)
	default:
		return fmt.Sprintf("%d of %s available", d.Status.AvailableReplicas, pods(replicas))
	}
}

// placed are the Pods of the Icecream's Deployment that have a node. If that has lost its owner
// reference, and is about to be adopted, its Pods count nevertheless.
func (o Observed) placed() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		if o.own() == nil && (o.Live == nil || !isOrphan(o.Icecream, o.Live)) {
			return
		}
		for pod := range o.replicas() {
			if pod.Node != "" && !yield(pod) {
				return
			}
		}
	}
}

// placement counts the Icecream's Pods by node, sorted by the name of the node.
func (o Observed) placement() []v1alpha1.IcecreamNode {
	nodes := map[string]v1alpha1.IcecreamNode{}
	for pod := range o.placed() {
		node := nodes[pod.Node]
		node.Name = pod.Node
		node.Pods++
		if pod.Ready {
			node.ReadyPods++
		}
		nodes[pod.Node] = node
	}
	return slices.SortedFunc(maps.Values(nodes), func(a, b v1alpha1.IcecreamNode) int { return strings.Compare(a.Name, b.Name) })
}

// oneLine joins what say returns about each node as long as that stays within limit, and then
// adds how many nodes were left out.
func oneLine(nodes []v1alpha1.IcecreamNode, limit int, separator string, say func(v1alpha1.IcecreamNode) string) string {
	var said []string
	length := 0
	for i, node := range nodes {
		words := say(node)
		if length += len(words); i > 0 && length > limit {
			said = append(said, fmt.Sprintf("%d more", len(nodes)-i))
			break
		}
		length += len(separator)
		said = append(said, words)
	}
	return strings.Join(said, separator)
}

// pods returns a number of Pods in words.
func pods(n int32) string {
	if n == 1 {
		return "1 Pod"
	}
	return strconv.Itoa(int(n)) + " Pods"
}
