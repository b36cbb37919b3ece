package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// Observed is what is known about one Database. Nothing in this file changes what it points to.
type Observed struct {
	Now      time.Time
	Database *v1alpha1.Database
	// Undecodable says why the spec could not be decoded; empty if it was.
	Undecodable string
	Live        *appsv1.StatefulSet // the one with the Database's name, if any; it may have another owner
	Last        pace.Attempt        // this process's last write of the StatefulSet; its Failure is a refusal
}

// Plan is what should be written for one Database.
type Plan struct {
	Request *patch.Request     // to send about the StatefulSet; nil if it is as it should be
	Wish    pace.Wish          // identifies what the request asks for
	Wait    time.Duration      // until it can be sent; 0 is now
	Held    kstatus.Conclusion // why nothing can be written; otherwise the zero value
}

// Decide returns what should be written.
func Decide(o Observed) (plan Plan) {
	db, live := o.Database, o.Live
	switch {
	case o.Undecodable != "":
		return held(kstatus.Stalled, v1alpha1.ReasonInvalidSpec, "The spec cannot be decoded: %s", o.Undecodable)
	case live != nil && !metav1.IsControlledBy(live, db):
		return held(kstatus.Stalled, v1alpha1.ReasonErrResourceExists, "StatefulSet %q already exists and is not managed by this Database", live.Name)
	case live != nil && live.DeletionTimestamp != nil:
		return held(kstatus.Reconciling, v1alpha1.ReasonTerminating, "StatefulSet %q is being deleted and will be created again", live.Name)
	case live != nil && versionOf(live) > db.Spec.Version: // The schema forbids it, but an earlier schema might not have.
		return held(kstatus.Stalled, v1alpha1.ReasonInvalidSpec, "Version %d cannot read the files of version %d", db.Spec.Version, versionOf(live))
	}
	var err error
	plan.Wish, plan.Request, err = patch.Apply(fieldManager, live, newStatefulSet(db))
	if err != nil {
		return held(kstatus.Stalled, v1alpha1.ReasonInvalidSpec, "%s", err)
	}
	if live != nil && plan.Request == nil {
		plan.Request = patch.Scale(fieldManager, live, ptr.Deref(live.Spec.Replicas, 1), replicasOf(db))
	}
	if plan.Request != nil {
		plan.Wait = o.Last.Wait(plan.Wish, o.Now)
	}
	return plan
}

func held(state kstatus.State, reason, format string, args ...any) Plan {
	return Plan{Held: kstatus.Conclusion{State: state, Reason: reason, Message: fmt.Sprintf(format, args...)}}
}

// Status returns what to report after a sync. Live and Last are those after the write, if there was one.
func Status(o Observed, plan Plan) v1alpha1.DatabaseStatus {
	status := *o.Database.Status.DeepCopy()
	status.ObservedGeneration = o.Database.Generation
	status.AvailableReplicas = 0
	if o.Live != nil && metav1.IsControlledBy(o.Live, o.Database) {
		status.AvailableReplicas = o.Live.Status.AvailableReplicas
	}
	conclude(o, plan).SetOn(&status.Conditions, o.Database.Generation, o.Now)
	return status
}

func conclude(o Observed, plan Plan) kstatus.Conclusion {
	isOpen, refusal := plan.Request != nil, o.Last.Failure
	switch {
	case plan.Held.Reason != "":
		return plan.Held
	case isOpen && response.IsOwnValidation(refusal): // Only an edit can help.
		return kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: refusal.Error()}
	case isOpen && refusal != nil:
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonRefused, Message: refusal.Error()}
	case plan.Wait > 0: // The same wish was stored a moment ago.
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonContested, Message: "Somebody else keeps changing the StatefulSet"}
	case !isRolledOut(o.Live):
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: kstatus.Progressing, Message: "Waiting for Pods to become available"}
	}
	return kstatus.Conclusion{State: kstatus.Ready, Reason: v1alpha1.ReasonAvailable, Message: "All Pods are available"}
}

// EventOf returns the event for a change of the status: one for each new reason of the condition Ready except Progressing.
// eventType is empty if there is none.
func EventOf(was, is v1alpha1.DatabaseStatus) (eventType, reason, message string) {
	before, after := readyOf(was), readyOf(is)
	switch {
	case after.Reason == before.Reason, after.Reason == kstatus.Progressing:
		return "", "", ""
	case after.Status == metav1.ConditionTrue:
		return corev1.EventTypeNormal, after.Reason, after.Message
	}
	return corev1.EventTypeWarning, after.Reason, after.Message
}

// readyOf returns the condition Ready; the zero value if there is none.
func readyOf(status v1alpha1.DatabaseStatus) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(status.Conditions, string(kstatus.Ready)), metav1.Condition{})
}

// isRolledOut reports whether all Pods of a StatefulSet are available and up to date.
func isRolledOut(s *appsv1.StatefulSet) bool {
	if s == nil || s.Status.ObservedGeneration < s.Generation {
		return false
	}
	want := ptr.Deref(s.Spec.Replicas, 1)
	return s.Status.Replicas == want && s.Status.UpdatedReplicas == want && s.Status.AvailableReplicas == want
}
