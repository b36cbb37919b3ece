package icecream

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// verdictOf is what the three conditions say together: the one that is True and
// the reason, or what is wrong with them.
func verdictOf(s v1alpha1.IcecreamStatus) string {
	var states, reasons []string
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		condition := meta.FindStatusCondition(s.Conditions, name)
		switch {
		case condition == nil:
			return "without " + name
		case condition.ObservedGeneration != s.ObservedGeneration:
			return fmt.Sprintf("%s of generation %d", name, condition.ObservedGeneration)
		case condition.LastTransitionTime.IsZero():
			return name + " without a time"
		case condition.Status == metav1.ConditionTrue:
			states = append(states, name)
		case condition.Status != metav1.ConditionFalse:
			return fmt.Sprintf("%s is %q", name, condition.Status)
		}
		reasons = append(reasons, condition.Reason)
	}
	if len(states) != 1 || reasons[0] != reasons[1] || reasons[0] != reasons[2] || reasons[0] == "" {
		return fmt.Sprintf("%v for %v", states, reasons)
	}
	return states[0] + ": " + reasons[0]
}

func messageOf(s v1alpha1.IcecreamStatus) string {
	return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady).Message
}

// rollingOut is a Deployment of which one Pod is not available yet.
func rollingOut(d *appsv1.Deployment) {
	rolledOut(d)
	d.Status.ReadyReplicas--
	d.Status.AvailableReplicas--
}

// says gives a Deployment a condition that has lasted for that long.
func says(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, age time.Duration) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-age)),
		})
	}
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "sundae", nil)
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "sundae", errors.New("exceeded quota"))
}

// lasting is what a process remembers that has seen the same for that long.
func lasting(o Observed, d time.Duration) Memory {
	o.Now, o.Memory = o.Now.Add(-d), Memory{}
	now, _ := Remember(Assess(o), Decision{}, Outcome{})
	return now.Memory
}

