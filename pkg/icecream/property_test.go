package icecream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
	"nicoleh.io/k8s-controller/pkg/kit/text"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// Few names and UIDs, so that things often have to do with each other, and some
// that no API server would let pass.
var (
	someNames = []string{"", "sundae", "cone", "cup", strings.Repeat("sprinkles-", 20) + "s", "Crème/brûlée"}
	someUIDs  = []types.UID{"", "uid-of-sundae", "uid-of-another"}
	someTimes = []time.Duration{-time.Hour, -patience, -time.Second, 0, time.Hour}
)

func genName(t *rapid.T) string { return rapid.SampledFrom(someNames).Draw(t, "name") }

func genTime(t *rapid.T) metav1.Time {
	if rapid.Bool().Draw(t, "zero time") {
		return metav1.Time{}
	}
	return metav1.NewTime(now.Add(rapid.SampledFrom(someTimes).Draw(t, "time")))
}

func genText(t *rapid.T) string {
	return rapid.OneOf(rapid.String(), rapid.Just(""), rapid.Just(strings.Repeat("x", 2000)), rapid.Just("Back-off: ErrImagePull: denied")).Draw(t, "text")
}

func genResources(t *rapid.T) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]corev1.ResourceName{"", "cpu", "memory", "example.com/scoop", "Nonsense!"}), rapid.ID).Draw(t, "resources") {
		list[name] = resource.MustParse(rapid.SampledFrom([]string{"0", "1", "-1", "100m", "1Gi", "1e3", "0.5", "100u", "1048576"}).Draw(t, "quantity"))
	}
	return list
}

func genSpec(t *rapid.T) v1alpha1.IcecreamSpec {
	spec := v1alpha1.IcecreamSpec{
		DeploymentName: genName(t),
		Replicas:       rapid.Ptr(rapid.SampledFrom([]int32{-1, 0, 1, 3, 1 << 30}), true).Draw(t, "replicas"),
		Image:          rapid.SampledFrom([]string{"", "vanilla:1", "chocolate:2", "no such image", "\xff"}).Draw(t, "image"),
	}
	spec.Resources.Limits = genResources(t)
	spec.Resources.Requests = genResources(t)
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"", "freezer", "mixer"}), 0, 3).Draw(t, "claims") {
		spec.Resources.Claims = append(spec.Resources.Claims, corev1.ResourceClaim{Name: name, Request: rapid.SampledFrom([]string{"", "fast"}).Draw(t, "request")})
	}
	return spec
}

func genIcecream(t *rapid.T) *v1alpha1.Icecream {
	ice := newIcecream()
	ice.Name = genName(t)
	ice.UID = rapid.SampledFrom(someUIDs).Draw(t, "UID")
	ice.Generation = rapid.Int64Range(0, 3).Draw(t, "generation")
	if rapid.IntRange(0, 5).Draw(t, "is deleted") == 0 {
		beingDeleted(ice)
	}
	ice.Spec = genSpec(t)
	ice.Status.ObservedGeneration = rapid.Int64Range(0, 3).Draw(t, "observed generation")
	ice.Status.DeploymentName = genName(t)
	for range rapid.IntRange(0, 3).Draw(t, "conditions") {
		ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{
			Type:               rapid.SampledFrom([]string{"", "Ready", "Reconciling", "Stalled", "Tasty"}).Draw(t, "type"),
			Status:             rapid.SampledFrom([]metav1.ConditionStatus{"", "True", "False", "Unknown"}).Draw(t, "status"),
			Reason:             rapid.SampledFrom([]string{"", "Available", "ImagePullBackOff"}).Draw(t, "reason"),
			LastTransitionTime: genTime(t),
			Message:            genText(t),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "nodes") {
		ice.Status.Nodes = append(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: genName(t), Pods: rapid.Int32().Draw(t, "pods")})
	}
	return ice
}

