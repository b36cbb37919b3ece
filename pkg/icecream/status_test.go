package icecream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// Every condition that kube-controller-manager's Deployment controller can set (k8s.io/kubernetes/pkg/controller/deployment,
// v1.36), and what an Icecream says about a Deployment whose Pods are not all available then, or whose status is behind.
func TestConditionsOfDeployments(t *testing.T) {
	const progressing, replicas = "Reconciling: Progressing", "Reconciling: ReplicaFailure"
	for condition, want := range map[string][2]string{
		"Progressing True NewReplicaSetCreated":      {progressing, progressing},
		"Progressing True FoundNewReplicaSet":        {progressing, progressing},
		"Progressing True ReplicaSetUpdated":         {progressing, progressing},
		"Progressing True NewReplicaSetAvailable":    {progressing, progressing},
		"Progressing False ProgressDeadlineExceeded": {"Stalled: ProgressDeadlineExceeded", progressing},
		"Progressing False ReplicaSetCreateError":    {replicas, replicas},
		"Progressing Unknown DeploymentPaused":       {progressing, progressing},
		"Progressing Unknown DeploymentResumed":      {progressing, progressing},
		"ReplicaFailure True FailedCreate":           {replicas, progressing},
		"ReplicaFailure True FailedDelete":           {replicas, progressing},
		"ReplicaFailure False Nothing":               {progressing, progressing},
		"Available True MinimumReplicasAvailable":    {progressing, progressing},
		"Available False MinimumReplicasUnavailable": {progressing, progressing},
		"Tasty False SaysSomebodyElse":               {progressing, progressing},
	} {
		var kind, status, reason string
		if _, err := fmt.Sscan(condition, &kind, &status, &reason); err != nil {
			t.Fatal(err)
		}
		says := says(appsv1.DeploymentConditionType(kind), corev1.ConditionStatus(status), reason, "because")
		behind := func(d *appsv1.Deployment) { d.Generation++ }
		for when, test := range map[string]struct {
			edits []func(*appsv1.Deployment)
			want  string
		}{
			"rolling out": {[]func(*appsv1.Deployment){rollingOut, says}, want[0]},
			"behind":      {[]func(*appsv1.Deployment){rollingOut, says, behind}, want[1]},
			"rolled out":  {[]func(*appsv1.Deployment){says}, "Ready: Available"},
		} {
			if got, _ := reported(seeing(newIcecream(), made(t, newIcecream(), test.edits...))); !strings.HasPrefix(got, test.want+": ") {
				t.Errorf("%s, %s: got %s, want %s", condition, when, got, test.want)
			}
		}
	}
}

