package icecream

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// maxNote is how long an event's note may be (events.k8s.io/v1: 1,024 bytes).
const maxNote = 1024

// Event is something to tell the people who watch an Icecream.
type Event struct {
	Type   string // corev1.EventTypeNormal or corev1.EventTypeWarning
	Reason string
	Action string // what the controller was doing
	Note   string
	IsDeed bool // it tells what was done, rather than a change of the status
}

// events are what the change from the present status to s is worth, in the order
// in which it came about. Nothing has changed, nothing is told.
func events(a, now Assessment, d Decision, out Outcome, s v1alpha1.IcecreamStatus) []Event {
	var told []Event
	isDeed := true
	tell := func(eventType, reason, action, note string, args ...any) {
		told = append(told, Event{eventType, reason, action, clip(fmt.Sprintf(note, args...), maxNote), isDeed})
	}
	before := a.Icecream.Status

	if written := out.Deployment; written != nil {
		left := now.left
		isOld := a.Named != nil && len(left) > 0 && fingerprintOf(left) == fingerprintOf(d.Drift)
		switch {
		case a.Named == nil:
			tell(corev1.EventTypeNormal, v1alpha1.ReasonDeploymentCreated, "Create", "Created Deployment %q", written.Name)
		case !metav1.IsControlledBy(a.Named, a.Icecream):
			tell(corev1.EventTypeNormal, v1alpha1.ReasonDeploymentAdopted, "Adopt", "Adopted Deployment %q", written.Name)
		case a.Named.ResourceVersion != written.ResourceVersion && !isOld:
			tell(corev1.EventTypeNormal, v1alpha1.ReasonDeploymentUpdated, "Update", "Updated Deployment %q", written.Name)
		}
		if len(left) > 0 && !isOld {
			tell(corev1.EventTypeNormal, v1alpha1.ReasonDeploymentAltered, "Update", "%s", altered(written, left))
		}
	}
	if out.Err == nil {
		for _, old := range d.Delete {
			tell(corev1.EventTypeNormal, v1alpha1.ReasonDeploymentRenamed, "Rename", "Renamed Deployment %q to %q", old.Name, a.Named.Name)
		}
	}

	isDeed = false
	hasMoved := before.DeploymentName != s.DeploymentName || !equality.Semantic.DeepEqual(podCounts(before.Nodes), podCounts(s.Nodes))
	if hasMoved && len(s.Nodes) > 0 {
		tell(corev1.EventTypeNormal, v1alpha1.ReasonScheduled, "Schedule", "%s",
			oneLine(s.Nodes, maxNote-32, ", ", func(n v1alpha1.IcecreamNode) string { return pods(n.Pods) + " on " + n.Name }))
	}

	isNew := before.ObservedGeneration != s.ObservedGeneration
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	switch {
	case is.Status == metav1.ConditionTrue && (isNew || was == nil || was.Status != metav1.ConditionTrue):
		tell(corev1.EventTypeNormal, v1alpha1.ReasonSynced, "Sync", "Icecream synced successfully")
	case isTrouble(is.Reason) && (isNew || was == nil || was.Reason != is.Reason):
		tell(corev1.EventTypeWarning, is.Reason, "Sync", "%s", is.Message)
	}
	return told
}

// podCounts is how many Pods each node has, without how many are ready.
func podCounts(nodes []v1alpha1.IcecreamNode) map[string]int32 {
	counts := make(map[string]int32, len(nodes))
	for _, node := range nodes {
		counts[node.Name] = node.Pods
	}
	return counts
}

// isTrouble says whether a reason for not being ready is worth a warning.
func isTrouble(reason string) bool {
	switch reason {
	case v1alpha1.ReasonAvailable, v1alpha1.ReasonProgressing, v1alpha1.ReasonDeploymentTerminating:
		return false
	}
	return true
}
