package icecream

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// verdictOf returns what the three conditions say together: the one that is True and the
// reason, or what is wrong with them.
func verdictOf(s v1alpha1.IcecreamStatus) string {
	var verdict string
	for _, name := range kstatus.States() {
		c := meta.FindStatusCondition(s.Conditions, string(name))
		if c == nil || c.ObservedGeneration != s.ObservedGeneration || c.Reason == "" || c.LastTransitionTime.IsZero() {
			return fmt.Sprintf("%s is %+v", name, c)
		}
		if c.Status == metav1.ConditionTrue {
			verdict += string(name) + ": " + c.Reason
		}
	}
	return verdict
}

func messageOf(s v1alpha1.IcecreamStatus) string {
	return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady).Message
}

// rollingOut gives a Deployment the status that it has when one Pod is not available yet.
func rollingOut(d *appsv1.Deployment) {
	rolledOut(d)
	d.Status.ReadyReplicas--
	d.Status.AvailableReplicas--
}

// says gives a Deployment a condition.
func says(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

// What the stories do not tell.
func TestStatus(t *testing.T) {
	type edits = []func(*appsv1.Deployment)
	isOf := func(deployment, hash string) Pod {
		return seen(notReady(time.Hour), kittest.Waits("ErrImagePull", "denied"), func(pod *corev1.Pod) {
			pod.OwnerReferences[0].Name, pod.Annotations[AnnotationSpecHash] = deployment+"-7c8b", hash
		})
	}
	hash := specHash(newIcecream().Spec)
	const progressing = "Reconciling: Progressing: "
	for name, test := range map[string]struct {
		edits edits
		pods  []Pod // besides the first two, which are ready
		lasts time.Duration
		want  string
	}{
		"a Pod is being started": {edits{rollingOut}, []Pod{seen(notReady(time.Second), kittest.Waits("ContainerCreating", ""))}, 0, progressing + "2 of 3 Pods available"},
		"every Pod is available": {nil, []Pod{seen()}, 0, "Ready: Available: 3 of 3 Pods available"},

		"a Pod is not in the cache yet":             {nil, nil, 0, progressing + "3 of 3 Pods available"},
		"and for long":                              {nil, nil, time.Hour, progressing + "3 of 3 Pods available"},
		"a Pod's readiness is not in the cache yet": {nil, []Pod{seen(notReady(0))}, 0, progressing + "3 of 3 Pods available"},
		"a replaced Pod is still in the cache":      {nil, []Pod{seen(), seen()}, 0, progressing + "3 of 3 Pods available"},
		"an older generation was rolled out":        {edits{func(d *appsv1.Deployment) { d.Generation++ }}, []Pod{isOf("sundae", "older")}, 0, progressing + "3 of 3 Pods available, 2 up to date"},

		"the Pods are ahead of the Deployment": {edits{func(d *appsv1.Deployment) { d.Generation++; d.Status.UpdatedReplicas = 1 }}, []Pod{seen()}, 0, progressing + "3 of 3 Pods available, 1 up to date"},

		"a container crashes":         {edits{rollingOut}, []Pod{seen(notReady(0), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(1, "Error"))}, time.Hour, `Stalled: CrashLoopBackOff: Pod "sundae-1", container "icecream": exited with code 1 (Error)`},
		"a container cannot be made":  {edits{rollingOut}, []Pod{waiting("CreateContainerError", 0)}, time.Hour, `Stalled: ContainerError: Pod "sundae-1", container "icecream": out of cream`},
		"no node takes a Pod":         {edits{rollingOut}, []Pod{seen(unschedulable(0))}, time.Hour, `Stalled: Unschedulable: Pod "sundae-1" cannot be scheduled: 0/3 nodes are available`},
		"the longest of all problems": {edits{rollingOut}, []Pod{seen(unschedulable(2)), waiting("ErrImagePull", 3), waiting("CreateContainerError", 1)}, time.Hour, `Stalled: ImagePullBackOff: Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`},
		"a problem of an older spec":  {edits{rollingOut}, []Pod{isOf("sundae", "older")}, time.Minute, progressing + "2 of 3 Pods available"},
		"a problem of another name":   {edits{rollingOut}, []Pod{isOf("cone", hash)}, time.Minute, progressing + "2 of 3 Pods available"},

		"a quota":               {edits{rollingOut, says(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", "exceeded quota")}, nil, time.Hour, "Stalled: ReplicaFailure: exceeded quota"},
		"it has given up":       {edits{rollingOut, says(appsv1.DeploymentProgressing, "False", progressDeadlineExceeded, "it has timed out")}, nil, deadline, "Stalled: ProgressDeadlineExceeded: it has timed out"},
		"paused in mid-rollout": {edits{rollingOut, func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 2 }}, nil, 0, `Reconciling: DeploymentPaused: Deployment "sundae" is paused; run kubectl rollout resume deployment/sundae`},
		"paused before the first Pod": {edits{func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Status = true, appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
		}}, nil, deadline, `Stalled: DeploymentPaused: Deployment "sundae" is paused; run kubectl rollout resume deployment/sundae`},
		"just paused":              {edits{func(d *appsv1.Deployment) { d.Spec.Paused = true; d.Generation++ }}, []Pod{seen()}, 0, progressing + "3 of 3 Pods available, 3 up to date"},
		"paused while all is well": {edits{func(d *appsv1.Deployment) { d.Spec.Paused = true }}, []Pod{seen()}, 0, "Ready: Available: 3 of 3 Pods available"},

		"a slow Pod":               {edits{rollingOut}, []Pod{seen(notReady(time.Second))}, quiet, `Reconciling: PodNotReady: Pod "sundae-1" is not ready: container "icecream" runs, and does not pass its readiness probe`},
		"a Pod that is too slow":   {edits{rollingOut}, []Pod{seen(notReady(time.Second))}, deadline, `Stalled: PodNotReady: Pod "sundae-1" is not ready: container "icecream" runs, and does not pass its readiness probe`},
		"a slow rollout":           {edits{rollingOut}, nil, deadline, `Stalled: ProgressDeadlineExceeded: Deployment "sundae" has not been rolled out within 600 s`},
		"nobody acts on it":        {edits{rollingOut, func(d *appsv1.Deployment) { d.Generation = 7 }}, nil, deadline, `Stalled: ProgressDeadlineExceeded: The Deployment controller has not acted on generation 7 of Deployment "sundae" within 600 s`},
		"a Pod of a skewed clock":  {edits{rollingOut}, []Pod{seen(notReady(-time.Hour))}, quiet - time.Second, progressing + "2 of 3 Pods available"},
		"slow without a deadline":  {edits{rollingOut, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](math.MaxInt32) }}, nil, 24 * time.Hour, progressing + "2 of 3 Pods available"},
		"none are asked for":       {edits{func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0); rolledOut(d) }}, nil, 0, "Ready: Available: Scaled to zero"},
		"the last one is stopping": {edits{func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }}, nil, 0, progressing + "3 of 0 Pods available"},
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t, newIcecream(), test.edits...)
			o := seeing(newIcecream(scaledTo(*d.Spec.Replicas)), d)
			o.Pods = append(o.Pods[:min(2, len(o.Pods), int(*d.Spec.Replicas))], test.pods...)
			o.Memory = lasting(t, o, test.lasts)
			s := report(t, o).Status
			if got := verdictOf(s) + ": " + messageOf(s); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
		})
	}
}

