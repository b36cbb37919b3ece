package icecream

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

// Few names and UIDs, so that things often have to do with each other, and some that no API
// server would let pass.
var (
	someNames = []string{"", "sundae", "cone", "cup", strings.Repeat("sprinkles-", 20) + "s", "Crème/brûlée"}
	someUIDs  = []types.UID{"", "uid-of-sundae", "uid-of-another"}
	someTimes = []time.Duration{-time.Hour, -time.Minute, -time.Second, 0, time.Hour}
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

// genResources returns resources in some of these quantities.
func genResources(t *rapid.T, quantities ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]corev1.ResourceName{"cpu", "memory"}), rapid.ID).Draw(t, "resources") {
		list[name] = resource.MustParse(rapid.SampledFrom(quantities).Draw(t, "quantity"))
	}
	return list
}

func genSpec(t *rapid.T) v1alpha1.IcecreamSpec {
	spec := v1alpha1.IcecreamSpec{
		DeploymentName: genName(t),
		Replicas:       rapid.Ptr(rapid.SampledFrom([]int32{-1, 0, 1, 3, 1 << 30}), true).Draw(t, "replicas"),
		Image:          rapid.SampledFrom([]string{"", "vanilla:1", "no such image", "\xff"}).Draw(t, "image"),
	}
	spec.Resources.Limits = genResources(t, "0", "-1", "100m", "1e3", "0.5", "100u")
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
	for range rapid.IntRange(0, 3).Draw(t, "conditions") {
		ice.Status.Conditions = append(ice.Status.Conditions, metav1.Condition{
			Type:               rapid.SampledFrom([]string{"", "Ready", "Reconciling", "Stalled", "Tasty"}).Draw(t, "type"),
			Status:             rapid.SampledFrom([]metav1.ConditionStatus{"", "True", "False", "Unknown"}).Draw(t, "status"),
			Reason:             rapid.SampledFrom([]string{"", "Available", "ImagePullBackOff"}).Draw(t, "reason"),
			LastTransitionTime: metav1.NewTime(now),
			Message:            genText(t),
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "nodes") {
		ice.Status.Nodes = append(ice.Status.Nodes, v1alpha1.IcecreamNode{Name: genName(t), Pods: rapid.Int32().Draw(t, "pods")})
	}
	return ice
}

// genDeployment returns a Deployment of any kind: the Icecream's, as it should be or not; an
// orphan; somebody else's; or nothing but a name.
func genDeployment(t *rapid.T, ice *v1alpha1.Icecream, name string) *appsv1.Deployment {
	like := ice.DeepCopy()
	if rapid.Bool().Draw(t, "older spec") {
		like.Spec = genSpec(t)
	}
	like.Spec.DeploymentName = name
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: name}}
	if rapid.IntRange(0, 4).Draw(t, "bare") > 0 {
		d = NewDeployment(like)
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
		d.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: rapid.SampledFrom([]string{"controller.nicoleh.io/v1alpha1", "controller.nicoleh.io/v1", "apps/v1", "//"}).Draw(t, "owner's version"),
			Kind:       rapid.SampledFrom([]string{"Icecream", "Parlor"}).Draw(t, "owner's kind"),
			UID:        rapid.SampledFrom(someUIDs).Draw(t, "owner's UID"),
			Controller: rapid.Ptr(rapid.Bool(), true).Draw(t, "controller"),
		}}
	}
	for _, edit := range rapid.SliceOfN(rapid.SampledFrom(tampering), 0, 3).Draw(t, "tampering") {
		edit(d)
	}
	if rolledOut(d); rapid.Bool().Draw(t, "rolled out") {
		return d
	}
	number := rapid.SampledFrom([]int32{-1, 0, 1, 3})
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: rapid.Int64Range(0, 3).Draw(t, "observed generation"),
		Replicas:           number.Draw(t, "replicas"),
		UpdatedReplicas:    number.Draw(t, "updated"),
		AvailableReplicas:  number.Draw(t, "available"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		says(
			rapid.SampledFrom([]appsv1.DeploymentConditionType{"Progressing", "ReplicaFailure", "Available"}).Draw(t, "type"),
			rapid.SampledFrom([]corev1.ConditionStatus{"", "True", "False"}).Draw(t, "status"),
			rapid.SampledFrom([]string{"", "ProgressDeadlineExceeded"}).Draw(t, "reason"),
			genText(t),
		)(d)
	}
	return d
}

