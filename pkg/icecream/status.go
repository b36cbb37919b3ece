// What to report. Read Status and conclude, which choose the conditions; WriteEvent and
// StatusEvent choose the events. Skip the rest: it counts Pods by node and finds words.

package icecream

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/backoff"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
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
	o.Memory.History = o.Memory.Notice(kstatus.Sight{
		Now:        o.Now,
		Generation: o.Icecream.Generation,
		Conditions: present.Conditions,
		Problem:    o.findProblem(),
		IsComplete: o.isComplete(),
		IsProblem:  isWarning,
		Recurring:  v1alpha1.ReasonCrashLoopBackOff,
		Settle:     o.StallAfter,
	})
	o.Memory.Seen = o.see()
	s := v1alpha1.IcecreamStatus{
		ObservedGeneration: o.Icecream.Generation,
		Conditions:         slices.Clone(present.Conditions),
		UpdatedReplicas:    o.updated(),
	}
	if used := o.inUse(); used != nil {
		s.DeploymentName = used.Name
		s.Replicas = used.Status.Replicas
		s.ReadyReplicas = used.Status.ReadyReplicas
		s.AvailableReplicas = used.Status.AvailableReplicas
		s.Selector = metav1.FormatLabelSelector(used.Spec.Selector)
	}
	nodes := o.placement()
	s.NodeCount = int32(len(nodes))
	s.Nodes = nodes[:min(len(nodes), maxNodes)]
	s.Placement = summary(nodes)
	o.conclude(plan).SetOn(&s.Conditions, s.ObservedGeneration, o.Now)
	return Report{s, o.Memory, o.requeueAfter(plan)}
}

// requeueAfter returns when the passing of time alone changes something; 0 means never.
func (o Observed) requeueAfter(plan Plan) time.Duration {
	next := backoff.MinRequeue(plan.RequeueAfter, o.Memory.RequeueAfter(o.Now, o.StallAfter))
	for _, last := range []Attempt{o.Memory.Write, o.Memory.Old} {
		if last.isRefused() && last.At.Equal(o.Now) || last.isContested(o.Now) {
			next = backoff.MinRequeue(next, last.wait(o.Now))
		}
	}
	return next
}

// conclude returns what the conditions say: the first case that applies.
func (o Observed) conclude(plan Plan) kstatus.Conclusion {
	progressing := func(message string) kstatus.Conclusion {
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonProgressing, Message: message}
	}
	last := o.lastOf(plan)
	switch {
	case plan.IsWrite() && last.isRefused():
		return last.Refusal
	case plan.Held.Reason != "" && !plan.IsRetry:
		return plan.Held
	case o.Memory.Write.isContested(o.Now):
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonDeploymentContested, Message: o.Memory.Write.Contest}
	case o.target() == nil:
		return progressing("The Deployment is being created")
	}
	if problem, ok := o.Memory.Conclude(o.Now); ok {
		return problem
	}
	message := o.available()
	if o.isComplete() {
		return kstatus.Conclusion{State: kstatus.Ready, Reason: v1alpha1.ReasonAvailable, Message: message}
	}
	return progressing(message)
}

// Event is an event about an Icecream.
type Event struct{ Type, Reason, Message string }

// maxMessage is the maximum length of an event's message in bytes (core/v1).
const maxMessage = 1024

// WriteEvent returns the event for a plan that was carried out, if it has changed something.
// altered is from [Observed.With].
func WriteEvent(o Observed, plan Plan, r Result, altered []patch.Difference) (Event, bool) {
	e := Event{Type: corev1.EventTypeNormal}
	switch {
	case r.Refusal != nil, !plan.IsWrite():
		return e, false // The report says what is wrong.
	case plan.Want == nil:
		was := o.Icecream.Status.DeploymentName
		e.Reason, e.Message = v1alpha1.ReasonDeploymentRenamed, fmt.Sprintf("Renamed Deployment %q to %q", was, o.Named.Name)
		if !slices.ContainsFunc(plan.Delete, func(d *appsv1.Deployment) bool { return d.Name == was }) { // It was never in use.
			e.Message = fmt.Sprintf("Deleted Deployment %q, whose name is no longer asked for", plan.Delete[0].Name)
		}
	case r.IsBare:
		return lossEvent(o, plan, r), true
	case plan.Live == nil:
		e.Reason, e.Message = v1alpha1.ReasonDeploymentCreated, fmt.Sprintf("Created Deployment %q", r.Stored.Name)
	case !metav1.IsControlledBy(plan.Live, o.Icecream):
		e.Reason, e.Message = v1alpha1.ReasonDeploymentAdopted, fmt.Sprintf("Adopted Deployment %q", r.Stored.Name)
	case isAsBefore(plan, altered) && o.Memory.Write.Want == "":
		return e, false // A policy has turned the request into what was there before, as the process before this one has reported.
	default:
		e.Reason, e.Message = v1alpha1.ReasonDeploymentUpdated, fmt.Sprintf("Updated Deployment %q", r.Stored.Name)
	}
	if len(altered) > 0 {
		e.Reason = v1alpha1.ReasonDeploymentAltered
		var fields []string
		for _, d := range altered {
			fields = append(fields, d.String())
		}
		e.Message += ", which the API server stored otherwise than requested, by an admission policy or webhook: " + strings.Join(fields, "; ")
	}
	e.Message = text.Clip(e.Message, maxMessage)
	return e, true
}