// genDeployment is a Deployment of any kind: the Icecream's, as it should be or
// not; an orphan; somebody else's; or nothing but a name.
func genDeployment(t *rapid.T, ice *v1alpha1.Icecream) *appsv1.Deployment {
	like := ice.DeepCopy()
	like.Spec.DeploymentName = genName(t)
	if rapid.Bool().Draw(t, "older spec") {
		like.Spec = genSpec(t)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: DeploymentName(like)}}
	if rapid.IntRange(0, 4).Draw(t, "bare") > 0 {
		d = desired(like)
		setDefaults(d)
	}
	d.UID = rapid.SampledFrom(someUIDs).Draw(t, "UID of the Deployment")
	d.ResourceVersion = "9"
	d.Generation = rapid.Int64Range(0, 3).Draw(t, "generation")
	if rapid.IntRange(0, 5).Draw(t, "is deleted") == 0 {
		beingDeleted(d)
	}
	switch rapid.IntRange(0, 4).Draw(t, "owner") {
	case 0:
		d.OwnerReferences = nil
	case 1:
		d.OwnerReferences = []metav1.OwnerReference{{UID: rapid.SampledFrom(someUIDs).Draw(t, "owner's UID"), Controller: rapid.Ptr(rapid.Bool(), true).Draw(t, "controller")}}
	}
	for _, edit := range rapid.SliceOfN(rapid.SampledFrom(tampering), 0, 3).Draw(t, "tampering") {
		edit(d)
	}
	d.Status = genDeploymentStatus(t, d)
	for range rapid.IntRange(0, 2).Draw(t, "managers") {
		d.ManagedFields = append(d.ManagedFields, metav1.ManagedFieldsEntry{
			Manager:   rapid.SampledFrom([]string{FieldManager, "kubectl"}).Draw(t, "manager"),
			Operation: rapid.SampledFrom([]metav1.ManagedFieldsOperationType{"Apply", "Update", ""}).Draw(t, "operation"),
			FieldsV1: rapid.SampledFrom([]*metav1.FieldsV1{
				nil,
				metav1.NewFieldsV1(""),
				metav1.NewFieldsV1(`["f:spec"]`),
				metav1.NewFieldsV1(`{"nonsense":{}}`),
				metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"icecream\"}":{"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}}}}}}}}}`),
			}).Draw(t, "fields"),
		})
	}
	return d
}

func genDeploymentStatus(t *rapid.T, d *appsv1.Deployment) appsv1.DeploymentStatus {
	if rapid.Bool().Draw(t, "rolled out") {
		return rolledOut(d).Status
	}
	number := rapid.SampledFrom([]int32{-1, 0, 1, 3})
	s := appsv1.DeploymentStatus{
		ObservedGeneration: rapid.Int64Range(0, 3).Draw(t, "observed generation"),
		Replicas:           number.Draw(t, "replicas"),
		UpdatedReplicas:    number.Draw(t, "updated"),
		AvailableReplicas:  number.Draw(t, "available"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		s.Conditions = append(s.Conditions, appsv1.DeploymentCondition{
			Type:               rapid.SampledFrom([]appsv1.DeploymentConditionType{"Progressing", "ReplicaFailure", "Available"}).Draw(t, "type"),
			Status:             rapid.SampledFrom([]corev1.ConditionStatus{"", "True", "False"}).Draw(t, "status"),
			Reason:             rapid.SampledFrom([]string{"", "ProgressDeadlineExceeded"}).Draw(t, "reason"),
			Message:            genText(t),
			LastTransitionTime: genTime(t),
		})
	}
	return s
}

// tampering is what people and programs do to a Deployment.
var tampering = []func(*appsv1.Deployment){
	func(d *appsv1.Deployment) { d.Labels = nil },
	func(d *appsv1.Deployment) { delete(d.Labels, LabelIcecream) },
	func(d *appsv1.Deployment) { d.Spec.Selector = nil },
	func(d *appsv1.Deployment) { d.Spec.Replicas = nil },
	func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](7) },
	func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = nil },
	func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar"}}, d.Spec.Template.Spec.Containers...)
	},
	func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: containerName})
	},
	func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{AnnotationSpecHash: "\xff"}
	},
	func(d *appsv1.Deployment) {
		for i := range d.Spec.Template.Spec.Containers {
			d.Spec.Template.Spec.Containers[i].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("3")}
		}
	},
}

func genPod(t *rapid.T, ice *v1alpha1.Icecream) Pod {
	p := seen(rapid.SampledFrom([]func(*corev1.Pod){
		func(*corev1.Pod) {},
		unschedulable(time.Hour),
		notReady(time.Second),
		func(pod *corev1.Pod) { notReady(time.Hour)(pod); kittest.EndsNow(1, "Error")(pod) },
		func(pod *corev1.Pod) { notReady(time.Hour)(pod); kittest.Waits("ErrImagePull", genText(t))(pod) },
	}).Draw(t, "state"))
	p.Name = genName(t)
	p.Node = genName(t)
	p.Deployment = text.LabelValue(genName(t))
	p.SpecHash = rapid.SampledFrom([]string{"", specHash(ice.Spec)}).Draw(t, "spec hash")
	return p
}