func TestStatus(t *testing.T) {
	type edits = []func(*appsv1.Deployment)
	const progressing, ready = "Reconciling: Progressing: ", "Ready: Available: "
	const crashed = `CrashLoopBackOff: Pod "sundae-1", container "icecream": exited with code 1 (Error)`
	const noImage = `ImagePullBackOff: Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": denied`
	const isPaused = `Reconciling: DeploymentPaused: Deployment "sundae" is paused; run kubectl rollout resume deployment/sundae`
	crashes := seen(notReady(0), kittest.Waits("CrashLoopBackOff", ""), kittest.Ended(1, "Error"))
	edited := func(d *appsv1.Deployment) { d.Generation++ }
	onePodMore := func(d *appsv1.Deployment) { d.Status.Replicas++ }
	pausedAtRest := func(d *appsv1.Deployment) { d.Spec.Paused = true }
	pausedAtFirst := func(d *appsv1.Deployment) {
		d.Spec.Paused, d.Status = true, appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	}
	tooSlow := says(appsv1.DeploymentProgressing, "False", "ProgressDeadlineExceeded", "it has timed out")
	quota := says(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", "exceeded quota")
	noReplicaSet := says(appsv1.DeploymentProgressing, "False", "ReplicaSetCreateError", "no ReplicaSet")
	paused := func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 2 }
	scaledTo := func(n int32) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(n) }
	}
	for name, test := range map[string]struct {
		edits edits
		pods  []Pod // besides the first two, which are ready
		want  string
	}{
		"a Pod is being started":   {edits{rollingOut}, []Pod{seen(notReady(0))}, progressing + "2 of 3 Pods available"},
		"every Pod is available":   {nil, []Pod{seen()}, ready + "3 of 3 Pods available"},
		"none are asked for":       {edits{scaledTo(0), rolledOut}, nil, ready + "Scaled to zero"},
		"the last one is stopping": {edits{scaledTo(0)}, nil, progressing + "3 of 0 Pods available"},

		"an older generation was rolled out": {edits{edited}, []Pod{seen()}, progressing + "3 of 3 Pods available, 0 up to date"},
		"an old Pod is left":                 {edits{onePodMore}, []Pod{seen()}, progressing + "3 of 3 Pods available, 3 up to date"},

		"a container crashes":           {edits{rollingOut}, []Pod{crashes}, "Reconciling: " + crashed},
		"a container crashed just now":  {nil, []Pod{seen(recovered(59 * time.Second))}, "Reconciling: " + crashed},
		"a container crashed long ago":  {nil, []Pod{seen(recovered(time.Minute))}, ready + "3 of 3 Pods available"},
		"a container crashes, too long": {edits{rollingOut, tooSlow}, []Pod{seen(recovered(0))}, "Stalled: " + crashed},

		"a quota":                    {edits{rollingOut, quota}, nil, "Reconciling: ReplicaFailure: exceeded quota"},
		"a quota, too long":          {edits{rollingOut, quota, tooSlow}, nil, "Stalled: ReplicaFailure: exceeded quota"},
		"a quota, and no ReplicaSet": {edits{rollingOut, quota, noReplicaSet}, nil, "Reconciling: ReplicaFailure: no ReplicaSet"},
		"a quota, and a Pod's image": {edits{rollingOut, quota}, []Pod{seen(cannotPull(0))}, "Reconciling: " + noImage},
		"a slow rollout":             {edits{rollingOut, tooSlow}, nil, "Stalled: ProgressDeadlineExceeded: it has timed out"},

		"paused in mid-rollout":       {edits{rollingOut, paused}, nil, isPaused},
		"paused before the first Pod": {edits{pausedAtFirst}, nil, isPaused},
		"just paused":                 {edits{pausedAtRest, edited}, []Pod{seen()}, progressing + "3 of 3 Pods available, 0 up to date"},
		"paused while all is well":    {edits{pausedAtRest}, []Pod{seen()}, ready + "3 of 3 Pods available"},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edits...)
			o := seeing(newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = d.Spec.Replicas }), d)
			o.Pods = append(o.Pods[:min(2, len(o.Pods), int(*d.Spec.Replicas))], test.pods...)
			if got, _ := reported(o); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

// What only somebody else can end is Stalled ten minutes after it was Ready, and a refusal not in its first minute. A new
// process keeps to what the last one has said, if it was about the same.
func TestUntilStalled(t *testing.T) {
	is := func(state kstatus.State, reason string, age time.Duration) *v1alpha1.Icecream {
		return newIcecream(func(ice *v1alpha1.Icecream) {
			kstatus.Conclusion{State: state, Reason: reason}.SetOn(&ice.Status.Conditions, ice.Generation, now.Add(-age))
		})
	}
	edited := is(kstatus.Stalled, v1alpha1.ReasonDeploymentRefused, time.Hour)
	edited.Generation++
	for name, test := range map[string]struct {
		ice     *v1alpha1.Icecream
		refused time.Duration // since when
		want    string
		again   time.Duration
	}{
		"it was Ready until now":     {is(kstatus.Ready, "Available", time.Hour), 0, "Reconciling", 5 * time.Minute},
		"less than ten minutes":      {is(kstatus.Reconciling, "Progressing", 10*time.Minute-time.Second), time.Minute, "Reconciling", time.Second},
		"ten minutes, of any reason": {is(kstatus.Reconciling, "Progressing", 10*time.Minute), time.Minute, "Stalled", 5 * time.Minute},
		"refused for just a moment":  {is(kstatus.Reconciling, "Progressing", time.Hour), 59 * time.Second, "Reconciling", time.Second},
		"Stalled, and a new process": {is(kstatus.Stalled, v1alpha1.ReasonDeploymentRefused, 1), 0, "Stalled", 5 * time.Minute},
		"Stalled, and edited":        {edited, 0, "Reconciling", time.Minute},
		"Stalled for another reason": {is(kstatus.Stalled, "ProgressDeadlineExceeded", time.Hour), 0, "Reconciling", time.Minute},
	} {
		o := Observed{Now: now, Icecream: test.ice}
		o.Last = pace.Attempt{Wish: Decide(o).Wish, Failure: forbidden("exceeded quota"), Count: 20, Since: now.Add(-test.refused), At: now}
		got, again := reported(o)
		if !strings.HasPrefix(got, test.want+": DeploymentRefused") || again != test.again {
			t.Errorf("%s: got %s, again after %s; want %s, %s", name, got, again, test.want, test.again)
		}
	}
}

