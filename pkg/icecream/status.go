package icecream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
		Conditions:         slices.Clone(present.Conditions),
	}
	s.UpdatedReplicas = now.updated
	if used := now.inUse; used != nil {
		s.DeploymentName = used.Name
		s.Replicas = used.Status.Replicas
		s.ReadyReplicas = used.Status.ReadyReplicas
		s.AvailableReplicas = used.Status.AvailableReplicas
		s.Selector = selectorOf(used)
	}
	nodes := placement(before.Observed)
	s.NodeCount = int32(len(nodes))
	s.Nodes = nodes[:min(len(nodes), maxNodes)]
	s.Placement = summary(nodes)
	now.conclude(d, out).SetOn(&s.Conditions, s.ObservedGeneration, before.Now)
	return s, events(before, d, out, s)
}

// roster says which Pods of the Icecream run on which nodes, in one line of
// bounded length for a log: "node-1: a, b; node-3: c".
func roster(a Assessment) string {
	names, ours := map[string][]string{}, deploymentLabels(a.Observed)
	for _, pod := range a.Pods {
		if pod.isPlaced(ours) {
			names[pod.Node] = append(names[pod.Node], pod.Name)
		}
	}
	line := oneLine(placement(a.Observed), maxRoster, "; ", func(line []byte, n v1alpha1.IcecreamNode) []byte {
		slices.Sort(names[n.Name])
		return fmt.Appendf(line, "%s: %s", n.Name, strings.Join(names[n.Name], ", "))
	})
	return text.Clip(line, maxRoster)
}

// selectorOf returns the label selector of a Deployment's Pods in its string form.
func selectorOf(d *appsv1.Deployment) string {
	if s := d.Spec.Selector; s != nil && len(s.MatchLabels) > 0 && len(s.MatchExpressions) == 0 {
		return labels.Set(s.MatchLabels).String() // at a fraction of the cost of the general case
	}
	return metav1.FormatLabelSelector(d.Spec.Selector)
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

// deploymentLabels returns the values of LabelDeployment of the Icecream's Deployments. One
// that has lost its owner reference, and is about to be adopted, is one of them.
func deploymentLabels(o Observed) []string {
	ours := make([]string, 0, len(o.Owned)+1)
	for _, d := range o.Owned {
		ours = append(ours, text.LabelValue(d.Name))
	}
	if o.Named != nil && isOrphan(o.Icecream, o.Named) {
		ours = append(ours, text.LabelValue(o.Named.Name))
	}
	return ours
}

// isPlaced reports whether a Pod is one of these Deployments' and has a node.
func (p Pod) isPlaced(deployments []string) bool {
	return p.Node != "" && slices.Contains(deployments, p.Deployment)
}

// placement counts the Icecream's Pods that have a node by node, sorted by name.
func placement(o Observed) []v1alpha1.IcecreamNode {
	if len(o.Pods) == 0 {
		return nil
	}
	nodes, ours := make([]v1alpha1.IcecreamNode, 0, len(o.Pods)), deploymentLabels(o)
	for _, pod := range o.Pods {
		if !pod.isPlaced(ours) {
			continue
		}
		node := v1alpha1.IcecreamNode{Name: pod.Node, Pods: 1}
		if pod.Ready {
			node.ReadyPods = 1
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b v1alpha1.IcecreamNode) int { return strings.Compare(a.Name, b.Name) })
	merged := nodes[:0]
	for _, node := range nodes {
		if last := len(merged) - 1; last >= 0 && merged[last].Name == node.Name {
			merged[last].Pods += node.Pods
			merged[last].ReadyPods += node.ReadyPods
		} else {
			merged = append(merged, node)
		}
	}
	return merged
}

// summary returns the placement in one line of bounded length: "a (2), b (1), 7 more".
func summary(nodes []v1alpha1.IcecreamNode) string {
	return oneLine(nodes, maxPlacement, ", ", func(line []byte, n v1alpha1.IcecreamNode) []byte {
		line = append(append(line, n.Name...), " ("...)
		return append(strconv.AppendInt(line, int64(n.Pods), 10), ')')
	})
}

// oneLine joins what say appends about each node as long as the line stays within limit,
// and ends with how many nodes were left out.
func oneLine(nodes []v1alpha1.IcecreamNode, limit int, separator string, say func([]byte, v1alpha1.IcecreamNode) []byte) string {
	line := make([]byte, 0, 128)
	for i, node := range nodes {
		end := len(line)
		if i > 0 {
			line = append(line, separator...)
		}
		line = say(line, node)
		if i > 0 && len(line)-len(separator) > limit {
			line = fmt.Appendf(line[:end], "%s%d more", separator, len(nodes)-i)
			break
		}
	}
	return string(line)
}

// pods returns a number of Pods in words.
func pods(n int32) string {
	if n == 1 {
		return "1 Pod"
	}
	return strconv.Itoa(int(n)) + " Pods"
}
