package icecream

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
)

// maxNote is how long an event's note may be (events.k8s.io/v1: 1,024 bytes).
const maxNote = 1024

// Event is one to be recorded about an Icecream.
type Event struct {
	Type   string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason string
	Action string // what the controller was doing
	Note   string
	// IsWrite: it reports what was written, rather than a change of the status.
	IsWrite bool
}

// events returns what to record about the change from the present status to s, in the
// order in which it came about; nothing if nothing has changed.
func events(a, now Assessment, d Decision, out Outcome, s v1alpha1.IcecreamStatus) []Event {
	return append(writeEvents(a, now, d, out), statusEvents(a.Icecream.Status, s)...)
}

// writeEvents returns what to record about what was written.
func writeEvents(a, now Assessment, d Decision, out Outcome) (recorded []Event) {
	record := func(reason, action, note string, args ...any) {
		recorded = append(recorded, Event{corev1.EventTypeNormal, reason, action, clip(fmt.Sprintf(note, args...), maxNote), true})
	}
	if written := out.deployment(); written != nil {
		drift := now.storedDrift
		isOld := a.Named != nil && len(drift) > 0 && fingerprintOf(drift) == fingerprintOf(d.drift())
		switch {
		case a.Named == nil:
			record(v1alpha1.ReasonDeploymentCreated, "Create", "Created Deployment %q", written.Name)
		case !metav1.IsControlledBy(a.Named, a.Icecream):
			record(v1alpha1.ReasonDeploymentAdopted, "Adopt", "Adopted Deployment %q", written.Name)
		case a.Named.ResourceVersion != written.ResourceVersion && !isOld:
			record(v1alpha1.ReasonDeploymentUpdated, "Update", "Updated Deployment %q", written.Name)
		}
		if len(drift) > 0 && !isOld {
			record(v1alpha1.ReasonDeploymentAltered, "Update", "%s", altered(written.Name, drift))
		}
	}
	if out.Err == nil {
		for _, old := range d.Deletions {
			record(v1alpha1.ReasonDeploymentRenamed, "Rename", "Renamed Deployment %q to %q", old.Name, a.Named.Name)
		}
	}
	return recorded
}

// statusEvents returns what to record about a change of the status.
func statusEvents(before, s v1alpha1.IcecreamStatus) (recorded []Event) {
	record := func(eventType, reason, action, note string) {
		recorded = append(recorded, Event{eventType, reason, action, clip(note, maxNote), false})
	}
	hasMoved := before.DeploymentName != s.DeploymentName || !equality.Semantic.DeepEqual(podCounts(before.Nodes), podCounts(s.Nodes))
	if hasMoved && len(s.Nodes) > 0 {
		record(corev1.EventTypeNormal, v1alpha1.ReasonScheduled, "Schedule",
			oneLine(s.Nodes, maxNote-32, ", ", func(n v1alpha1.IcecreamNode) string { return pods(n.Pods) + " on " + n.Name }))
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

// altered says in what the API server has stored a Deployment otherwise than it was
// requested to.
func altered(name string, drift []apply.Difference) string {
	var fields []string
	for _, f := range drift {
		fields = append(fields, fmt.Sprintf("%s is %s instead of %s", f.Field, inWords(f.Live), inWords(f.Want)))
	}
	return fmt.Sprintf("The API server stored Deployment %q otherwise than requested, by an admission policy or webhook: %s", name, strings.Join(fields, "; "))
}

// maxValue is how many bytes of a value are shown in a sentence.
const maxValue = 120

func inWords(value any) string {
	if value == nil {
		return "nothing"
	}
	raw, _ := json.Marshal(value)
	return clip(string(raw), maxValue)
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