// A container that crashes runs well for a moment each time. The Icecream is Ready only when
// it has done so for a while.
func TestBetweenTwoCrashes(t *testing.T) {
	crashed := made(t, newIcecream(), rollingOut)
	o := seeing(newIcecream(), crashed)
	o.Pods = append(o.Pods[:2], seen(notReady(0), kittest.EndsNow(1, "Error")))
	o.Memory = report(t, o).Memory
	o.Live, o.Pods = made(t, newIcecream()), append(o.Pods[:2], seen())
	for _, test := range []struct {
		after       time.Duration
		want        string
		wantRequeue time.Duration
	}{
		{time.Second, "Reconciling: CrashLoopBackOff", settle},
		{settle, "Reconciling: CrashLoopBackOff", time.Second},
		{settle + time.Second, "Ready: Available", 0},
	} {
		o.Now = now.Add(test.after)
		r := report(t, o)
		if got := verdictOf(r.Status); got != test.want || r.RequeueAfter != test.wantRequeue {
			t.Errorf("after %s: %s, again after %s; want %s, %s", test.after, got, r.RequeueAfter, test.want, test.wantRequeue)
		}
		o.Memory = r.Memory
	}
}

// A container that crashes again and again is one problem, whatever else is wrong between two crashes:
// that Pods have failed before, or that another Pod waits.
func TestOtherProblemsBetweenCrashes(t *testing.T) {
	crashed, runs := seen(notReady(0), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(1, "Error")), seen(notReady(0))
	rejected, broken := seen(hasFailed), waiting("ErrImagePull", time.Second)
	o := seeing(newIcecream(), made(t, newIcecream(), rollingOut))
	var got []string
	for _, step := range []struct {
		after time.Duration
		pods  []Pod
	}{
		{0, []Pod{runs}},
		{time.Second, []Pod{runs, rejected}},
		{time.Second, []Pod{crashed, rejected}},
		{settle, []Pod{crashed, rejected}},
		{time.Second, []Pod{runs, rejected}},
		{settle - time.Second, []Pod{crashed, rejected}},
		{time.Second, []Pod{runs, rejected, broken}},
		{settle - time.Second, []Pod{crashed, rejected}},
		{time.Second, []Pod{runs, rejected, broken}},
		{settle, []Pod{runs, rejected, broken}},
		{settle, []Pod{runs, rejected}},
		{settle, []Pod{runs, rejected, rejected}},
	} {
		o.Now, o.Pods = o.Now.Add(step.after), step.pods
		r := report(t, o)
		o.Memory = r.Memory
		got = append(got, verdictOf(r.Status))
	}
	want := []string{
		"Reconciling: Progressing",
		"Reconciling: PodFailed",
		"Reconciling: PodFailed",
		"Reconciling: CrashLoopBackOff",
		"Reconciling: CrashLoopBackOff",
		"Reconciling: CrashLoopBackOff",
		"Reconciling: CrashLoopBackOff",
		"Reconciling: CrashLoopBackOff",
		"Reconciling: CrashLoopBackOff",
		"Reconciling: ImagePullBackOff",
		"Reconciling: PodNotReady",
		"Reconciling: PodFailed", // a second one
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it says (-want +got):\n%s", diff)
	}
}