func TestConclusions(t *testing.T) {
	mine := func(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
		d := made(t, newIcecream())
		for _, edit := range edits {
			edit(d)
		}
		return d
	}
	ready := func(n int) []Pod { return podsOf(mine(), "node-1", "node-2")[:n] }

	tests := []struct {
		name        string
		ice         *v1alpha1.Icecream
		deployments []*appsv1.Deployment
		pods        []Pod
		lasts       time.Duration // for which all this was so before
		out         Outcome
		want        string
		wantMessage string
	}{{
		name:        "the Deployment has just been created",
		out:         wrote(mine(func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} })),
		want:        "Reconciling: Progressing",
		wantMessage: "0 of 3 Pods available, 0 made from the current spec",
	}, {
		name:        "the rollout is under way",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), seen(notReady(time.Second), kittest.Waits("ContainerCreating", ""))),
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available",
	}, {
		name:        "every replica is available",
		deployments: []*appsv1.Deployment{mine()},
		pods:        ready(3),
		want:        "Ready: Available",
		wantMessage: "3 of 3 Pods available",
	}, {
		name:        "scaled to zero",
		ice:         newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](0) }),
		deployments: []*appsv1.Deployment{made(t, newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To[int32](0) }))},
		want:        "Ready: Available",
		wantMessage: "Scaled to zero",
	}, {
		name: "what has just been written is not rolled out because what it was is",
		ice:  newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Image = "registry.example/chocolate:1" }),
		deployments: []*appsv1.Deployment{
			mine(),
		},
		pods:        ready(3),
		out:         wrote(mine(func(d *appsv1.Deployment) { d.Generation++ })),
		want:        "Reconciling: Progressing",
		wantMessage: "3 of 3 Pods available, 0 made from the current spec",
	}, {
		name:        "the Pods are not in the cache yet",
		deployments: []*appsv1.Deployment{mine()},
		want:        "Reconciling: Progressing",
		wantMessage: "3 of 3 Pods available",
	}, {
		name:        "a Pod's readiness is not in the cache yet",
		deployments: []*appsv1.Deployment{mine()},
		pods:        append(ready(2), seen(notReady(time.Second))),
		want:        "Reconciling: Progressing",
		wantMessage: "3 of 3 Pods available",
	}, {
		name:        "a Pod that has been replaced is still in the cache",
		deployments: []*appsv1.Deployment{mine()},
		pods:        append(ready(3), seen()),
		want:        "Reconciling: Progressing",
		wantMessage: "3 of 3 Pods available",
	}, {
		name:        "the old Deployment of a rename is still there",
		ice:         newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{mine(), made(t, newIcecream(calls("cone")))},
		pods:        append(ready(3), podsOf(made(t, newIcecream(calls("cone"))), "node-1")...),
		want:        "Reconciling: Progressing",
		wantMessage: "3 of 3 Pods available",
	}, {
		name:        "the name is taken",
		deployments: []*appsv1.Deployment{mine(ownedBy("uid-of-another"))},
		want:        "Stalled: ErrResourceExists",
		wantMessage: `Resource "sundae" already exists and is managed by Icecream "sundae"`,
	}, {
		name:        "the name asked for is taken and the old Deployment runs well",
		ice:         newIcecream(calls("cone")),
		deployments: []*appsv1.Deployment{mine(), made(t, newIcecream(calls("cone"), func(ice *v1alpha1.Icecream) { ice.UID = "another" }))},
		pods:        ready(3),
		want:        "Stalled: ErrResourceExists",
		wantMessage: `Resource "cone" already exists and is managed by Icecream "sundae"`,
	}, {
		name:        "the Deployment is being deleted",
		deployments: []*appsv1.Deployment{mine(func(d *appsv1.Deployment) { beingDeleted(d) })},
		pods:        ready(3),
		want:        "Reconciling: DeploymentTerminating",
		wantMessage: `Deployment "sundae" is being deleted and will be created again`,
	}, {
		name:        "the API server calls it invalid",
		out:         Outcome{Err: fmt.Errorf("creating: %w", invalid())},
		want:        "Stalled: InvalidSpec",
		wantMessage: "creating: " + invalid().Error(),
	}, {
		name:        "the API server does not allow it",
		out:         Outcome{Err: forbidden()},
		want:        "Reconciling: DeploymentRefused",
		wantMessage: forbidden().Error(),
	}, {
		name:        "an image cannot be pulled, since not long ago",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), waiting("ErrImagePull", time.Hour)),
		lasts:       patience - time.Second,
		want:        "Reconciling: ImagePullBackOff",
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`,
	}, {
		name:        "an image cannot be pulled, for long",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), waiting("ErrImagePull", time.Second)),
		lasts:       patience,
		want:        "Stalled: ImagePullBackOff",
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`,
	}, {
		name:        "a container crashes, for long",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), seen(notReady(time.Hour), kittest.Waits("CrashLoopBackOff", "back-off 10s"), kittest.Ended(1, "Error"))),
		lasts:       time.Hour,
		want:        "Stalled: CrashLoopBackOff",
		wantMessage: `Pod "sundae-1", container "icecream": has ended with exit code 1 (Error)`,
	}, {
		name:        "a container cannot be made, for long",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), waiting("CreateContainerError", time.Hour)),
		lasts:       time.Hour,
		want:        "Stalled: ContainerError",
		wantMessage: `Pod "sundae-1", container "icecream": out of cream`,
	}, {
		name:        "no node takes a Pod, for long",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), seen(unschedulable(time.Hour))),
		lasts:       time.Hour,
		want:        "Stalled: Unschedulable",
		wantMessage: `Pod "sundae-1" cannot be scheduled: 0/3 nodes are available`,
	}, {
		name:        "the longest of several troubles is told",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        []Pod{seen(unschedulable(2 * time.Hour)), waiting("ErrImagePull", 3*time.Hour), waiting("CreateContainerError", time.Hour)},
		lasts:       time.Hour,
		want:        "Stalled: ImagePullBackOff",
		wantMessage: `Pod "sundae-1", container "icecream": cannot pull image "registry.example/vanilla:1": out of cream`,
	}, {
		name:        "the trouble of a Pod of the spec before is over with it",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods: append(ready(2), seen(notReady(time.Hour), kittest.Waits("ErrImagePull", "denied"), func(pod *corev1.Pod) {
			pod.Annotations[AnnotationSpecHash] = "older"
		})),
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available",
	}, {
		name:        "the trouble of a Pod of the Deployment before is over with it",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods: append(ready(2), seen(notReady(time.Hour), kittest.Waits("ErrImagePull", "denied"), func(pod *corev1.Pod) {
			pod.Labels[LabelDeployment] = "cone"
		})),
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available",
	}, {
		name: "a quota does not allow Pods, since not long ago",
		deployments: []*appsv1.Deployment{mine(rollingOut,
			says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota", time.Hour))},
		pods:        ready(2),
		want:        "Reconciling: ReplicaFailure",
		wantMessage: "exceeded quota",
	}, {
		name: "a quota does not allow Pods, for long",
		deployments: []*appsv1.Deployment{mine(rollingOut,
			says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota", time.Hour))},
		pods:        ready(2),
		lasts:       time.Hour,
		want:        "Stalled: ReplicaFailure",
		wantMessage: "exceeded quota",
	}, {
		name: "a quota allows Pods again",
		deployments: []*appsv1.Deployment{mine(rollingOut,
			says(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", "", time.Hour))},
		pods:        ready(2),
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available",
	}, {
		name: "a quota did not allow Pods of the spec before",
		deployments: []*appsv1.Deployment{mine(rollingOut,
			says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota", time.Hour),
			func(d *appsv1.Deployment) { d.Generation++ })},
		pods:        ready(2),
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available, 2 made from the current spec",
	}, {
		name: "the Deployment has given up",
		deployments: []*appsv1.Deployment{mine(rollingOut,
			says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "it has timed out progressing", time.Second))},
		pods:        ready(2),
		lasts:       patience,
		want:        "Stalled: ProgressDeadlineExceeded",
		wantMessage: "it has timed out progressing",
	}, {
		name:        "somebody has paused the Deployment",
		deployments: []*appsv1.Deployment{mine(rollingOut, func(d *appsv1.Deployment) { d.Spec.Paused = true; d.Status.UpdatedReplicas = 2 })},
		pods:        ready(2),
		want:        "Stalled: DeploymentPaused",
		wantMessage: `Deployment "sundae" is paused`,
	}, {
		name:        "somebody has just paused the Deployment, and may have paused nothing",
		deployments: []*appsv1.Deployment{mine(func(d *appsv1.Deployment) { d.Spec.Paused = true; d.Generation++ })},
		pods:        ready(3),
		want:        "Reconciling: Progressing",
		wantMessage: "3 of 3 Pods available, 3 made from the current spec",
	}, {
		name:        "somebody has paused the Deployment, but everything runs",
		deployments: []*appsv1.Deployment{mine(func(d *appsv1.Deployment) { d.Spec.Paused = true })},
		pods:        ready(3),
		want:        "Ready: Available",
		wantMessage: "3 of 3 Pods available",
	}, {
		name:        "a Pod takes its time",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), seen(notReady(time.Hour))),
		lasts:       599 * time.Second,
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available",
	}, {
		name:        "a Pod takes longer than the Deployment's deadline",
		deployments: []*appsv1.Deployment{mine(rollingOut)},
		pods:        append(ready(2), seen(notReady(time.Second))),
		lasts:       600 * time.Second,
		want:        "Stalled: ProgressDeadlineExceeded",
		wantMessage: `Pod "sundae-1" has not become ready within 600 s`,
	}, {
		name: "a Pod takes its time, and the Deployment has no deadline",
		deployments: []*appsv1.Deployment{mine(rollingOut, func(d *appsv1.Deployment) {
			d.Spec.ProgressDeadlineSeconds = ptr.To[int32](math.MaxInt32)
		})},
		pods:        append(ready(2), seen(notReady(time.Hour))),
		lasts:       time.Hour,
		want:        "Reconciling: Progressing",
		wantMessage: "2 of 3 Pods available",
	}, {
		name: "the Deployment had given up, but everything runs now",
		deployments: []*appsv1.Deployment{mine(
			says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "it has timed out progressing", time.Hour))},
		pods:        ready(3),
		want:        "Ready: Available",
		wantMessage: "3 of 3 Pods available",
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.ice == nil {
				tt.ice = newIcecream()
			}
			o := world(tt.ice, tt.deployments...)
			o.Pods = tt.pods
			o.Memory = lasting(o, tt.lasts)
			s, _ := statusOf(o, decide(o), tt.out)
			if got := verdictOf(s); got != tt.want {
				t.Errorf("conditions say %q, want %q", got, tt.want)
			}
			if got := messageOf(s); got != tt.wantMessage {
				t.Errorf("message\n%s\nwant\n%s", got, tt.wantMessage)
			}
		})
	}
}