func genObserved(t *rapid.T) Observed {
	ice := genIcecream(t)
	o := Observed{Now: now, StallAfter: rapid.SampledFrom([]time.Duration{0, patience}).Draw(t, "stall after"), Icecream: ice}
	if rapid.Bool().Draw(t, "named") {
		o.Named = genDeployment(t, ice)
		o.Named.Name = DeploymentName(ice)
	}
	for range rapid.IntRange(0, 3).Draw(t, "deployments") {
		d := genDeployment(t, ice)
		isKnown := slices.ContainsFunc(o.Owned, func(known *appsv1.Deployment) bool { return known.Name == d.Name })
		if metav1.IsControlledBy(d, ice) && d.Name != DeploymentName(ice) && !isKnown {
			o.Owned = append(o.Owned, d)
		}
	}
	if o.Named != nil && metav1.IsControlledBy(o.Named, ice) {
		o.Owned = append(o.Owned, o.Named)
	}
	for range rapid.IntRange(0, 5).Draw(t, "pods") {
		o.Pods = append(o.Pods, genPod(t, ice))
	}
	o.OwnerIsGone = rapid.Bool().Draw(t, "owner is gone")
	o.Memory = genMemory(t, ice)
	return o
}

// genMemory is what a process may remember of an Icecream: nothing, or anything.
func genMemory(t *rapid.T, ice *v1alpha1.Icecream) Memory {
	if rapid.Bool().Draw(t, "no memory") {
		return Memory{}
	}
	reason := rapid.SampledFrom([]string{"", v1alpha1.ReasonCrashLoopBackOff, v1alpha1.ReasonImagePullBackOff, v1alpha1.ReasonProgressDeadlineExceeded})
	return Memory{
		History: kstatus.History{
			Generation: rapid.SampledFrom([]int64{ice.Generation, 7}).Draw(t, "generation remembered"),
			Problem: Problem{
				Reason:   reason.Draw(t, "problem"),
				Message:  genText(t),
				Object:   genName(t),
				Quiet:    rapid.Bool().Draw(t, "quiet"),
				Patience: rapid.SampledFrom([]time.Duration{0, patience, kstatus.Forever}).Draw(t, "patience"),
			},
			Since:    genTime(t).Time,
			Gone:     genTime(t).Time,
			Complete: genTime(t).Time,
		},
		Write: children.Write{
			Want:      rapid.SampledFrom([]string{"", children.Fingerprint(apply.Child{Want: desired(ice)}), "other"}).Draw(t, "want"),
			At:        genTime(t).Time,
			Count:     rapid.IntRange(0, 20).Draw(t, "count"),
			UID:       rapid.SampledFrom(someUIDs).Draw(t, "UID written"),
			Drift:     rapid.SampledFrom([]string{"", "other"}).Draw(t, "drift"),
			Contest:   genText(t),
			Reason:    rapid.SampledFrom([]string{"", v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonDeploymentRefused}).Draw(t, "refused"),
			IsInvalid: rapid.Bool().Draw(t, "invalid"),
			Message:   genText(t),
		},
	}
}

func genOutcome(t *rapid.T, d Decision) Outcome {
	var out Outcome
	if len(d.Children) > 0 && rapid.Bool().Draw(t, "succeeds") {
		out = wrote(d.Children[0].Want.(*appsv1.Deployment))
	}
	out.Err = rapid.SampledFrom([]error{nil, nil, errors.New("melted"), invalid(), forbidden()}).Draw(t, "error")
	return out
}

// snapshot is everything in a value, in words.
func snapshot(t rapidOrTesting, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("taking a snapshot: %v", err)
	}
	return string(raw)
}