// What is remembered of a former Icecream, with the same name and the same generation, does not
// count for this one.
func TestMemoryOfTheFormerIcecream(t *testing.T) {
	for uid, want := range map[types.UID]string{"uid-of-sundae": "Reconciling: CrashLoopBackOff", "former": "Ready: Available"} {
		o := seeing(newIcecream(), made(t, newIcecream()))
		problem := Problem{Reason: v1alpha1.ReasonCrashLoopBackOff, Message: "it crashed"}
		o.Memory = Memory{UID: uid, History: kstatus.History{Generation: 1, Recurring: problem, Since: now}}
		if got := verdictOf(report(t, o).Status); got != want {
			t.Errorf("remembered of %s, it says %q, want %q", uid, got, want)
		}
	}
}

// A Deployment that its controller has never seen has no Pods yet, whatever the cache still shows of a
// former one with the same template.
func TestPodsOfAFormerDeployment(t *testing.T) {
	o := seeing(newIcecream(), made(t, newIcecream(), func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} }))
	o.Pods = []Pod{seen(), waiting("ErrImagePull", time.Minute), seen(hasFailed)}
	crashed := Problem{Reason: v1alpha1.ReasonCrashLoopBackOff, Message: "it crashed"}
	o.Memory = Memory{UID: o.Icecream.UID, History: kstatus.History{Generation: 1, Since: now, Recurring: crashed}, Deployment: "former"}
	s := report(t, o).Status
	if got := verdictOf(s); got != "Reconciling: Progressing" || s.NodeCount != 0 {
		t.Errorf("it says %s, on %d nodes", got, s.NodeCount)
	}
}

