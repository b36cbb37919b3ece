package icecream

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// How long reports may get, whatever there is to report: nodes listed in a status,
// and bytes in the lines for people.
const (
	maxNodes     = 100
	maxPlacement = 256
	maxMessage   = 1024
	maxRoster    = 4096
)

// Status returns what to report after the decision has been carried out, given what was
// known before and what is known now (see [Remember]), and the events for a change from
// the present status. For an Icecream that is being deleted it is the present status.
func Status(before, now Assessment, d Decision, out Outcome) (v1alpha1.IcecreamStatus, []Event) {
	present := before.Icecream.Status
	if before.Icecream.DeletionTimestamp != nil {
		return *present.DeepCopy(), nil
	}
	s := v1alpha1.IcecreamStatus{
		ObservedGeneration: before.Icecream.Generation,
		Conditions:         present.DeepCopy().Conditions,
	}
	s.UpdatedReplicas = now.updated
	if used := now.inUse; used != nil {
		s.DeploymentName = used.Name
		s.Replicas = used.Status.Replicas
		s.ReadyReplicas = used.Status.ReadyReplicas
		s.AvailableReplicas = used.Status.AvailableReplicas
		s.Selector = metav1.FormatLabelSelector(used.Spec.Selector)
	}
	s.NodeCount = int32(len(now.nodes))
	s.Nodes = slices.Clone(now.nodes[:min(len(now.nodes), maxNodes)])
	s.Placement = summary(now.nodes)
	now.conclude(d, out).setOn(&s, before.Now)
	return s, events(before, now, d, out, s)
}

// NewStatus returns the object to PUT to the Icecream's status subresource. The API
// server takes nothing but the status from it, and refuses it for any other
// Icecream of the name and for any other version than the one it was made from.
func NewStatus(icecream *v1alpha1.Icecream, status v1alpha1.IcecreamStatus) *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{
			Name:            icecream.Name,
			Namespace:       icecream.Namespace,
			UID:             icecream.UID,
			ResourceVersion: icecream.ResourceVersion,
		},
		Status: status,
	}
}

// IsUrgent reports whether the change from one status to another should be written
// at once: the spec, or the status or the reason of a condition has changed. Numbers
// and messages can wait for more of their kind.
func IsUrgent(from, to v1alpha1.IcecreamStatus) bool {
	if from.ObservedGeneration != to.ObservedGeneration {
		return true
	}
	return slices.ContainsFunc(to.Conditions, func(is metav1.Condition) bool {
		was := meta.FindStatusCondition(from.Conditions, is.Type)
		return was == nil || was.Status != is.Status || was.Reason != is.Reason
	})
}

// Roster says which Pods of the Icecream run on which nodes, in one line of
// bounded length for a log: "node-1: a, b; node-3: c".
func Roster(a Assessment) string {
	names := map[string][]string{}
	for pod := range placed(a.Observed) {
		names[pod.Node] = append(names[pod.Node], pod.Name)
	}
	line := oneLine(a.nodes, maxRoster, "; ", func(n v1alpha1.IcecreamNode) string {
		slices.Sort(names[n.Name])
		return n.Name + ": " + strings.Join(names[n.Name], ", ")
	})
	return clip(line, maxRoster)
}

// conclusion is what the three conditions say together.
type conclusion struct {
	state   state
	reason  string
	message string
}

type state int

const (
	reconciling state = iota
	ready
	stalled
)

// conclude returns what the conditions are to say. The first case that applies is the
// one that says most.
func (a Assessment) conclude(d Decision, out Outcome) conclusion {
	m := a.memory
	switch {
	case out.Err != nil:
		reason, message := refusal(out.Err)
		return conclusion{stateOf(refused(reason)), reason, message}
	case d.Verdict == Blocked || d.Verdict == Wait:
		return conclusion{stateOf(d.Verdict), d.Reason, d.Message}
	case m.Write.isContested(a.Now):
		return conclusion{reconciling, v1alpha1.ReasonDeploymentContested, m.Write.Contest}
	case a.target == nil:
		return conclusion{reconciling, v1alpha1.ReasonProgressing, "The Deployment is being created"}
	}
	left, never := m.stallsIn(a.Now)
	switch {
	case m.Problem.Reason != "" && !never && left == 0:
		return conclusion{stalled, m.Problem.Reason, m.Problem.Message}
	case m.Problem.isLoud():
		return conclusion{reconciling, m.Problem.Reason, m.Problem.Message}
	case a.isComplete:
		return conclusion{ready, v1alpha1.ReasonAvailable, available(a.target, a.updated)}
	default:
		return conclusion{reconciling, v1alpha1.ReasonProgressing, available(a.target, a.updated)}
	}
}