// lossEvent names what others have added to the old Deployment and an admission policy
// refuses in the new one.
func lossEvent(o Observed, plan Plan, r Result) Event {
	lost, _ := patch.Differences(&r.Stored.Spec, &plan.Want.Spec) // cannot fail
	var fields []string
	for _, d := range lost {
		fields = append(fields, d.Field)
	}
	return Event{corev1.EventTypeWarning, v1alpha1.ReasonAdditionsLost, text.Clip(fmt.Sprintf(
		"Created Deployment %q without what was added to Deployment %q, as an admission policy demands; it will be lost when the latter is deleted: %s",
		r.Stored.Name, o.inUse().Name, strings.Join(fields, ", ")), maxMessage)}
}

// isAsBefore reports whether exactly the requested changes were not stored.
func isAsBefore(plan Plan, altered []patch.Difference) bool {
	before, err := patch.Differences(plan.Live, plan.Want)
	return err == nil && len(altered) > 0 && reflect.DeepEqual(before, altered)
}

// StatusEvent returns the event for a new status, if it deserves one: a problem, other nodes,
// or that the Icecream is Ready.
func StatusEvent(o Observed, s v1alpha1.IcecreamStatus) (Event, bool) {
	before := o.Icecream.Status
	isNew := before.ObservedGeneration != s.ObservedGeneration
	was := kstatus.ReadinessOf(before.Conditions)
	is := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if isWarning(is.Reason) && (isNew || was.Reason != is.Reason) {
		return Event{corev1.EventTypeWarning, is.Reason, is.Message}, true
	}
	placement := oneLine(s.Nodes, maxMessage-64, ", ", func(line []byte, n v1alpha1.IcecreamNode) []byte {
		return fmt.Appendf(line, "%s on %s", pods(n.Pods), n.Name)
	})
	switch {
	case is.Status == metav1.ConditionTrue && (isNew || was.Status != metav1.ConditionTrue):
		message := "Icecream synced successfully"
		if placement != "" {
			message = placement + "; " + message
		}
		return Event{corev1.EventTypeNormal, v1alpha1.ReasonSynced, message}, true
	case HasMoved(before, s) && placement != "" && is.Reason != v1alpha1.ReasonProgressing: // The end of a rollout tells all.
		return Event{corev1.EventTypeNormal, v1alpha1.ReasonScheduled, placement}, true
	default:
		return Event{}, false
	}
}

// HasMoved reports whether the Deployment, or the number of Pods on some node, has changed.
func HasMoved(before, after v1alpha1.IcecreamStatus) bool {
	return before.DeploymentName != after.DeploymentName || !maps.Equal(podCounts(before.Nodes), podCounts(after.Nodes))
}

// podCounts returns how many Pods each node has, ready or not.
func podCounts(nodes []v1alpha1.IcecreamNode) map[string]int32 {
	counts := make(map[string]int32, len(nodes))
	for _, node := range nodes {
		counts[node.Name] = node.Pods
	}
	return counts
}

// isWarning reports whether a reason deserves a Warning.
func isWarning(reason string) bool {
	switch reason {
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing, v1alpha1.ReasonDeploymentTerminating:
		return false
	}
	return true
}

// Roster lists the Icecream's Pods by node, in one line of bounded length for a log:
// "node-1: a, b; node-3: c".
func Roster(o Observed) string {
	names, ours := map[string][]string{}, o.deploymentLabels()
	for _, pod := range o.Pods {
		if pod.isPlaced(ours) {
			names[pod.Node] = append(names[pod.Node], pod.Name)
		}
	}
	line := oneLine(o.placement(), maxRoster, "; ", func(line []byte, n v1alpha1.IcecreamNode) []byte {
		slices.Sort(names[n.Name])
		return fmt.Appendf(line, "%s: %s", n.Name, strings.Join(names[n.Name], ", "))
	})
	return text.Clip(line, maxRoster)
}

// available describes the progress of the Deployment.
func (o Observed) available() string {
	d, updated := o.target(), o.updated()
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	switch {
	case wanted == 0 && d.Status.Replicas == 0:
		return "Scaled to zero"
	case updated < d.Status.Replicas || !o.isObserved(d):
		return fmt.Sprintf("%d of %s available, %d made from the current spec", d.Status.AvailableReplicas, pods(wanted), updated)
	default:
		return fmt.Sprintf("%d of %s available", d.Status.AvailableReplicas, pods(wanted))
	}
}

// deploymentLabels returns the values of LabelDeployment of the Icecream's Deployments,
// including an orphan that is about to be adopted.
func (o Observed) deploymentLabels() []string {
	ours := make([]string, 0, len(o.Owned)+1)
	for _, d := range o.Owned {
		ours = append(ours, text.LabelValue(d.Name))
	}
	if o.Named != nil && isOrphan(o.Icecream, o.Named) {
		ours = append(ours, text.LabelValue(o.Named.Name))
	}
	return ours
}

// isPlaced reports whether a Pod belongs to one of these Deployments and has a node.
func (p Pod) isPlaced(deployments []string) bool {
	return p.Node != "" && slices.Contains(deployments, p.Deployment)
}

// placement counts the Icecream's Pods by node, sorted by name.
func (o Observed) placement() []v1alpha1.IcecreamNode {
	if len(o.Pods) == 0 {
		return nil
	}
	nodes, ours := make([]v1alpha1.IcecreamNode, 0, len(o.Pods)), o.deploymentLabels()
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

// oneLine joins what say appends for each node until the line reaches limit, and ends with
// the number of nodes that were left out.
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