// neverPanicsNorMutates holds for every input, nonsense too; and what comes out
// is fit to be written.
func neverPanicsNorMutates(t *rapid.T) {
	o := genObserved(t)
	before := snapshot(t, o)
	d := decide(o)
	decision := snapshot(t, d)
	out := genOutcome(t, d)
	outcome := snapshot(t, deploymentOf(out))

	s, news := statusOf(o, d, out)
	if _, again := Remember(Assess(o), d, out); again < 0 {
		t.Fatalf("again in %v", again)
	}
	status := snapshot(t, s)
	roster(Assess(o))
	for _, child := range d.Children {
		if _, err := child.Patch(); err != nil {
			t.Fatalf("Patch: %v", err)
		}
		if _, err := child.ManagedFieldsPatch(); err != nil {
			t.Fatalf("ManagedFieldsPatch: %v", err)
		}
	}
	if diff := cmp.Diff([]string{before, decision, outcome}, []string{snapshot(t, o), snapshot(t, d), snapshot(t, deploymentOf(out))}); diff != "" {
		t.Fatalf("the input has changed (-before +after):\n%s", diff)
	}

	// What came out shares nothing with what went in.
	for i := range s.Conditions {
		s.Conditions[i].Message = "scribble"
	}
	for i := range s.Nodes {
		s.Nodes[i].Name = "scribble"
	}
	if snapshot(t, o) != before {
		t.Fatalf("the status shares memory with the input")
	}

	if (d.Verdict == children.Act) != (len(d.Children)+len(d.Deletions) > 0) {
		t.Fatalf("%+v acts without anything to do, or the other way round", intentOf(d))
	}
	if d.RequeueAfter < 0 {
		t.Fatalf("again in %v", d.RequeueAfter)
	}
	if o.Icecream.DeletionTimestamp != nil {
		if d.Verdict != children.Converged || status != snapshot(t, o.Icecream.Status) || len(news) > 0 {
			t.Fatalf("an Icecream that is being deleted led to %+v, %s, %v", intentOf(d), status, news)
		}
		return
	}
	if got := verdictOf(v1alpha1.IcecreamStatus{ObservedGeneration: s.ObservedGeneration, Conditions: mustConditions(t, status)}); strings.Contains(got, "[") {
		t.Fatalf("conditions say %s", got)
	}
	for _, event := range news {
		if event.Type == "" || event.Reason == "" || event.Action == "" || len(event.Note) > 1024 {
			t.Fatalf("event %+v is not one that the API server takes", event)
		}
	}
}

func mustConditions(t rapidOrTesting, status string) []metav1.Condition {
	t.Helper()
	var s v1alpha1.IcecreamStatus
	if err := json.Unmarshal([]byte(status), &s); err != nil {
		t.Fatalf("reading a status: %v", err)
	}
	return s.Conditions
}

func TestNothingPanicsOrMutates(t *testing.T) { rapid.Check(t, neverPanicsNorMutates) }

func FuzzDecide(f *testing.F) { f.Fuzz(rapid.MakeFuzz(neverPanicsNorMutates)) }

// Lists out of a cache come in any order.
func TestSameInputSameOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := genObserved(t)
		d := decide(o)
		out := genOutcome(t, d)
		s, news := statusOf(o, d, out)
		want := snapshot(t, []any{intentOf(d), d.Children, s, sorted(news)})

		shuffled := o
		shuffled.Owned = rapid.Permutation(o.Owned).Draw(t, "owned")
		shuffled.Pods = rapid.Permutation(o.Pods).Draw(t, "pods")
		d = decide(shuffled)
		s, news = statusOf(shuffled, d, out)
		if diff := cmp.Diff(want, snapshot(t, []any{intentOf(d), d.Children, s, sorted(news)})); diff != "" {
			t.Fatalf("in another order, it is otherwise:\n%s", diff)
		}
	})
}

// sorted are events in an order of their own: several Deployments that go at the
// same time go in any.
func sorted(events []Event) []string {
	lines := recorded(events)
	slices.Sort(lines)
	return lines
}

// A status has nothing to add to itself: writing it is followed by silence.
func TestTheSameStatusAgainIsNoNews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := genObserved(t)
		d := decide(o)
		if d.Verdict == children.Act {
			return // it will not be the same again
		}
		o.Icecream.Status, _ = statusOf(o, d, Outcome{})
		later := o
		later.Now = o.Now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
		if decide(o).RequeueAfter > 0 {
			later.Now = o.Now
		}
		s, news := statusOf(later, decide(later), Outcome{})
		if diff := cmp.Diff(snapshot(t, o.Icecream.Status), snapshot(t, s)); diff != "" {
			t.Fatalf("the status has changed:\n%s", diff)
		}
		if len(news) > 0 {
			t.Fatalf("told %v", recorded(news))
		}
	})
}

