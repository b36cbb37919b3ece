package icecream

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// newPod returns a Pod of the plain Icecream that has been ready for an hour, as edited.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "parlor", Name: "sundae-1", UID: "uid-of-sundae-1", ResourceVersion: "9",
			Labels:          map[string]string{LabelIcecream: "sundae"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "9", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: kittest.ReadyStatus(containerName, "registry.example/vanilla:1", now.Add(-time.Hour)),
	}
	ofTemplate("7c8b", time.Hour)(pod)
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// seen returns a Pod of the plain Icecream, as edited and as the controller reads it.
func seen(edits ...func(*corev1.Pod)) Pod {
	p, _ := PodOf(newPod(edits...), now)
	return p
}

// ofTemplate makes a Pod one of the ReplicaSet of that template.
func ofTemplate(hash string, age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.CreationTimestamp = metav1.NewTime(now.Add(-age))
		pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		pod.OwnerReferences[0].Name = "sundae-" + hash
	}
}

// notReady, unschedulable, hasFailed and cannotPull make a Pod one that has been so for that long.
func notReady(age time.Duration) func(*corev1.Pod) { return kittest.NotReady(now.Add(-age)) }

func unschedulable(age time.Duration) func(*corev1.Pod) { return kittest.Unschedulable(now.Add(-age)) }

func hasFailed(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		notReady(age)(pod)
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "OutOfcpu", "Node didn't have enough resource: cpu"
	}
}

func cannotPull(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { notReady(age)(pod); kittest.Waits("ErrImagePull", "denied")(pod) }
}

// recovered makes a Pod one that is ready again, and whose container was started after a crash that long ago.
func recovered(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		kittest.Ended(1, "Error")(pod)
		pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(now.Add(-age))
	}
}

// Each problem of a Pod is a reason of the API.
func TestReasonsOfPods(t *testing.T) {
	reasons := []string{
		v1alpha1.ReasonContainerError, v1alpha1.ReasonCrashLoopBackOff, v1alpha1.ReasonImagePullBackOff,
		v1alpha1.ReasonUnschedulable, v1alpha1.ReasonPodFailed, v1alpha1.ReasonPodNotReady,
	}
	if diff := cmp.Diff(reasons, podproblem.Reasons()); diff != "" {
		t.Errorf("(-API +podproblem):\n%s", diff)
	}
}

// counts returns how many of the Pods a Deployment has, and how many are made from its present template, which is
// the one with the greatest hash.
func counts(pods []Pod) (all, updated int32) {
	present := ""
	for _, pod := range pods {
		if !pod.Terminating {
			present = max(present, pod.TemplateHash)
		}
	}
	for _, pod := range pods {
		if !pod.Terminating && !pod.Failed {
			all++
			if pod.TemplateHash == present {
				updated++
			}
		}
	}
	return all, updated
}

