package icecream

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream/podproblem"
)

// Every condition that kube-controller-manager's Deployment controller can set
// (k8s.io/kubernetes/pkg/controller/deployment, v1.36), and what an Icecream says about a
// Deployment whose Pods are not all available then: at first, and when it has lasted.
// docs/guarantees.md has the same table.
func TestConditionsOfDeployments(t *testing.T) {
	const (
		progressing   = "Reconciling: " + v1alpha1.ReasonProgressing
		isSlow        = "Stalled: " + v1alpha1.ReasonProgressDeadlineExceeded
		replicas      = "Reconciling: " + v1alpha1.ReasonReplicaFailure
		replicasStall = "Stalled: " + v1alpha1.ReasonReplicaFailure
	)
	yes, no, unknown := corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	for _, test := range []struct {
		kind     appsv1.DeploymentConditionType
		status   corev1.ConditionStatus
		reason   string
		isBehind bool          // the status is about an older generation
		want     string        // at first
		lasts    time.Duration // how long it takes until it is
		wantThen string
	}{
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetCreated", true, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, yes, "FoundNewReplicaSet", true, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, yes, "ReplicaSetUpdated", false, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetAvailable", false, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", false, progressing, patience, isSlow},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", true, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", false, replicas, patience, replicasStall},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", true, replicas, patience, replicasStall},
		{appsv1.DeploymentProgressing, unknown, "DeploymentPaused", false, progressing, deadline, isSlow},
		{appsv1.DeploymentProgressing, unknown, "DeploymentResumed", false, progressing, deadline, isSlow},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", false, replicas, patience, replicasStall},
		{appsv1.DeploymentReplicaFailure, yes, "FailedDelete", false, replicas, patience, replicasStall},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", true, progressing, deadline, isSlow},
		{appsv1.DeploymentReplicaFailure, no, "", false, progressing, deadline, isSlow},
		{appsv1.DeploymentAvailable, yes, "MinimumReplicasAvailable", false, progressing, deadline, isSlow},
		{appsv1.DeploymentAvailable, no, "MinimumReplicasUnavailable", false, progressing, deadline, isSlow},
		{"Tasty", no, "SaysSomebodyElse", false, progressing, deadline, isSlow},
	} {
		name := string(test.kind) + " " + test.reason
		if test.isBehind {
			name += ", of a generation not observed"
		}
		t.Run(name, func(t *testing.T) {
			says := says(test.kind, test.status, test.reason, "because")
			d := made(t, newIcecream(), rollingOut, says)
			if test.isBehind {
				d.Status.ObservedGeneration = 0
			}
			o := seeing(newIcecream(), d)
			o.Pods = o.Pods[:2]
			for _, look := range []struct {
				lasts, again time.Duration
				want         string
			}{{0, test.lasts, test.want}, {test.lasts - time.Second, time.Second, test.want}, {test.lasts, 0, test.wantThen}} {
				o.Memory = lasting(t, o, look.lasts)
				r := report(t, o)
				if got := verdictOf(r.Status); got != look.want || r.RequeueAfter != look.again {
					t.Errorf("after %s it says %q, again after %s; want %q, %s", look.lasts, got, r.RequeueAfter, look.want, look.again)
				}
			}
			// Whatever a condition says, what is rolled out is Ready.
			if got := verdictOf(report(t, seeing(newIcecream(), made(t, newIcecream(), says))).Status); got != "Ready: "+v1alpha1.ReasonAvailable {
				t.Errorf("rolled out, it says %q", got)
			}
		})
	}
}

// Each problem that a Pod can have has a name in the API.
func TestReasonsOfPods(t *testing.T) {
	for _, reason := range podproblem.Reasons() {
		if podReasons[reason] == "" {
			t.Errorf("%s has none", reason)
		}
	}
}

// Of several problems, the same one counts for as long as they last.
func TestSeveralProblems(t *testing.T) {
	d := func(edits ...func(*appsv1.Deployment)) []*appsv1.Deployment {
		return []*appsv1.Deployment{made(t, newIcecream(), append([]func(*appsv1.Deployment){rollingOut}, edits...)...)}
	}
	failed := says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota")
	late := says(appsv1.DeploymentProgressing, corev1.ConditionFalse, progressDeadlineExceeded, "timed out")
	noReplicaSet := says(appsv1.DeploymentProgressing, corev1.ConditionFalse, replicaSetCreateError, "forbidden")
	paused := func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 1 }
	broken, slow := waiting("ErrImagePull", time.Minute), seen(notReady(time.Minute))
	for name, test := range map[string]struct {
		deployments []*appsv1.Deployment
		pods        []Pod
		want        string
	}{
		"everything at once":    {d(failed, late, paused), []Pod{slow, broken}, `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`},
		"no ReplicaSet":         {d(noReplicaSet, failed), []Pod{slow}, "forbidden"},
		"paused, and more":      {d(failed, late, paused), []Pod{slow}, `Deployment "sundae" is paused`},
		"a quota, and too late": {d(failed, late), []Pod{slow}, "exceeded quota"},
		"too late":              {d(late), []Pod{slow}, "timed out"},
		"a slow Pod":            {d(), []Pod{slow}, `Pod "sundae-1" has not become ready within 600 s`},
		"nothing but time":      {d(), nil, `Deployment "sundae" has not been rolled out within 600 s`},
	} {
		t.Run(name, func(t *testing.T) {
			o := seeing(newIcecream(), test.deployments...)
			o.Pods = test.pods
			if got := o.findProblem().Message; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// What is Stalled because it is slow stays Stalled when its Deployment says that it is, too,
// even if Icecreams get longer than the Deployment.
func TestSlowUntilTheDeadlineAndAfter(t *testing.T) {
	const short = patience / 2
	o := seeing(newIcecream(), made(t, newIcecream(), rollingOut, func(d *appsv1.Deployment) {
		d.Spec.ProgressDeadlineSeconds = ptr.To(int32(short.Seconds()))
	}))
	o.Pods = []Pod{seen(notReady(time.Minute))}
	o.Memory = lasting(t, o, short)
	for _, when := range []string{"after the deadline", "when the Deployment says so"} {
		if got := verdictOf(report(t, o).Status); got != "Stalled: "+v1alpha1.ReasonProgressDeadlineExceeded {
			t.Errorf("%s it says %q", when, got)
		}
		says(appsv1.DeploymentProgressing, corev1.ConditionFalse, progressDeadlineExceeded, "timed out")(o.Live)
	}
}