// However the world looks, and whoever has been at it, carrying out decisions
// comes to an end, in which either everything is as the spec asks for or nothing
// can be done; and then nothing is written any more.
func TestFixedPoint(t *testing.T) {
	names := []string{"sundae", "cone", "cup"}
	edits := []func(*appsv1.Deployment){
		func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](7) },
		func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "mud" },
		func(d *appsv1.Deployment) { delete(d.Labels, LabelIcecream) },
		func(d *appsv1.Deployment) { d.OwnerReferences = nil },
		func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil },
		func(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "uid-of-another" },
		func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("9")}
		},
		func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar"}}, d.Spec.Template.Spec.Containers...)
		},
		func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "renamed" },
		func(d *appsv1.Deployment) { beingDeleted(d) },
	}
	genAsked := func(t *rapid.T) *v1alpha1.Icecream {
		ice := newIcecream(calls(rapid.SampledFrom(names).Draw(t, "deployment name")))
		ice.Spec.Replicas = rapid.Ptr(rapid.Int32Range(0, 4), true).Draw(t, "replicas")
		ice.Spec.Image = rapid.SampledFrom([]string{"vanilla:1", "chocolate:2"}).Draw(t, "image")
		ice.Spec.Resources = v1alpha1.IcecreamResources{Limits: genWholeResources(t), Requests: genWholeResources(t)}
		return ice
	}
	rapid.Check(t, func(t *rapid.T) {
		s := newServer(t)
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID).Draw(t, "there already") {
			// By an earlier spec, created in one way and perhaps applied to in another.
			for range rapid.IntRange(1, 2).Draw(t, "specs before") {
				earlier := genAsked(t)
				earlier.Spec.DeploymentName = name
				d := creates(earlier)
				if live := s.deployments[name]; live != nil {
					d = applies(earlier, live.UID)
				}
				s.carryOut(d)
			}
			if rapid.Bool().Draw(t, "rolled out") {
				rolledOut(s.deployments[name])
			}
			for _, edit := range rapid.SliceOfN(rapid.SampledFrom(edits), 0, 2).Draw(t, "edits") {
				s.update("somebody", name, func(d *appsv1.Deployment) {
					if len(d.OwnerReferences) > 0 {
						edit(d)
					}
				})
			}
		}

		ice := genAsked(t)
		var rounds []string
		for s.writes = 0; ; {
			o := s.observe(ice)
			d := decide(o)
			rounds = append(rounds, fmt.Sprintf("%+v", intentOf(d)))
			if len(rounds) > 8 {
				t.Fatalf("no end after\n%s", strings.Join(rounds, "\n"))
			}
			out := s.carryOut(d)
			ice = ice.DeepCopy()
			ice.Status, _ = statusOf(o, d, out)
			before := s.writes
			s.rollOut()
			settled := snapshot(t, s.observe(ice)) == snapshot(t, Observed{Now: o.Now, StallAfter: o.StallAfter, Icecream: ice, Named: o.Named, Owned: o.Owned, Pods: o.Pods})
			if (d.Verdict == children.Converged || d.Verdict == children.Blocked) && settled {
				if s.writes != before {
					t.Fatalf("written after the end")
				}
				checkEnd(t, s, ice, d)
				return
			}
		}
	})
}

// genWholeResources are resources in quantities that no API server rounds.
func genWholeResources(t *rapid.T) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]corev1.ResourceName{"cpu", "memory"}), rapid.ID).Draw(t, "resources") {
		list[name] = resource.MustParse(rapid.SampledFrom([]string{"1", "2Gi", "100m"}).Draw(t, "quantity"))
	}
	return list
}

// checkEnd looks at a world in which there is nothing left to do.
func checkEnd(t *rapid.T, s *server, ice *v1alpha1.Icecream, d Decision) {
	live := s.deployments[DeploymentName(ice)]
	owned := 0
	for _, d := range s.deployments {
		if metav1.IsControlledBy(d, ice) {
			owned++
		}
	}
	if d.Verdict == children.Blocked {
		if metav1.IsControlledBy(live, ice) {
			t.Fatalf("blocked by its own Deployment")
		}
		return
	}
	if owned != 1 || !metav1.IsControlledBy(live, ice) {
		t.Fatalf("%d Deployments at the end, and that of the name is %v", owned, live)
	}
	if got, want := *live.Spec.Replicas, replicas(ice); got != want {
		t.Fatalf("%d replicas, want %d", got, want)
	}
	for _, c := range live.Spec.Template.Spec.Containers {
		if c.Name != containerName {
			continue
		}
		if c.Image != ice.Spec.Image {
			t.Fatalf("image %q, want %q", c.Image, ice.Spec.Image)
		}
		if diff := cmp.Diff(ice.Spec.Resources.Requests, c.Resources.Requests, equateEmpty); diff != "" {
			t.Fatalf("requests (-want +got):\n%s", diff)
		}
	}
}