// Which Pod's problem is told.
func TestProblem(t *testing.T) {
	const image, crash, failed = podproblem.ImagePullFailed, podproblem.CrashLoop, podproblem.Failed
	older, replaced, newer := ofTemplate("5d6f", 2*time.Hour), ofTemplate("5d6f", 0), ofTemplate("9e1a", time.Minute)
	doesNotEnd := func(pod *corev1.Pod) { beingDeleted(pod); pod.Finalizers = []string{"example.com/hold"} }
	noImage, isBeingMade, isDeleted := cannotPull(0), kittest.Waits("ContainerCreating", ""), beingDeleted[*corev1.Pod]
	seenByNobody := func(d *appsv1.Deployment) { d.Generation, d.Status.ObservedGeneration = 0, 0 }
	ofFormer := func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "former" }
	ofCone := func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = "cone-7c8b" }
	noneUpdated := func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 0 }
	recreate := func(d *appsv1.Deployment) {
		noneUpdated(d)
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	}
	behind := func(d *appsv1.Deployment) { d.Status.Replicas++ }
	timedOut := says(appsv1.DeploymentProgressing, corev1.ConditionFalse, v1alpha1.ReasonProgressDeadlineExceeded, "it has timed out")
	for name, test := range map[string]struct {
		edit  func(*appsv1.Deployment)
		pods  []Pod
		told  string // the reason of the present status
		want  string // its reason
		again time.Duration
	}{
		"all are well":                       {pods: []Pod{seen(), seen(newer)}},
		"one fails":                          {pods: []Pod{seen(), seen(noImage)}, want: image},
		"one has not been ready for moments": {pods: []Pod{seen(notReady(50 * time.Second))}, again: 10 * time.Second},
		"a failure comes before a wait":      {pods: []Pod{seen(notReady(time.Hour)), seen(noImage)}, want: image},
		"of failures, the longest":           {pods: []Pod{seen(unschedulable(2)), seen(cannotPull(3)), seen(unschedulable(1))}, want: image},
		"a Pod failed just now":              {pods: []Pod{seen(hasFailed(time.Second))}, want: failed, again: 59 * time.Second},
		"a Pod failed a minute ago":          {pods: []Pod{seen(hasFailed(time.Minute))}},
		"it runs again, a moment":            {pods: []Pod{seen(recovered(50 * time.Second))}, want: crash, again: 10 * time.Second},
		"it runs again, a minute":            {pods: []Pod{seen(recovered(time.Minute))}},

		"only old Pods fail":                   {pods: []Pod{seen(newer), seen(older, noImage)}},
		"only old Pods fail, for too long":     {edit: timedOut, pods: []Pod{seen(newer), seen(older, noImage)}, want: image},
		"only old Pods fail, as told":          {pods: []Pod{seen(newer), seen(older, noImage)}, told: image, want: image},
		"old Pods fail, new ones are starting": {pods: []Pod{seen(newer, notReady(time.Minute-1)), seen(older, noImage)}, again: 1},
		"old and new Pods fail":                {pods: []Pod{seen(older, unschedulable(time.Hour)), seen(newer, noImage)}, want: image},
		"a new one fails, an old one is newer": {pods: []Pod{seen(older), seen(replaced, unschedulable(0)), seen(newer, noImage)}, want: image},
		"the newest terminates, others start":  {pods: []Pod{seen(newer, isDeleted), seen(notReady(0)), seen(older, noImage)}, again: time.Minute},
		"a new Pod failed for good":            {pods: []Pod{seen(newer, hasFailed(time.Hour)), seen(older, noImage)}},

		"the cache does not show the new Pods": {edit: behind, pods: []Pod{seen(noImage)}},
		"the same, and it was told before":     {edit: behind, pods: []Pod{seen(noImage)}, told: image, want: image},
		"the same, and another one was told":   {edit: behind, pods: []Pod{seen(noImage)}, told: crash},

		"there are no new Pods yet":             {edit: noneUpdated, pods: []Pod{seen(noImage)}},
		"an old Pod does not end":               {edit: noneUpdated, pods: []Pod{seen(doesNotEnd)}},
		"an old Pod holds up a Recreate":        {edit: recreate, pods: []Pod{seen(doesNotEnd), seen(noImage)}, want: podproblem.NotReady},
		"the status is of another generation":   {edit: func(d *appsv1.Deployment) { d.Generation++ }, pods: []Pod{seen(noImage)}},
		"its controller has never seen it":      {edit: seenByNobody, pods: []Pod{seen(noImage)}},
		"Pods of another Deployment":            {pods: []Pod{seen(noImage, ofCone)}},
		"the Deployment is of another Icecream": {edit: ofFormer, pods: []Pod{seen(noImage)}},
		"a container is being made":             {pods: []Pod{seen(notReady(time.Second), isBeingMade)}, again: 59 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), rollingOut)
			d.Status.Replicas, d.Status.UpdatedReplicas = counts(test.pods)
			if test.edit != nil {
				test.edit(d)
			}
			ice := newIcecream()
			ice.Status.ObservedGeneration = ice.Generation
			kstatus.Conclusion{State: kstatus.Reconciling, Reason: test.told}.SetOn(&ice.Status.Conditions, ice.Generation, now)
			p, again := Observed{Now: now, Icecream: ice, Live: d, Pods: test.pods}.problem()
			if p.Reason != test.want || again != test.again {
				t.Errorf("%q, again after %s; want %q, %s", p.Reason, again, test.want, test.again)
			}
		})
	}
}