// stateOf returns the state of an Icecream for which nothing can be written.
func stateOf(v Verdict) state {
	if v == Blocked {
		return stalled
	}
	return reconciling
}

// setOn sets the three conditions to say the conclusion.
func (c conclusion) setOn(s *v1alpha1.IcecreamStatus, now time.Time) {
	for _, condition := range []struct {
		name string
		when state
	}{
		{v1alpha1.ConditionReady, ready},
		{v1alpha1.ConditionReconciling, reconciling},
		{v1alpha1.ConditionStalled, stalled},
	} {
		set := metav1.Condition{
			Type:               condition.name,
			Status:             metav1.ConditionFalse,
			ObservedGeneration: s.ObservedGeneration,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
			Reason:             c.reason,
		}
		if c.state == condition.when {
			set.Status = metav1.ConditionTrue
		}
		if c.state == condition.when || condition.name == v1alpha1.ConditionReady {
			set.Message = clip(c.message, maxMessage)
		}
		meta.SetStatusCondition(&s.Conditions, set)
	}
}

// available says in words how far the Deployment is.
func available(d *appsv1.Deployment, updated int32) string {
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	switch {
	case wanted == 0 && d.Status.Replicas == 0:
		return "Scaled to zero"
	case updated < d.Status.Replicas || d.Status.ObservedGeneration < d.Generation:
		return fmt.Sprintf("%d of %s available, %d made from the current spec", d.Status.AvailableReplicas, pods(wanted), updated)
	default:
		return fmt.Sprintf("%d of %s available", d.Status.AvailableReplicas, pods(wanted))
	}
}

// placed are the Pods of the Icecream's Deployments that have a node. A Deployment
// that has lost its owner reference, and is about to be adopted, is one of them.
func placed(o Observed) iter.Seq[Pod] {
	ours := map[string]bool{}
	for _, d := range o.Owned {
		ours[LabelValue(d.Name)] = true
	}
	if o.Named != nil && isOrphan(o.Icecream, o.Named) {
		ours[LabelValue(o.Named.Name)] = true
	}
	return func(yield func(Pod) bool) {
		for _, pod := range o.Pods {
			if pod.Node != "" && ours[pod.Deployment] && !yield(pod) {
				return
			}
		}
	}
}

// placement counts these Pods by node, sorted by name.
func placement(o Observed) []v1alpha1.IcecreamNode {
	byName := map[string]*v1alpha1.IcecreamNode{}
	for pod := range placed(o) {
		node := byName[pod.Node]
		if node == nil {
			node = &v1alpha1.IcecreamNode{Name: pod.Node}
			byName[pod.Node] = node
		}
		node.Pods++
		if pod.Ready {
			node.ReadyPods++
		}
	}
	var nodes []v1alpha1.IcecreamNode
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		nodes = append(nodes, *byName[name])
	}
	return nodes
}

// summary returns the placement in one line of bounded length: "a (2), b (1), 7 more".
func summary(nodes []v1alpha1.IcecreamNode) string {
	return oneLine(nodes, maxPlacement, ", ", func(n v1alpha1.IcecreamNode) string { return fmt.Sprintf("%s (%d)", n.Name, n.Pods) })
}

// oneLine joins what text says about each node as long as the line stays within limit,
// and ends with how many nodes were left out.
func oneLine(nodes []v1alpha1.IcecreamNode, limit int, separator string, text func(v1alpha1.IcecreamNode) string) string {
	var line strings.Builder
	for i, node := range nodes {
		next := text(node)
		if i > 0 && line.Len()+len(next) > limit {
			fmt.Fprintf(&line, "%s%d more", separator, len(nodes)-i)
			break
		}
		if i > 0 {
			line.WriteString(separator)
		}
		line.WriteString(next)
	}
	return line.String()
}

// pods returns a number of Pods in words.
func pods(n int32) string {
	if n == 1 {
		return "1 Pod"
	}
	return fmt.Sprintf("%d Pods", n)
}

// clip cuts a text to that many bytes, between characters.
func clip(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// Readiness is the status and reason of a Ready condition.
type Readiness struct {
	Status metav1.ConditionStatus
	Reason string
}

// CountByReady counts Icecreams by their Ready condition. One that has none yet is
// Unknown, without a reason.
func CountByReady(icecreams []*v1alpha1.Icecream) map[Readiness]int {
	count := map[Readiness]int{}
	for _, ice := range icecreams {
		r := Readiness{Status: metav1.ConditionUnknown}
		if ready := meta.FindStatusCondition(ice.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			r = Readiness{ready.Status, ready.Reason}
		}
		count[r]++
	}
	return count
}