// tampering is what people and programs do to a Deployment.
var tampering = []func(*appsv1.Deployment){
	scaled,
	func(d *appsv1.Deployment) { d.Labels = nil },
	func(d *appsv1.Deployment) { delete(d.Labels, LabelIcecream) },
	func(d *appsv1.Deployment) { d.Spec.Selector = nil },
	func(d *appsv1.Deployment) { d.Spec.Replicas = nil },
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
		hasFailed,
		func(pod *corev1.Pod) { notReady(time.Hour)(pod); kittest.Waits("ErrImagePull", genText(t))(pod) },
	}).Draw(t, "state"))
	p.Name, p.Node = genName(t), genName(t)
	p.ReplicaSet = genName(t) + "-7c8b"
	p.SpecHash = rapid.SampledFrom([]string{"", specHash(ice.Spec)}).Draw(t, "spec hash")
	return p
}

func genObserved(t *rapid.T) Observed {
	ice := genIcecream(t)
	o := Observed{Now: now, Icecream: ice}
	if rapid.IntRange(0, 3).Draw(t, "no Deployment") > 0 {
		o.Live = genDeployment(t, ice, DeploymentName(ice))
	}
	for range rapid.IntRange(0, 5).Draw(t, "pods") {
		o.Pods = append(o.Pods, genPod(t, ice))
	}
	o.OwnerIsGone = rapid.Bool().Draw(t, "owner is gone")
	if rapid.IntRange(0, 9).Draw(t, "undecodable") == 0 {
		o.Undecodable = "spec.image: that is no image"
	}
	o.Memory = genMemory(t, o)
	return o
}

// genMemory returns what a process can remember of an Icecream: nothing, or anything.
func genMemory(t *rapid.T, o Observed) (m Memory) {
	if rapid.Bool().Draw(t, "no memory") {
		return m
	}
	deployments := []types.UID{"", "former"}
	if o.Live != nil {
		deployments = append(deployments, o.Live.UID)
	}
	reason := rapid.SampledFrom([]string{"", v1alpha1.ReasonCrashLoopBackOff, v1alpha1.ReasonPodFailed})
	return Memory{
		UID: rapid.SampledFrom([]types.UID{o.Icecream.UID, "former"}).Draw(t, "UID remembered"),
		History: kstatus.History{
			Generation: rapid.SampledFrom([]int64{o.Icecream.Generation, 7}).Draw(t, "generation remembered"),
			Recurring:  Problem{Reason: reason.Draw(t, "problem"), Message: genText(t)},
			Since:      genTime(t).Time,
			Most:       rapid.Int64().Draw(t, "most"),
			IsDone:     rapid.Bool().Draw(t, "is done"),
			Well:       genTime(t).Time,
		},
		Failed:     rapid.IntRange(0, 3).Draw(t, "failed"),
		Deployment: rapid.SampledFrom(deployments).Draw(t, "Deployment remembered"),
	}
}

// genEntries notes what a process can have asked for: nothing, or anything.
func genEntries(t *rapid.T, o Observed, account *ledger.Account) {
	for _, ask := range Decide(o).Asks {
		for range rapid.SampledFrom([]int{0, 0, 1, 3, 20}).Draw(t, "count") {
			ask.Goal = rapid.SampledFrom([]string{ask.Goal, "other"}).Draw(t, "goal")
			account.Note(o.Now.Add(rapid.SampledFrom(someTimes).Draw(t, "noted")), ask, ledger.Outcome{
				Refusal: rapid.SampledFrom([]error{nil, invalid(), forbidden("refused: " + genText(t))}).Draw(t, "refusal"),
				Left:    rapid.SampledFrom([]string{"", ask.Left, "other"}).Draw(t, "left"),
				Undone:  "undone: " + genText(t),
			})
		}
	}
}

// genResult returns what the API server can make of what is due.
func genResult(t *rapid.T, o Observed, due []ledger.Ask) (r Result) {
	if r.Refusal = rapid.SampledFrom([]error{nil, nil, invalid(), forbidden("melted"), terminating()}).Draw(t, "refusal"); r.Refusal == nil {
		if r.Stored = NewDeployment(o.Icecream); o.Live != nil {
			r.Stored = o.want(due)
		}
		for _, edit := range rapid.SliceOfN(rapid.SampledFrom(tampering), 0, 2).Draw(t, "policies") {
			edit(r.Stored)
		}
	}
	r.Other = genText(t)
	return r
}

