package icecream

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Every condition that kube-controller-manager's Deployment controller can set
// (k8s.io/kubernetes/pkg/controller/deployment, v1.36), and what an Icecream says
// about a Deployment whose Pods are not all available then: at first, and when it has
// lasted. docs/counterparts.md has the same table.
func TestConditionsOfDeployments(t *testing.T) {
	const (
		progressing   = "Reconciling: " + v1alpha1.ReasonProgressing
		isSlow        = "Stalled: " + v1alpha1.ReasonProgressDeadlineExceeded
		replicas      = "Reconciling: " + v1alpha1.ReasonReplicaFailure
		replicasStall = "Stalled: " + v1alpha1.ReasonReplicaFailure
	)
	yes, no, unknown := corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	behind := func(d *appsv1.Deployment) { d.Status.ObservedGeneration = 0 }
	tests := []struct {
		kind     appsv1.DeploymentConditionType
		status   corev1.ConditionStatus
		reason   string
		edit     func(*appsv1.Deployment)
		want     string        // at first
		lasts    time.Duration // how long it takes until it is
		wantThen string
	}{
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetCreated", behind, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, yes, "FoundNewReplicaSet", behind, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, yes, "ReplicaSetUpdated", nil, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetAvailable", nil, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", nil, progressing, patience, isSlow},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", behind, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", nil, replicas, patience, replicasStall},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", behind, replicas, patience, replicasStall},
		{appsv1.DeploymentProgressing, unknown, "DeploymentPaused", nil, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, unknown, "DeploymentResumed", nil, progressing, deadline, isSlow},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", nil, replicas, patience, replicasStall},
		{appsv1.DeploymentReplicaFailure, yes, "FailedDelete", nil, replicas, patience, replicasStall},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", behind, progressing, deadline, isSlow},
		{appsv1.DeploymentAvailable, yes, "MinimumReplicasAvailable", nil, progressing, deadline, isSlow},
		{appsv1.DeploymentAvailable, no, "MinimumReplicasUnavailable", nil, progressing, deadline, isSlow},
		{"Tasty", no, "SaysSomebodyElse", nil, progressing, deadline, isSlow},
	}
	for _, tt := range tests {
		name := string(tt.kind) + " " + tt.reason
		if tt.edit != nil {
			name += ", of a generation not observed"
		}
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream())
			rollingOut(d)
			says(tt.kind, tt.status, tt.reason, "because", 0)(d)
			if tt.edit != nil {
				tt.edit(d)
			}
			o := world(newIcecream(), d)
			o.Pods = o.Pods[:2]
			for _, look := range []struct {
				lasts time.Duration
				want  string
			}{{0, tt.want}, {tt.lasts - time.Second, tt.want}, {tt.lasts, tt.wantThen}} {
				o.Memory = lasting(o, look.lasts)
				s, _ := statusOf(o, decide(o), Outcome{})
				if got := verdictOf(s); got != look.want {
					t.Errorf("after %v it says %q, want %q", look.lasts, got, look.want)
				}
			}
			// Whatever a condition says, what is rolled out is Ready.
			rolledOut(d)
			says(tt.kind, tt.status, tt.reason, "because", 0)(d)
			o = world(newIcecream(), d)
			if s, _ := statusOf(o, decide(o), Outcome{}); verdictOf(s) != "Ready: "+v1alpha1.ReasonAvailable {
				t.Errorf("rolled out, it says %q", verdictOf(s))
			}
		})
	}
}