func TestStatusFields(t *testing.T) {
	o := seeing(newIcecream(func(ice *v1alpha1.Icecream) { ice.Generation = 4 }), made(t, newIcecream(), rollingOut))
	o.Pods = []Pod{
		seen(), seen(), waiting("ErrImagePull", time.Second), seen(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-0" }),
		seen(unschedulable(time.Second)),
		seen(func(pod *corev1.Pod) { pod.OwnerReferences[0].Name = "clone-7c8b" }),
	}
	got := report(t, o).Status
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

// The status of an Icecream stays small, whatever the number of nodes, and so do its events
// and the line for the log.
func TestFiveThousandNodes(t *testing.T) {
	const nodes = 5000
	ice := newIcecream(scaledTo(nodes))
	o := seeing(ice, made(t, ice))
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%05d.europe-west.example", nodes-i))
	}
	o.Pods = podsOf(o.Live, names...)
	s := report(t, o).Status
	if s.NodeCount != nodes || len(s.Nodes) != maxNodes || s.Nodes[0].Name != names[nodes-1] || s.Nodes[maxNodes-1].Name != names[nodes-maxNodes] {
		t.Errorf("%d nodes, of which %d from %s to %s are listed", s.NodeCount, len(s.Nodes), s.Nodes[0].Name, s.Nodes[len(s.Nodes)-1].Name)
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
	if e := StatusEvent(o, s); len(e.Message) > maxMessage || !strings.HasSuffix(e.Message, " more; Icecream synced successfully") {
		t.Errorf("an event of %d bytes: %s", len(e.Message), e.Message)
	}
	if line := Roster(o); len(line) > maxRoster {
		t.Errorf("a roster of %d bytes", len(line))
	}
}

func TestRoster(t *testing.T) {
	d := made(t, newIcecream())
	o := seeing(newIcecream(), d)
	o.Pods = podsOf(d, "node-2", "node-1")
	slices.Reverse(o.Pods)
	if got, want := Roster(o), "node-1: sundae-1; node-2: sundae-0, sundae-2"; got != want {
		t.Errorf("roster = %q, want %q", got, want)
	}
}

// The message of an event has at most 1,024 bytes, and whole characters.
func TestLongMessages(t *testing.T) {
	o := seeing(newIcecream(), made(t, newIcecream(), rollingOut))
	o.Pods = []Pod{seen(notReady(time.Second), kittest.Waits("ErrImagePull", strings.Repeat("crème ", 1000)))}
	e := StatusEvent(o, report(t, o).Status)
	altered := slices.Repeat([]patch.Difference{{Field: "metadata.labels.flavor", Live: "mint", Want: "crème"}}, 100)
	w := o.writeEvent(nil, Result{Stored: o.Live}, altered)
	for _, message := range []string{e.Message, w.Message} {
		if len(message) > 1024 || len(message) < 1000 || !utf8.ValidString(message) {
			t.Errorf("a message of %d bytes: %q", len(message), message)
		}
	}
}

func TestHasMoved(t *testing.T) {
	status := func(nodes ...v1alpha1.IcecreamNode) v1alpha1.IcecreamStatus {
		return v1alpha1.IcecreamStatus{Nodes: nodes}
	}
	before := status(v1alpha1.IcecreamNode{Name: "node-1", Pods: 2, ReadyPods: 1})
	for name, test := range map[string]struct {
		after v1alpha1.IcecreamStatus
		want  bool
	}{
		"another is ready": {status(v1alpha1.IcecreamNode{Name: "node-1", Pods: 2, ReadyPods: 2}), false},
		"another node":     {status(v1alpha1.IcecreamNode{Name: "node-2", Pods: 2}), true},
		"another number":   {status(v1alpha1.IcecreamNode{Name: "node-1", Pods: 3}), true},
	} {
		if got := HasMoved(before, test.after); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
