package icecream

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/children"
)

// now is when everything in these tests happens, long after it was made.
var now = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

const patience = time.Minute

// newIcecream is an Icecream of three replicas, as edited.
func newIcecream(edits ...func(*v1alpha1.Icecream)) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "parlor",
			Name:              "sundae",
			UID:               "uid-of-sundae",
			Generation:        1,
			ResourceVersion:   "7",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		},
		Spec: v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](3), Image: "registry.example/vanilla:1"},
	}
	for _, edit := range edits {
		edit(ice)
	}
	return ice
}

// calls has the Icecream ask for a Deployment of that name.
func calls(name string) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = name }
}

// server is what an API server and a Deployment controller make of writes, in
// small: defaults, generations, managed fields and preconditions are real, and a
// rollout takes one call.
type server struct {
	tb          rapidOrTesting
	fields      *managedfields.FieldManager
	deployments map[string]*appsv1.Deployment
	made        int // objects and versions so far
	writes      int
}

// rapidOrTesting is what a test and a property's check have in common.
type rapidOrTesting interface {
	Helper()
	Fatalf(format string, args ...any)
}

// defaulter is for a field manager that is given objects with defaults already.
type defaulter struct{}

func (defaulter) Default(runtime.Object) {}

func newServer(tb rapidOrTesting) *server {
	tb.Helper()
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	fields, err := managedfields.NewDefaultFieldManager(typeConverter, scheme.Scheme, defaulter{}, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		tb.Fatalf("making a field manager: %v", err)
	}
	return &server{tb: tb, fields: fields, deployments: map[string]*appsv1.Deployment{}}
}

var typeConverter = applyconfigurations.NewTypeConverter(scheme.Scheme)

// create answers a POST.
func (s *server) create(manager string, d *appsv1.Deployment) *appsv1.Deployment {
	s.tb.Helper()
	if s.deployments[d.Name] != nil {
		s.tb.Fatalf("creating Deployment %q, which exists", d.Name)
	}
	d = d.DeepCopy()
	d.TypeMeta = metav1.TypeMeta{}
	setDefaults(d)
	before := &appsv1.Deployment{}
	before.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	managed, err := s.fields.Update(before, withKind(d), manager)
	s.made++
	return s.store(managed, err, types.UID(fmt.Sprintf("uid-%d", s.made)), 1)
}

// apply answers a server-side apply with force and, before it, the patch of the managed
// fields.
func (s *server) apply(manager string, child apply.Child) *appsv1.Deployment {
	s.tb.Helper()
	want := child.Want.(*appsv1.Deployment)
	before := s.deployments[want.Name]
	if before == nil || child.UID != before.UID {
		s.tb.Fatalf("applying to Deployment %q of another UID, or none", want.Name)
	}
	if !equality.Semantic.DeepEqual(before.Spec.Selector.MatchLabels, want.Spec.Selector.MatchLabels) {
		s.tb.Fatalf("applying another selector to Deployment %q", want.Name)
	}
	live := withKind(before)
	if child.ManagedFields != nil {
		moved := live.DeepCopy()
		moved.ManagedFields = child.ManagedFields
		managed, err := s.fields.Update(live, moved, manager)
		live = withKind(s.store(managed, err, before.UID, before.Generation))
	}
	raw, err := child.Patch()
	if err != nil {
		s.tb.Fatalf("building the patch: %v", err)
	}
	patch := &unstructured.Unstructured{}
	if err := patch.UnmarshalJSON(raw); err != nil {
		s.tb.Fatalf("reading the patch: %v", err)
	}
	applied, err := s.fields.Apply(live, patch, manager, true)
	if err != nil {
		s.tb.Fatalf("applying to Deployment %q: %v", want.Name, err)
	}
	after := applied.(*appsv1.Deployment)
	setDefaults(after)
	generation := before.Generation
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		generation++
	}
	return s.store(after, nil, before.UID, generation)
}

// update answers somebody's edit of a Deployment.
func (s *server) update(manager, name string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	s.tb.Helper()
	before := withKind(s.deployments[name])
	after := before.DeepCopy()
	edit(after)
	managed, err := s.fields.Update(before, after, manager)
	generation := before.Generation
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		generation++
	}
	return s.store(managed, err, before.UID, generation)
}

func (s *server) store(obj runtime.Object, err error, uid types.UID, generation int64) *appsv1.Deployment {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("managing fields: %v", err)
	}
	d := obj.(*appsv1.Deployment)
	d.TypeMeta = metav1.TypeMeta{} // as in a cache
	d.UID, d.Generation = uid, generation
	s.writes++
	s.made++
	d.ResourceVersion = strconv.Itoa(s.made)
	s.deployments[d.Name] = d
	return d.DeepCopy()
}

// rollOut lets the Deployment controller and the garbage collector do their work
// to the end.
func (s *server) rollOut() {
	for name, d := range s.deployments {
		if d.DeletionTimestamp != nil {
			delete(s.deployments, name)
			continue
		}
		rolledOut(d)
	}
}