func TestStrippedPodsReadTheSame(t *testing.T) {
	state := rapid.Custom(func(t *rapid.T) corev1.ContainerState {
		return corev1.ContainerState{
			Waiting: rapid.Ptr(rapid.Custom(func(t *rapid.T) corev1.ContainerStateWaiting {
				return corev1.ContainerStateWaiting{Reason: rapid.SampledFrom([]string{"", "ErrImagePull", "CreateContainerError", "CrashLoopBackOff"}).Draw(t, "reason"), Message: genText(t)}
			}), true).Draw(t, "waiting"),
			Terminated: rapid.Ptr(rapid.Custom(func(t *rapid.T) corev1.ContainerStateTerminated {
				return corev1.ContainerStateTerminated{ExitCode: rapid.Int32Range(0, 1).Draw(t, "exit code"), Reason: genText(t)}
			}), true).Draw(t, "terminated"),
		}
	})
	container := rapid.Custom(func(t *rapid.T) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: genName(t), Ready: rapid.Bool().Draw(t, "ready"), Image: genText(t), ImageID: "id",
			State: state.Draw(t, "state"), LastTerminationState: state.Draw(t, "last state"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		pod := newPod(func(pod *corev1.Pod) {
			pod.Annotations["other"] = "annotation"
			pod.Labels["other"] = "label"
			pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
			pod.Spec.Containers = []corev1.Container{{Name: containerName}}
		})
		pod.Name, pod.Spec.NodeName, pod.CreationTimestamp = genName(t), genName(t), genTime(t)
		pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"", "Pending", "Running", "Succeeded", "Failed", "Unknown"}).Draw(t, "phase")
		pod.Status.InitContainerStatuses = rapid.SliceOfN(container, 0, 2).Draw(t, "init containers")
		pod.Status.ContainerStatuses = rapid.SliceOfN(container, 0, 2).Draw(t, "containers")
		pod.Status.Conditions = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.PodCondition {
			return corev1.PodCondition{
				Type:               rapid.SampledFrom([]corev1.PodConditionType{"Ready", "PodScheduled", "Initialized", "Other"}).Draw(t, "type"),
				Status:             rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown"}).Draw(t, "status"),
				Reason:             rapid.SampledFrom([]string{"", "Unschedulable"}).Draw(t, "reason"),
				Message:            genText(t),
				LastTransitionTime: genTime(t),
			}
		}), 0, 3).Draw(t, "conditions")
		if rapid.IntRange(0, 9).Draw(t, "is deleted") == 0 {
			beingDeleted(pod)
		}
		if rapid.IntRange(0, 9).Draw(t, "is given up") == 0 {
			pod.OwnerReferences = nil
		}

		cached := CachePod(pod)
		got, counts := PodOf(cached)
		isReady, since := podproblem.Ready(pod)
		want := Pod{Name: pod.Name, Node: pod.Spec.NodeName, Deployment: pod.Labels[LabelDeployment], SpecHash: pod.Annotations[AnnotationSpecHash], Ready: isReady, Since: since, Problem: podproblem.Of(pod)}
		if diff := cmp.Diff(want, got); counts && diff != "" {
			t.Fatalf("from the cache (-want +got):\n%s", diff)
		}
		accessor, err := meta.Accessor(cached)
		if err != nil || accessor.GetResourceVersion() != pod.ResourceVersion || accessor.GetName() != pod.Name || accessor.GetNamespace() != pod.Namespace || cached.Value(LabelIcecream) != pod.Labels[LabelIcecream] {
			t.Fatalf("what the cache itself needs is missing: %v, %v", accessor, err)
		}
		changed := pod.DeepCopy()
		changed.ResourceVersion += "0"
		if !CachePod(changed).IsAs(cached) {
			t.Fatal("a new version alone is a change")
		}
		changed.Labels = map[string]string{LabelIcecream: "another"}
		if CachePod(changed).IsAs(cached) {
			t.Fatal("another label is no change")
		}
	})
}
