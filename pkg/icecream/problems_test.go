package icecream

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
)

// Every condition that kube-controller-manager's Deployment controller can set
// (k8s.io/kubernetes/pkg/controller/deployment, v1.36), and what an Icecream says about a
// Deployment whose Pods are not all available then: at first, and when it has lasted.
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
		isBehind bool   // the status is about an older generation
		want     string // at first
		wantThen string // when the deadline has passed
	}{
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetCreated", true, progressing, isSlow},
		{appsv1.DeploymentProgressing, yes, "FoundNewReplicaSet", true, progressing, isSlow},
		{appsv1.DeploymentProgressing, yes, "ReplicaSetUpdated", false, progressing, isSlow},
		{appsv1.DeploymentProgressing, yes, "NewReplicaSetAvailable", false, progressing, isSlow},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", false, progressing, isSlow},
		{appsv1.DeploymentProgressing, no, "ProgressDeadlineExceeded", true, progressing, isSlow},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", false, replicas, replicasStall},
		{appsv1.DeploymentProgressing, no, "ReplicaSetCreateError", true, replicas, replicasStall},
		{appsv1.DeploymentProgressing, unknown, "DeploymentPaused", false, progressing, isSlow},
		{appsv1.DeploymentProgressing, unknown, "DeploymentResumed", false, progressing, isSlow},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", false, replicas, replicasStall},
		{appsv1.DeploymentReplicaFailure, yes, "FailedDelete", false, replicas, replicasStall},
		{appsv1.DeploymentReplicaFailure, yes, "FailedCreate", true, progressing, isSlow},
		{appsv1.DeploymentReplicaFailure, no, "", false, progressing, isSlow},
		{appsv1.DeploymentAvailable, yes, "MinimumReplicasAvailable", false, progressing, isSlow},
		{appsv1.DeploymentAvailable, no, "MinimumReplicasUnavailable", false, progressing, isSlow},
		{"Tasty", no, "SaysSomebodyElse", false, progressing, isSlow},
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
			}{{0, deadline, test.want}, {deadline - time.Second, time.Second, test.want}, {deadline, 0, test.wantThen}} {
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
	broken, slow, gone := waiting("ErrImagePull", time.Minute), seen(notReady(time.Minute)), seen(hasFailed)
	for name, test := range map[string]struct {
		deployments []*appsv1.Deployment
		pods        []Pod
		want        string
	}{
		"everything at once":    {d(failed, late, paused), []Pod{slow, gone, broken}, `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`},
		"no ReplicaSet":         {d(noReplicaSet, failed), []Pod{slow, gone}, "forbidden"},
		"paused, and more":      {d(failed, late, paused), []Pod{slow, gone}, `Deployment "sundae" is paused; run kubectl rollout resume deployment/sundae`},
		"a quota, and too late": {d(failed, late), []Pod{slow, gone}, "exceeded quota"},
		"a Pod that has failed": {d(late), []Pod{slow, gone}, `Pod "sundae-1" has failed: OutOfcpu: Node didn't have enough resource: cpu`},
		"too late":              {d(late), []Pod{slow}, ""},
		"a slow Pod":            {d(), []Pod{slow}, ""},
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

// Pods that fail again and again are one problem, whichever Pod has it. What failed before all was well
// is no news.
func TestPodsThatFailAgainAndAgain(t *testing.T) {
	pods := func(names ...string) (pods []Pod) {
		for _, name := range names {
			pods = append(pods, seen(hasFailed, func(pod *corev1.Pod) { pod.Name = name }))
		}
		return pods
	}
	o := seeing(newIcecream(), made(t, newIcecream(), rollingOut))
	unready := o.Pods[:2]
	ready := seeing(newIcecream(), made(t, newIcecream()))
	var got []string
	for _, step := range []struct {
		after      time.Duration
		isComplete bool
		failed     []Pod
	}{
		{0, true, pods("sundae-0")}, // long ago
		{time.Hour, false, pods("sundae-0")},
		{time.Second, false, pods("sundae-0", "sundae-1")},
		{time.Minute, false, pods("sundae-0", "sundae-1", "sundae-2")},
		{time.Second, true, pods("sundae-1", "sundae-2", "sundae-3")}, // not for long, perhaps
		{settle, true, pods("sundae-2", "sundae-3")},
		{time.Second, false, pods("sundae-2", "sundae-3")},
	} {
		o.Now = o.Now.Add(step.after)
		is := o
		is.Live, is.Pods = o.Live, append(slices.Clone(unready), step.failed...)
		if step.isComplete {
			is.Live, is.Pods = ready.Live, append(slices.Clone(ready.Pods), step.failed...)
		}
		r := report(t, is)
		o.Memory = r.Memory
		got = append(got, verdictOf(r.Status)+": "+messageOf(r.Status))
	}
	want := []string{
		"Ready: Available: 3 of 3 Pods available",
		"Reconciling: Progressing: 2 of 3 Pods available",
		`Reconciling: PodFailed: Pod "sundae-1" has failed: OutOfcpu: Node didn't have enough resource: cpu`,
		`Reconciling: PodFailed: Pod "sundae-2" has failed: OutOfcpu: Node didn't have enough resource: cpu`,
		`Reconciling: PodFailed: Pod "sundae-2" has failed: OutOfcpu: Node didn't have enough resource: cpu`,
		"Ready: Available: 3 of 3 Pods available",
		"Reconciling: Progressing: 2 of 3 Pods available",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it says (-want +got):\n%s", diff)
	}
}

// The deadline is the Deployment's, or ten minutes if there is none.
func TestDeadline(t *testing.T) {
	within := func(seconds int32) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = &seconds }
	}
	occupied := seeing(newIcecream(), made(t, newIcecream(), func(d *appsv1.Deployment) {
		d.OwnerReferences[0].UID, d.Spec.ProgressDeadlineSeconds = "somebody", ptr.To[int32](7)
	}))
	for name, test := range map[string]struct {
		o    Observed
		want time.Duration
	}{
		"none":                  {seeing(newIcecream()), deadline},
		"by default":            {seeing(newIcecream(), made(t, newIcecream())), deadline},
		"its own":               {seeing(newIcecream(), made(t, newIcecream(), within(30))), 30 * time.Second},
		"never":                 {seeing(newIcecream(), made(t, newIcecream(), within(math.MaxInt32))), kstatus.Forever},
		"somebody else's":       {occupied, deadline},
		"an Icecream's in time": {seeing(newIcecream(), made(t, newIcecream(), within(1))), time.Second},
	} {
		if got := test.o.deadline(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// What is progress, and what is none.
func TestProgress(t *testing.T) {
	d := made(t, newIcecream())
	edited := func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/mint:1" }
	pending, scheduled, ready := seen(unschedulable(0)), seen(notReady(0)), seen()
	last := int64(-1)
	for _, step := range []struct {
		what string
		ice  *v1alpha1.Icecream
		live *appsv1.Deployment
		pods []Pod
	}{
		{"nothing", newIcecream(), nil, nil},
		{"a Deployment of another spec", newIcecream(edited), d, []Pod{ready, ready}},
		{"a Deployment", newIcecream(), d, []Pod{pending, seen(hasFailed)}},
		{"a Pod with a node", newIcecream(), d, []Pod{pending, scheduled}},
		{"two", newIcecream(), d, []Pod{scheduled, scheduled}},
		{"one that is ready", newIcecream(), d, []Pod{ready}},
		{"two", newIcecream(), d, []Pod{ready, ready, pending}},
	} {
		got := Observed{Icecream: step.ice, Live: step.live, Pods: step.pods}.progress()
		if got <= last {
			t.Errorf("%s: %d is no progress after %d", step.what, got, last)
		}
		last = got
	}
}
