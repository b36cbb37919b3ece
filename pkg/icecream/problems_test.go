package icecream

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
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

// Each problem that a Pod may have has a name in the API.
func TestReasonsOfPods(t *testing.T) {
	for _, reason := range podproblem.Reasons() {
		if podReasons[reason] == "" {
			t.Errorf("%s has none", reason)
		}
	}
}

// Of several problems the first check that finds one decides.
func TestChecks(t *testing.T) {
	d := func(edits ...func(*appsv1.Deployment)) []*appsv1.Deployment {
		d := made(t, newIcecream())
		rollingOut(d)
		for _, edit := range edits {
			edit(d)
		}
		return []*appsv1.Deployment{d}
	}
	failed := says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota", 0)
	late := says(appsv1.DeploymentProgressing, corev1.ConditionFalse, progressDeadlineExceeded, "timed out", 0)
	paused := func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 1 }
	noReplicaSet := func(d *appsv1.Deployment) {
		says(appsv1.DeploymentProgressing, corev1.ConditionFalse, replicaSetCreateError, "forbidden", 0)(d)
		d.Status.ObservedGeneration = 0
	}
	gone := made(t, newIcecream(calls("cone")))
	beingDeleted(gone)
	broken, slow := waiting("ErrImagePull", time.Minute), seen(notReady(time.Minute))
	for _, tt := range []struct {
		name        string
		deployments []*appsv1.Deployment
		pods        []Pod
		want        string // the check
	}{
		{"everything at once", d(failed, late, paused), []Pod{slow, broken}, "a Pod cannot run"},
		{"no ReplicaSet", d(noReplicaSet, failed), []Pod{slow}, "the ReplicaSet cannot be created"},
		{"paused, and more", d(failed, late, paused), []Pod{slow}, "the Deployment is paused in mid-rollout"},
		{"a quota, and too late", d(failed, late), []Pod{slow}, "Pods cannot be created"},
		{"too late", d(late), []Pod{slow}, "the Deployment has given up"},
		{"only the former one", append(d(func(d *appsv1.Deployment) { rolledOut(d) }), gone), nil, "a replaced Deployment does not go away"},
		{"a slow Pod", d(), []Pod{slow}, "something is slow"},
		{"nothing but time", d(), nil, "something is slow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := world(newIcecream(), tt.deployments...)
			o.Pods = tt.pods
			a := Assess(o)
			for _, check := range checks {
				if p := check.find(a); p.Reason != "" {
					if check.name != tt.want || a.memory.Problem != p {
						t.Errorf("%s: %+v, remembered %+v; want %s", check.name, p, a.memory.Problem, tt.want)
					}
					return
				}
			}
			t.Errorf("nothing, want %s", tt.want)
		})
	}
}

// What is Stalled because it is slow stays Stalled when its Deployment says that it is, too,
// even if Icecreams get longer than the Deployment.
func TestSlowUntilTheDeadlineAndAfter(t *testing.T) {
	const short = patience / 2
	d := made(t, newIcecream())
	rollingOut(d)
	d.Spec.ProgressDeadlineSeconds = ptr.To(int32(short.Seconds()))
	o := world(newIcecream(), d)
	o.Pods = []Pod{seen(notReady(time.Minute))}
	o.Memory = lasting(o, short)
	s, _ := statusOf(o, decide(o), Outcome{})
	if got := verdictOf(s); got != "Stalled: "+v1alpha1.ReasonProgressDeadlineExceeded {
		t.Fatalf("after %v it says %q", short, got)
	}

	late := d.DeepCopy()
	says(appsv1.DeploymentProgressing, corev1.ConditionFalse, progressDeadlineExceeded, "timed out", 0)(late)
	o.Named, o.Owned = late, []*appsv1.Deployment{late}
	if s, _ = statusOf(o, decide(o), Outcome{}); verdictOf(s) != "Stalled: "+v1alpha1.ReasonProgressDeadlineExceeded {
		t.Errorf("when the Deployment says so, it says %q", verdictOf(s))
	}
}