func TestStatusFields(t *testing.T) {
	d := made(t, newIcecream())
	rollingOut(d)
	o := world(newIcecream(func(ice *v1alpha1.Icecream) { ice.Generation = 4 }), d)
	o.Pods = []Pod{
		seen(), seen(), waiting("ErrImagePull", time.Second), seen(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-0" }),
		seen(unschedulable(time.Second)),
		seen(func(pod *corev1.Pod) { pod.Labels[LabelDeployment] = "somebody's" }),
	}
	got, _ := statusOf(o, decide(o), Outcome{})
	got.Conditions = nil
	want := v1alpha1.IcecreamStatus{
		ObservedGeneration: 4,
		DeploymentName:     "sundae",
		Replicas:           3,
		UpdatedReplicas:    3,
		ReadyReplicas:      2,
		AvailableReplicas:  2,
		Selector:           labels.FormatLabels(map[string]string{LabelDeployment: "sundae", LabelIcecream: "sundae"}),
		Nodes:              []v1alpha1.IcecreamNode{{Name: "node-0", Pods: 1, ReadyPods: 1}, {Name: "node-1", Pods: 3, ReadyPods: 2}},
		NodeCount:          2,
		Placement:          "node-0 (1), node-1 (3)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// While a rename is under way or impossible, the one that runs is reported on.
func TestDeploymentInUse(t *testing.T) {
	was := func(ice *v1alpha1.Icecream) { ice.Status.DeploymentName = "cup" }
	tests := []struct {
		name        string
		ice         *v1alpha1.Icecream
		deployments []*appsv1.Deployment
		want        string
	}{
		{"there is none", newIcecream(), nil, ""},
		{"there is one", newIcecream(), []*appsv1.Deployment{made(t, newIcecream())}, "sundae"},
		{"the new one exists", newIcecream(calls("cone"), was), []*appsv1.Deployment{made(t, newIcecream(calls("cone"))), made(t, newIcecream(calls("cup")))}, "cone"},
		{"the new one is somebody else's", newIcecream(calls("cone"), was), []*appsv1.Deployment{
			made(t, newIcecream(calls("cone"), func(ice *v1alpha1.Icecream) { ice.UID = "another" })), made(t, newIcecream(calls("bowl"))), made(t, newIcecream(calls("cup"))),
		}, "cup"},
		{"nobody knows which was in use", newIcecream(calls("cone")), []*appsv1.Deployment{made(t, newIcecream(calls("cup"))), made(t, newIcecream(calls("bowl")))}, "bowl"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := world(tt.ice, tt.deployments...)
			s, _ := statusOf(o, Decision{Verdict: children.Blocked, Reason: "Test"}, Outcome{})
			if s.DeploymentName != tt.want {
				t.Errorf("in use is %q, want %q", s.DeploymentName, tt.want)
			}
		})
	}
}

func TestIcecreamThatIsBeingDeletedKeepsItsStatus(t *testing.T) {
	ice := newIcecream(func(ice *v1alpha1.Icecream) {
		beingDeleted(ice)
		ice.Generation = 2
		ice.Status = v1alpha1.IcecreamStatus{ObservedGeneration: 1, Placement: "somewhere"}
	})
	o := world(ice)
	s, news := statusOf(o, decide(o), Outcome{})
	if diff := cmp.Diff(ice.Status, s); diff != "" || len(news) > 0 {
		t.Errorf("told %v; status (-want +got):\n%s", news, diff)
	}
}

// The status of an Icecream stays small, whatever the number of nodes.
func TestFiveThousandNodes(t *testing.T) {
	const nodes = 5000
	o := crowd(t, nodes)
	s, news := statusOf(o, decide(o), Outcome{})
	if s.NodeCount != nodes || len(s.Nodes) != 100 {
		t.Errorf("nodeCount %d with %d entries, want %d with 100", s.NodeCount, len(s.Nodes), nodes)
	}
	if s.Nodes[0].Name > s.Nodes[99].Name {
		t.Error("the entries are not sorted")
	}
	if got := verdictOf(s); got != "Ready: Available" {
		t.Errorf("conditions say %q", got)
	}
	if !strings.HasSuffix(s.Placement, " more") || len(s.Placement) > maxPlacement+32 {
		t.Errorf("placement of %d characters: %s", len(s.Placement), s.Placement)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	// 100 entries, each a name and two numbers, and what is always there.
	if limit := 16 << 10; len(raw) > limit {
		t.Errorf("the status has %d bytes, want at most %d", len(raw), limit)
	}
	for _, event := range news {
		if len(event.Note) > 1024 {
			t.Errorf("a note of %d bytes for %s", len(event.Note), event.Reason)
		}
	}
	if line := roster(Assess(o)); len(line) > maxRoster+64 {
		t.Errorf("the roster has %d characters", len(line))
	}
}

// crowd is an Icecream with as many Pods, each on a node of its own.
func crowd(tb testing.TB, n int) Observed {
	ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(int32(n)) })
	d := made(tb, ice)
	o := world(ice, d)
	var nodes []string
	for i := range n {
		nodes = append(nodes, fmt.Sprintf("node-%05d.europe-west.example", n-i))
	}
	o.Pods = podsOf(d, nodes...)
	return o
}

func TestRoster(t *testing.T) {
	d := made(t, newIcecream())
	o := world(newIcecream(), d)
	o.Pods = podsOf(d, "node-2", "node-1")
	if got, want := roster(Assess(o)), "node-1: sundae-1; node-2: sundae-0, sundae-2"; got != want {
		t.Errorf("roster = %q, want %q", got, want)
	}
}

// The conditions' times are those of changes; a message may change without one.
func TestLastTransitionTime(t *testing.T) {
	d := made(t, newIcecream())
	rollingOut(d)
	o := world(newIcecream(), d)
	o.Pods = o.Pods[:2]
	var times []string
	step := func(what string) {
		s, _ := statusOf(o, decide(o), Outcome{})
		o.Icecream = o.Icecream.DeepCopy()
		o.Icecream.Status = s
		var ages []string
		for _, condition := range s.Conditions {
			ages = append(ages, fmt.Sprintf("%s %v", condition.Type, condition.LastTransitionTime.Sub(now)))
		}
		times = append(times, what+": "+strings.Join(ages, ", "))
	}
	step("progressing")
	o.Now = now.Add(time.Minute + 300*time.Millisecond)
	d.Status.AvailableReplicas--
	step("one less")
	o.Now = now.Add(2 * time.Minute)
	rolledOut(d)
	o.Pods = podsOf(d, "node-1")
	step("ready")
	o.Now = now.Add(3 * time.Minute)
	step("still ready")
	o.Now = now.Add(4 * time.Minute)
	o.Named = made(t, newIcecream(func(ice *v1alpha1.Icecream) { ice.UID = "another" }))
	step("stalled")

	want := []string{
		"progressing: Ready 0s, Reconciling 0s, Stalled 0s",
		"one less: Ready 0s, Reconciling 0s, Stalled 0s",
		"ready: Ready 2m0s, Reconciling 2m0s, Stalled 0s",
		"still ready: Ready 2m0s, Reconciling 2m0s, Stalled 0s",
		"stalled: Ready 4m0s, Reconciling 2m0s, Stalled 4m0s",
	}
	if diff := cmp.Diff(want, times); diff != "" {
		t.Errorf("times of the conditions (-want +got):\n%s", diff)
	}
}

// What is written has to come back from the API server as it was, or it would be
// written for ever: times have seconds there.
func TestAStatusSurvivesTheWire(t *testing.T) {
	o := world(newIcecream(), made(t, newIcecream()))
	o.Now = now.Add(123456789 * time.Nanosecond)
	s, _ := statusOf(o, decide(o), Outcome{})
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.IcecreamStatus
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, back, equateEmpty); diff != "" {
		t.Errorf("status (-written +read):\n%s", diff)
	}
}

func TestConditionsOfOthersAreKept(t *testing.T) {
	foreign := metav1.Condition{Type: "Tasty", Status: metav1.ConditionUnknown, Reason: "NotTried", LastTransitionTime: metav1.NewTime(now)}
	ice := newIcecream(func(ice *v1alpha1.Icecream) { ice.Status.Conditions = []metav1.Condition{foreign} })
	o := world(ice, made(t, ice))
	s, _ := statusOf(o, decide(o), Outcome{})
	if diff := cmp.Diff(&foreign, meta.FindStatusCondition(s.Conditions, "Tasty")); diff != "" {
		t.Errorf("the condition (-want +got):\n%s", diff)
	}
}