// outcome is all that comes out of a sync.
type outcome struct {
	Plan     Plan
	Outcomes []ledger.Outcome
	Report   Report
	Events   []Event
	Roster   string
}

func outcomeOf(t *rapid.T, o Observed, account *ledger.Account, draw func(Observed, []ledger.Ask) Result) (out outcome) {
	out.Plan = Decide(o)
	o.Standing = account.Standing(o.Now, out.Plan.Asks)
	after := o
	if due := o.Standing.Due; len(due) > 0 {
		if o.Live != nil {
			if _, err := o.Patch(due); err != nil {
				t.Fatalf("the patch: %v", err)
			}
		}
		var event Event
		after, out.Outcomes, event = o.With(due, draw(o, due))
		out.Events = append(out.Events, event)
		after.Standing = account.Standing(o.Now, after.Asks())
	}
	out.Report, out.Roster = Status(after, out.Plan), Roster(after)
	if !equality.Semantic.DeepEqual(o.Icecream.Status, out.Report.Status) {
		out.Events = append(out.Events, StatusEvent(after, out.Report.Status))
	}
	out.Events = slices.DeleteFunc(out.Events, func(e Event) bool { return e == Event{} })
	return out
}

// snapshot returns everything in a value, in words.
func snapshot(t *rapid.T, value any) string {
	t.Helper()
	raw, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatalf("taking a snapshot: %v", err)
	}
	return string(raw)
}

// neverPanicsNorMutates holds for every input, nonsense too; and what comes out is fit to be
// written.
func neverPanicsNorMutates(t *rapid.T) {
	o := genObserved(t)
	account := ledger.New().Of(cache.MetaObjectToName(o.Icecream), o.Icecream.UID)
	genEntries(t, o, account)
	before := snapshot(t, o)
	out := outcomeOf(t, o, account, func(o Observed, due []ledger.Ask) Result { return genResult(t, o, due) })
	plan, s := out.Plan, out.Report.Status
	if diff := cmp.Diff(before, snapshot(t, o)); diff != "" {
		t.Fatalf("the input has changed (-before +after):\n%s", diff)
	}
	if plan.RequeueAfter < 0 || plan.RequeueAfter > ownerCheck || out.Report.RequeueAfter < 0 {
		t.Fatalf("again after %s or %s", plan.RequeueAfter, out.Report.RequeueAfter)
	}
	if plan.Asks != nil && plan.Held.Reason != "" {
		t.Fatalf("a plan that contradicts itself: %+v", plan)
	}
	if o.Icecream.DeletionTimestamp != nil {
		if plan.Asks != nil || !equality.Semantic.DeepEqual(s, o.Icecream.Status) {
			t.Fatalf("an Icecream that is being deleted led to %+v, %+v", plan, s)
		}
		return
	}
	if got := verdictOf(s); strings.Count(got, ": ") != 1 {
		t.Fatalf("conditions say %s", got)
	}
	for _, e := range out.Events {
		if e.Type == "" || e.Reason == "" || len(e.Message) > maxMessage {
			t.Fatalf("event %+v is not one that the API server takes", e)
		}
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
}

func TestNothingPanicsOrMutates(t *testing.T) { rapid.Check(t, neverPanicsNorMutates) }

func FuzzDecide(f *testing.F) { f.Fuzz(rapid.MakeFuzz(neverPanicsNorMutates)) }

// Lists out of a cache come in any order.
func TestSameInputSameOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := genObserved(t)
		account := ledger.New().Of(cache.MetaObjectToName(o.Icecream), o.Icecream.UID)
		genEntries(t, o, account)
		var r Result
		want := outcomeOf(t, o, account, func(o Observed, due []ledger.Ask) Result { r = genResult(t, o, due); return r })
		o.Pods = rapid.Permutation(o.Pods).Draw(t, "pods")
		got := outcomeOf(t, o, account, func(Observed, []ledger.Ask) Result { return r })
		if diff := cmp.Diff(snapshot(t, want), snapshot(t, got)); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	})
}
