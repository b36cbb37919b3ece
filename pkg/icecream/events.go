package icecream

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// Event is one to be recorded about an Icecream.
type Event = children.Event

// events returns what to record about the change from the present status to s, in the
// order in which it came about; nothing if nothing has changed.
func events(a Assessment, d Decision, out Outcome, s v1alpha1.IcecreamStatus) []Event {
	return append(writeEvents(a, d, out), statusEvents(a, s)...)
}

// writeEvents returns what to record about what was written.
func writeEvents(a Assessment, d Decision, out Outcome) []Event {
	recorded := rules.Events(a.need(), d, out)
	if out.Err == nil {
		for _, old := range d.Deletions {
			note := fmt.Sprintf("Renamed Deployment %q to %q", old.Name, a.Named.Name)
			if old.Name != a.Icecream.Status.DeploymentName { // The name was taken back before it was in use.
				note = fmt.Sprintf("Deleted Deployment %q, whose name is no longer asked for", old.Name)
			}
			recorded = append(recorded, children.WriteEvent(v1alpha1.ReasonDeploymentRenamed, "Rename", "%s", note))
		}
	}
	return recorded
}

// statusEvents returns what to record about the change from the present status to s.
func statusEvents(a Assessment, s v1alpha1.IcecreamStatus) (recorded []Event) {
	before := a.Icecream.Status
	record := func(eventType, reason, action, note string) {
		recorded = append(recorded, children.StatusEvent(eventType, reason, action, note))
	}
	hasMoved := before.DeploymentName != s.DeploymentName || !isSamePlacement(before.Nodes, s.Nodes)
	if hasMoved && len(s.Nodes) > 0 {
		record(corev1.EventTypeNormal, v1alpha1.ReasonScheduled, "Schedule",
			oneLine(s.Nodes, children.MaxNote-32, ", ", func(line []byte, n v1alpha1.IcecreamNode) []byte {
				return fmt.Appendf(line, "%s on %s", pods(n.Pods), n.Name)
			}))
		recorded[0].Log = &children.Line{Message: "Placement changed", Values: []any{"placement", roster(a)}}
	}
	isNew := before.ObservedGeneration != s.ObservedGeneration
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	switch {
	case is.Status == metav1.ConditionTrue && (isNew || was == nil || was.Status != metav1.ConditionTrue):
		record(corev1.EventTypeNormal, v1alpha1.ReasonSynced, "Sync", "Icecream synced successfully")
	case isWarning(is.Reason) && (isNew || was == nil || was.Reason != is.Reason):
		record(corev1.EventTypeWarning, is.Reason, "Sync", is.Message)
	}
	return recorded
}

// isSamePlacement reports whether as many Pods are on the same nodes, in whatever order,
// ready or not.
func isSamePlacement(a, b []v1alpha1.IcecreamNode) bool {
	return slices.Equal(a, b) || maps.Equal(podCounts(a), podCounts(b))
}

// podCounts returns how many Pods each node has, ready or not.
func podCounts(nodes []v1alpha1.IcecreamNode) map[string]int32 {
	counts := make(map[string]int32, len(nodes))
	for _, node := range nodes {
		counts[node.Name] = node.Pods
	}
	return counts
}

// isWarning reports whether a reason for not being ready is worth a warning.
func isWarning(reason string) bool {
	switch reason {
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing, v1alpha1.ReasonDeploymentTerminating:
		return false
	}
	return true
}