// rolledOut sets the status that the Deployment has when its rollout is over.
func rolledOut(d *appsv1.Deployment) *appsv1.Deployment {
	n := ptr.Deref(d.Spec.Replicas, 1)
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
	}
	return d
}

// observe is what caches in step with the server show.
func (s *server) observe(ice *v1alpha1.Icecream) Observed {
	o := Observed{Now: now, StallAfter: patience, Icecream: ice}
	for _, name := range slices.Sorted(maps.Keys(s.deployments)) {
		d := s.deployments[name].DeepCopy()
		if name == DeploymentName(ice) {
			o.Named = d
		}
		if metav1.IsControlledBy(d, ice) {
			o.Owned = append(o.Owned, d)
			o.Pods = append(o.Pods, podsOf(d, "node-1")...)
		}
	}
	return o
}

// carryOut does what a decision asks for.
func (s *server) carryOut(d Decision) Outcome {
	s.tb.Helper()
	var out Outcome
	for _, child := range d.Children {
		if child.UID == "" {
			out.Written = append(out.Written, s.create(FieldManager, child.Want.(*appsv1.Deployment)))
		} else {
			out.Written = append(out.Written, s.apply(FieldManager, child))
		}
	}
	for _, old := range d.Deletions {
		if live := s.deployments[old.Name]; live != nil && live.UID == old.UID {
			s.writes++
			delete(s.deployments, old.Name)
		}
	}
	return out
}

// creates and applies decide to write the Icecream's Deployment, and wrote is what came
// of it.
func creates(ice *v1alpha1.Icecream) Decision { return applies(ice, "") }

func applies(ice *v1alpha1.Icecream, uid types.UID) Decision {
	return Decision{Verdict: children.Act, Children: []apply.Child{{Resource: Deployments, Want: desired(ice), UID: uid}}}
}

func wrote(d *appsv1.Deployment) Outcome { return Outcome{Written: []metav1.Object{d}} }

// made is the Icecream's Deployment, created and rolled out.
func made(tb testing.TB, ice *v1alpha1.Icecream) *appsv1.Deployment {
	tb.Helper()
	s := newServer(tb)
	s.carryOut(creates(ice))
	s.rollOut()
	return s.deployments[DeploymentName(ice)]
}

// podsOf are the ready Pods of a Deployment that is rolled out, one after the
// other on these nodes.
func podsOf(d *appsv1.Deployment, nodes ...string) []Pod {
	var pods []Pod
	for i := range ptr.Deref(d.Spec.Replicas, 1) {
		pods = append(pods, Pod{
			Name:       fmt.Sprintf("%s-%d", d.Name, i),
			Node:       nodes[int(i)%len(nodes)],
			Deployment: d.Spec.Template.Labels[LabelDeployment],
			SpecHash:   d.Spec.Template.Annotations[AnnotationSpecHash],
			Ready:      true,
		})
	}
	return pods
}

func withKind(d *appsv1.Deployment) *appsv1.Deployment {
	d = d.DeepCopy()
	d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return d
}

// setDefaults fills in what an API server fills in for fields left empty.
func setDefaults(d *appsv1.Deployment) {
	quarter := intstr.FromString("25%")
	d.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	d.Spec.Replicas = orDefault(d.Spec.Replicas, 1)
	d.Spec.RevisionHistoryLimit = orDefault(d.Spec.RevisionHistoryLimit, 10)
	d.Spec.ProgressDeadlineSeconds = orDefault(d.Spec.ProgressDeadlineSeconds, 600)
	if d.Spec.Strategy.Type == "" {
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter},
		}
	}
	pod := &d.Spec.Template.Spec
	pod.RestartPolicy = corev1.RestartPolicyAlways
	pod.DNSPolicy = corev1.DNSClusterFirst
	pod.SchedulerName = corev1.DefaultSchedulerName
	pod.TerminationGracePeriodSeconds = orDefault(pod.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	for i := range pod.Containers {
		c := &pod.Containers[i]
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
		c.ImagePullPolicy = corev1.PullIfNotPresent
	}
}

func orDefault[T any](present *T, value T) *T {
	if present != nil {
		return present
	}
	return &value
}

// equateEmpty has cmp make no difference between nothing and nothing.
var equateEmpty = cmpopts.EquateEmpty()

// decide and statusOf are Decide and Status for what is observed.
func decide(o Observed) Decision { return Decide(Assess(o)) }

func statusOf(o Observed, d Decision, out Outcome) (v1alpha1.IcecreamStatus, []Event) {
	return statusAfter(Assess(o), d, out)
}

func statusAfter(a Assessment, d Decision, out Outcome) (v1alpha1.IcecreamStatus, []Event) {
	now, _ := Remember(a, d, out)
	return Status(a, now, d, out)
}