// Of the Pods with the Icecream's label, those count that its Deployment's ReplicaSets have, and that are not over.
func TestStatusFields(t *testing.T) {
	o := seeing(newIcecream(func(ice *v1alpha1.Icecream) { ice.Generation = 4 }), made(t, newIcecream(), rollingOut))
	o.Pods = nil
	for _, edit := range []func(*corev1.Pod){
		func(*corev1.Pod) {}, func(*corev1.Pod) {}, cannotPull(time.Second), func(pod *corev1.Pod) { pod.Spec.NodeName = "node-0" },
		unschedulable(time.Second), hasFailed(time.Second), beingDeleted[*corev1.Pod],
		func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
		func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = "clone-7c8b" },
		func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "Job" },
		func(pod *corev1.Pod) { pod.OwnerReferences = nil },
	} {
		if pod, counts := PodOf(newPod(edit), now); counts {
			o.Pods = append(o.Pods, pod)
		}
	}
	got, _ := Status(o, Decide(o))
	got.Conditions = nil
	want := v1alpha1.IcecreamStatus{
		ObservedGeneration: 4,
		Replicas:           3,
		UpdatedReplicas:    3,
		ReadyReplicas:      2,
		AvailableReplicas:  2,
		Selector:           "controller.nicoleh.io/icecream=sundae",
		Nodes:              []v1alpha1.IcecreamNode{{Name: "node-0", Pods: 1, ReadyPods: 1}, {Name: "node-1", Pods: 3, ReadyPods: 2}},
		NodeCount:          2,
		Placement:          "node-0 (1), node-1 (3)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// The status of an Icecream stays small, whatever the number of nodes, and so do its events.
func TestFiveThousandNodes(t *testing.T) {
	const nodes = 5000
	ice := newIcecream(scaledTo(nodes))
	o := seeing(ice, made(t, ice))
	slices.Reverse(o.Pods)
	s, _ := Status(o, Decide(o))
	if first, last := s.Nodes[0].Name, s.Nodes[len(s.Nodes)-1].Name; s.NodeCount != nodes || first != "node-00000.example" || last != "node-00099.example" {
		t.Errorf("%d nodes; %d are listed, from %s to %s", s.NodeCount, len(s.Nodes), first, last)
	}
	if got := verdictOf(s); got != "Ready: Available" {
		t.Errorf("conditions say %q", got)
	}
	if !strings.HasSuffix(s.Placement, " more") || len(s.Placement) > maxPlacement+32 {
		t.Errorf("placement of %d characters: %s", len(s.Placement), s.Placement)
	}
	if raw, err := json.Marshal(s); err != nil || len(raw) > 16<<10 {
		t.Errorf("a status of %d bytes: %v", len(raw), err)
	}
	if e := StatusEvent(ice.Status, s); len(e.Message) > maxMessage || !strings.HasSuffix(e.Message, " more; Icecream synced successfully") {
		t.Errorf("an event of %d bytes: %s", len(e.Message), e.Message)
	}
}

// The message of an event has at most 1,024 bytes, and whole characters.
func TestLongMessages(t *testing.T) {
	o := seeing(newIcecream(), made(t, newIcecream(), rollingOut))
	o.Pods[2] = seen(notReady(0), kittest.Waits("ErrImagePull", strings.Repeat("crème ", 1000)))
	s, _ := Status(o, Decide(o))
	altered := o.Live.DeepCopy()
	altered.ResourceVersion = "99"
	altered.Spec.Template.Spec.Containers = []corev1.Container{{Name: containerName, Image: strings.Repeat("è", 1000)}}
	for _, e := range []Event{StatusEvent(o.Icecream.Status, s), o.WriteEvent(altered, true)} {
		if len(e.Message) > 1024 || len(e.Message) < 1000 || !utf8.ValidString(e.Message) {
			t.Errorf("a message of %d bytes: %q", len(e.Message), e.Message)
		}
	}
}
