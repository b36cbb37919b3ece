package icecream

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Memory is what a process remembers about an Icecream from sync to sync, besides its writes. The
// zero value is the memory of a new process.
type Memory struct {
	UID             types.UID // of the Icecream. Of another one, nothing is remembered.
	kstatus.History           // when there was progress last
	Failed          int       // how many Pods had failed when all was well, or something else was wrong
	Deployment      types.UID // the last one that it had
}

// remember returns what to remember of what is seen now.
func (o Observed) remember() Memory {
	before, conditions := o.Memory, o.Icecream.Status.Conditions
	readiness := kstatus.ReadinessOf(conditions)
	if before.UID != o.Icecream.UID {
		before = Memory{UID: o.Icecream.UID, Failed: o.failures()}
		if readiness.Reason == v1alpha1.ReasonPodFailed {
			before.Failed = 0
		}
	}
	if readiness.Reason == v1alpha1.ReasonInvalidSpec { // It was Stalled at once, not when a deadline had passed.
		conditions = nil
	}
	d := o.own()
	if d == nil || before.Deployment != "" && before.Deployment != d.UID { // It was about Pods of another Deployment.
		before.Recurring, before.Well = Problem{}, time.Time{}
	}
	o.Memory = before
	problem := o.findProblem()
	after := before
	after.History = before.Notice(kstatus.Sight{
		Now: o.Now, Generation: o.Icecream.Generation, Conditions: conditions,
		Progress: o.progress(), Problem: problem, IsComplete: o.isComplete(), Settle: settle, Recurs: recurs,
	})
	if after.IsDone || problem != (Problem{}) && problem.Reason != v1alpha1.ReasonPodFailed {
		after.Failed = o.failures()
	}
	after.Failed = min(after.Failed, o.failures()) // Old ones are deleted at times.
	if d != nil {
		after.Deployment = d.UID
	}
	return after
}

// recurs reports whether a reason is that of a problem that only seems to be over at times.
func recurs(reason string) bool {
	return reason == v1alpha1.ReasonCrashLoopBackOff || reason == v1alpha1.ReasonPodFailed
}

// isObserved reports whether the Deployment's status describes its current spec.
func isObserved(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= d.Generation }
