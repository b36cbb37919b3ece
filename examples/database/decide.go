package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kit/response"
)

// Observed is what the caches show about one Database. Nothing here changes what it points to.
type Observed struct {
	Now      time.Time
	Database *v1alpha1.Database
	// Undecodable says why the spec could not be decoded; empty if it was.
	Undecodable string
	Live        *appsv1.StatefulSet // the one with the Database's name, if any; it may have another owner
	Refusal     error               // by which the API server has just refused a write
}

// Plan is what should be written for one Database now.
type Plan struct {
	Request *patch.Request     // to send about the StatefulSet; nil if it is as it should be
	Held    kstatus.Conclusion // why nothing can be written; the zero value if that is not so
}

// Decide says what should be written now.
func Decide(o Observed) (plan Plan, err error) {
	live := o.Live
	switch {
	case o.Database.DeletionTimestamp != nil: // What is ours now belongs to the garbage collector.
		return Plan{}, nil
	case o.Undecodable != "":
		return held(kstatus.Stalled, v1alpha1.ReasonInvalidSpec, "The spec cannot be decoded: "+o.Undecodable), nil
	case live != nil && !metav1.IsControlledBy(live, o.Database):
		return held(kstatus.Stalled, v1alpha1.ReasonErrResourceExists, fmt.Sprintf("StatefulSet %q already exists and is not managed by this Database", live.Name)), nil
	case live != nil && live.DeletionTimestamp != nil:
		return held(kstatus.Reconciling, v1alpha1.ReasonTerminating, fmt.Sprintf("StatefulSet %q is being deleted and will be created again", live.Name)), nil
	}
	_, plan.Request, err = patch.Apply(fieldManager, live, newStatefulSet(o.Database))
	if live != nil && plan.Request == nil {
		plan.Request = patch.Scale(fieldManager, live, ptr.Deref(live.Spec.Replicas, 1), replicasOf(o.Database))
	}
	return plan, err
}

func held(state kstatus.State, reason, message string) Plan {
	return Plan{Held: kstatus.Conclusion{State: state, Reason: reason, Message: message}}
}

// Status says what to report, once the plan was carried out. Then Live is what is stored now.
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
	switch {
	case response.IsOwnValidation(o.Refusal): // Only an edit can help.
		return kstatus.Conclusion{State: kstatus.Stalled, Reason: v1alpha1.ReasonInvalidSpec, Message: o.Refusal.Error()}
	case o.Refusal != nil:
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: v1alpha1.ReasonRefused, Message: o.Refusal.Error()}
	case plan.Held.Reason != "":
		return plan.Held
	case !isRolledOut(o.Live):
		return kstatus.Conclusion{State: kstatus.Reconciling, Reason: kstatus.Progressing, Message: "Waiting for Pods to become available"}
	}
	return kstatus.Conclusion{State: kstatus.Ready, Reason: v1alpha1.ReasonAvailable, Message: "All Pods are available"}
}

// isRolledOut reports whether all Pods of a StatefulSet are available and up to date.
func isRolledOut(s *appsv1.StatefulSet) bool {
	if s == nil || s.Status.ObservedGeneration < s.Generation {
		return false
	}
	want := ptr.Deref(s.Spec.Replicas, 1)
	return s.Status.Replicas == want && s.Status.UpdatedReplicas == want && s.Status.AvailableReplicas == want
}
