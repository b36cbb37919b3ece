package icecream

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kit/patch"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Few names and UIDs, so that things often have to do with each other, and some that no API
// server would let pass.
var (
	someNames     = []string{"", "sundae", "cone", "cup", strings.Repeat("sprinkles-", 20) + "s", "Crème/brûlée"}
	someUIDs      = []types.UID{"", "uid-of-sundae", "uid-of-another"}
	someTemplates = []string{
		"", "", "{}", "null", "5", `{"spec": {"containers": [{"name": "icecream", "env": [{"name": "A", "value": "a"}]}]}}`,
		`{"spec": {"containers": [null, {}]}}`, `{"spec": null, "metadata": {"labels": {"\ufffd": ""}}}`, `{"spec": {"nodeNames": []}}`,
	}
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
	some := rapid.SampledFrom([]string{"", strings.Repeat("x", 2000), "Back-off: ErrImagePull: denied"})
	return rapid.OneOf(rapid.String(), some).Draw(t, "text")
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
	if template := rapid.SampledFrom(someTemplates).Draw(t, "template"); template != "" {
		spec.Template = &runtime.RawExtension{Raw: []byte(template)}
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
		d = typed(t, like)
	}
	if rapid.Bool().Draw(t, "is applied") {
		d.ManagedFields = stored(t, newIcecream()).ManagedFields
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
			APIVersion: rapid.SampledFrom([]string{v1alpha1.GroupVersion.String(), v1alpha1.GroupName + "/v1", "apps/v1", "//"}).Draw(t, "version"),
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

// typed returns the Deployment that an Icecream asks for, before the API server has seen it.
func typed(t *rapid.T, ice *v1alpha1.Icecream) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ice.Namespace, Name: DeploymentName(ice)}}
	plan := Decide(Observed{Now: now, Icecream: ice})
	if plan.Apply == nil {
		return d
	}
	if err := json.Unmarshal(plan.Apply.Body, d); err != nil {
		t.Fatal(err)
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
	func(d *appsv1.Deployment) { d.Annotations = map[string]string{patch.AnnotationAsked: "\xff"} },
	func(d *appsv1.Deployment) { d.Spec.Paused = true },
	func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType },
	func(d *appsv1.Deployment) {
		for i := range d.Spec.Template.Spec.Containers {
			d.Spec.Template.Spec.Containers[i].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("3")}
		}
	},
}

func genPod(t *rapid.T) Pod {
	p := seen(
		ofTemplate(rapid.SampledFrom([]string{"7c8b", "5d6f"}).Draw(t, "template"), rapid.SampledFrom(someTimes).Draw(t, "age")),
		rapid.SampledFrom([]func(*corev1.Pod){
			func(*corev1.Pod) {},
			unschedulable(time.Hour),
			notReady(time.Second),
			recovered(time.Second),
			hasFailed(time.Second),
			beingDeleted[*corev1.Pod],
			func(pod *corev1.Pod) { notReady(time.Hour)(pod); kittest.Waits("ErrImagePull", genText(t))(pod) },
		}).Draw(t, "state"),
	)
	p.Name, p.Node = genName(t), genName(t)
	return p
}

func genObserved(t *rapid.T) Observed {
	o := Observed{Now: now, Icecream: genIcecream(t)}
	if rapid.IntRange(0, 3).Draw(t, "no Deployment") > 0 {
		o.Live = genDeployment(t, o.Icecream, DeploymentName(o.Icecream))
	}
	for range rapid.IntRange(0, 5).Draw(t, "pods") {
		o.Pods = append(o.Pods, genPod(t))
	}
	if rapid.IntRange(0, 9).Draw(t, "undecodable") == 0 {
		o.Undecodable = "spec.image: that is no image"
	}
	if rapid.IntRange(0, 5).Draw(t, "older") == 0 {
		o.Older = genIcecream(t)
	}
	if rapid.Bool().Draw(t, "has written") {
		o.Last = genAttempt(t, o)
	}
	return o
}

// genAttempt returns what a process can remember of its last write.
func genAttempt(t *rapid.T, o Observed) pace.Attempt {
	last := attempt(
		rapid.SampledFrom([]*v1alpha1.Icecream{o.Icecream, newIcecream()}).Draw(t, "wish"),
		rapid.SampledFrom([]error{nil, invalid(), terminating(), forbidden("melted"), errors.New("connection refused")}).Draw(t, "failure"),
		rapid.SampledFrom([]int{1, 3, 4, 1 << 40}).Draw(t, "count"),
		rapid.SampledFrom(someTimes).Draw(t, "since"),
	)
	last.At = genTime(t).Time
	return last
}

// outcome is all that comes out of a sync.
type outcome struct {
	Plan         Plan
	Status       v1alpha1.IcecreamStatus
	RecheckAfter time.Duration
	Events       []Event
}

func outcomeOf(o Observed) (out outcome) {
	out.Plan = Decide(o)
	out.Status, out.RecheckAfter = Status(o, out.Plan)
	out.Events = append(out.Events, StatusEvent(o.Icecream.Status, out.Status))
	if o.Live != nil && out.Plan.IsOpen() {
		out.Events = append(out.Events, o.WriteEvent(o.Live, out.Plan.Apply != nil))
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
	before := snapshot(t, o)
	out := outcomeOf(o)
	plan, s := out.Plan, out.Status
	if diff := cmp.Diff(before, snapshot(t, o)); diff != "" {
		t.Fatalf("the input has changed (-before +after):\n%s", diff)
	}
	if out.RecheckAfter < 0 || plan.Wait < 0 {
		t.Fatalf("again after %s, waits %s", out.RecheckAfter, plan.Wait)
	}
	if plan.Apply != nil && plan.Held.Reason != "" {
		t.Fatalf("a plan that contradicts itself: %+v", plan)
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
		want := outcomeOf(o)
		o.Pods = rapid.Permutation(o.Pods).Draw(t, "pods")
		if diff := cmp.Diff(snapshot(t, want), snapshot(t, outcomeOf(o))); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	})
}

// After two writes, of the whole and of the replicas, there is nothing left to do, whatever others had made of the Deployment.
func TestPlansAreCarriedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ice := newIcecream()
		store := applied(t, apiserver.Store{}, ice)
		if rapid.Bool().Draw(t, "is edited") {
			ice.Spec = genSpec(t)
			ice.Spec.DeploymentName = ""
		}
		d := onlyOne(t, store)
		for _, edit := range rapid.SliceOfN(rapid.SampledFrom(tampering), 0, 3).Draw(t, "tampering") {
			edit(d)
		}
		store, err := model.Put(store, now, d)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			after, response := send(model, store, ice)
			if store = after; response.Code >= 400 {
				t.Skip("the API server does not take that")
			}
		}
		o := Observed{Now: now, Icecream: ice, Live: stripped(onlyOne(t, store))}
		if IsControlledBy(o.Live, ice) && Decide(o).IsOpen() {
			t.Fatalf("what is left: %s", decided(o))
		}
	})
}
