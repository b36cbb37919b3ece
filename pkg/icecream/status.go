package icecream

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/text"
)

// How long reports may get, whatever there is to report: nodes listed in a status,
// and bytes in the lines for people.
const (
	maxNodes     = 100
	maxPlacement = 256
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
	now.conclude(d, out).SetOn(&s.Conditions, s.ObservedGeneration, before.Now)
	return s, events(before, now, d, out, s)
}

// roster says which Pods of the Icecream run on which nodes, in one line of
// bounded length for a log: "node-1: a, b; node-3: c".
func roster(a Assessment) string {
	names := map[string][]string{}
	for pod := range placed(a.Observed) {
		names[pod.Node] = append(names[pod.Node], pod.Name)
	}
	line := oneLine(a.nodes, maxRoster, "; ", func(n v1alpha1.IcecreamNode) string {
		slices.Sort(names[n.Name])
		return n.Name + ": " + strings.Join(names[n.Name], ", ")
	})
	return text.Clip(line, maxRoster)
}

// conclude returns what the conditions are to say. The first case that applies is the
// one that says most.
func (a Assessment) conclude(d Decision, out Outcome) kstatus.Conclusion {
	if out.Err != nil {
		d = rules.Refusal(out.Err)
	}
	switch {
	case d.Verdict == children.Blocked:
		return kstatus.Conclusion{State: kstatus.Stalled, Reason: d.Reason, Message: d.Message}
	case d.Verdict == children.Wait:
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: d.Reason, Message: d.Message}
	case a.memory.Write.IsContested(a.Now):
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentContested, Message: a.memory.Write.Contest}
	case a.target == nil:
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonProgressing, Message: "The Deployment is being created"}
	}
	if problem, ok := a.memory.Conclude(a.Now); ok {
		return problem
	}
	if a.isComplete {
		return kstatus.Conclusion{State: kstatus.Ready, Reason: v1alpha1.ReasonAvailable, Message: available(a.target, a.updated)}
	}
	return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonProgressing, Message: available(a.target, a.updated)}
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
		ours[text.LabelValue(d.Name)] = true
	}
	if o.Named != nil && isOrphan(o.Icecream, o.Named) {
		ours[text.LabelValue(o.Named.Name)] = true
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

// oneLine joins what say returns about each node as long as the line stays within limit,
// and ends with how many nodes were left out.
func oneLine(nodes []v1alpha1.IcecreamNode, limit int, separator string, say func(v1alpha1.IcecreamNode) string) string {
	var line strings.Builder
	for i, node := range nodes {
		next := say(node)
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
