package apply

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

const manager = "db-controller"

var (
	statefulSets = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	services     = corev1.SchemeGroupVersion.WithResource("services")

	owner = Owner{Manager: manager, Optional: []fieldpath.Path{
		fieldpath.MakePathOrDie("metadata", "annotations"),
		fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", "db"), "resources"),
	}}
)

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "parlor", Labels: map[string]string{"app": "db"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "db"},
			Ports:    []corev1.ServicePort{{Name: "sql", Port: 5432}},
		},
	}
}

func statefulSet(limits ...corev1.ResourceName) *appsv1.StatefulSet {
	var list corev1.ResourceList
	if len(limits) > 0 {
		list = corev1.ResourceList{}
	}
	for _, name := range limits {
		list[name] = resource.MustParse("1")
	}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "parlor",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "main", UID: "uid-of-main", Controller: ptr.To(true)}},
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    ptr.To[int32](3),
			ServiceName: "db",
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "db", Image: "registry.example/db:1", Command: []string{"db", "--fast"},
					Env:       []corev1.EnvVar{{Name: "MODE", Value: "fast"}},
					Resources: corev1.ResourceRequirements{Limits: list},
				}}},
			},
		},
	}
}

// with returns the object after some changes.
func with[T any](obj T, edits ...func(T)) T {
	for _, edit := range edits {
		edit(obj)
	}
	return obj
}

// fake is a clientset that gives each object a UID and a resourceVersion.
func fake() *kubefake.Clientset {
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj := action.(clienttesting.CreateAction).GetObject().(metav1.Object)
		obj.SetUID("uid-of-" + types.UID(obj.GetName()))
		obj.SetResourceVersion("42")
		return false, nil, nil
	})
	return kube
}

func fieldsOfDrift(child Child) string {
	var fields []string
	for _, f := range child.Drift {
		fields = append(fields, f.Field)
	}
	return strings.Join(fields, ", ")
}

// Objects of any kind are compared in the same way.
func TestCompare(t *testing.T) {
	onService := func(edit func(*corev1.Service)) (want, live metav1.Object) {
		s := service()
		s.Spec.ClusterIP, s.Spec.Type = "10.0.0.1", corev1.ServiceTypeClusterIP
		s.Spec.Ports[0].Protocol = corev1.ProtocolTCP
		edit(s)
		return service(), s
	}
	onStatefulSet := func(edit func(*appsv1.StatefulSet)) (want, live metav1.Object) {
		s := statefulSet("cpu")
		s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		edit(s)
		return statefulSet("cpu"), s
	}
	container := func(s *appsv1.StatefulSet) *corev1.Container { return &s.Spec.Template.Spec.Containers[0] }
	for _, tt := range []struct {
		name string
		on   func() (want, live metav1.Object)
		want string
	}{
		{"a Service with what the API server has filled in", func() (want, live metav1.Object) {
			return onService(func(*corev1.Service) {})
		}, ""},
		{"a Service with another port besides", func() (want, live metav1.Object) {
			return onService(func(s *corev1.Service) {
				s.Spec.Ports = append([]corev1.ServicePort{{Name: "metrics", Port: 9090}}, s.Spec.Ports...)
			})
		}, ""},
		{"a Service with another port instead", func() (want, live metav1.Object) {
			return onService(func(s *corev1.Service) { s.Spec.Ports[0].Port = 3306 })
		}, `spec.ports[name="sql"].port`},
		{"a Service that selects others", func() (want, live metav1.Object) {
			return onService(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web", "also": "this"} })
		}, "spec.selector.app"},
		{"a Service without labels", func() (want, live metav1.Object) {
			return onService(func(s *corev1.Service) { s.Labels = nil })
		}, "metadata.labels"},
		{"a StatefulSet as it should be", func() (want, live metav1.Object) {
			return onStatefulSet(func(*appsv1.StatefulSet) {})
		}, ""},
		{"several fields, in order", func() (want, live metav1.Object) {
			return onStatefulSet(func(s *appsv1.StatefulSet) {
				container(s).Image = "registry.example/mud:1"
				s.Spec.Replicas = ptr.To[int32](9)
				s.OwnerReferences[0].Controller = nil
			})
		}, `metadata.ownerReferences[uid="uid-of-main"].controller, spec.replicas, spec.template.spec.containers[name="db"].image`},
		{"a list of plain values that has more", func() (want, live metav1.Object) {
			return onStatefulSet(func(s *appsv1.StatefulSet) { container(s).Command = append(container(s).Command, "--loose") })
		}, `spec.template.spec.containers[name="db"].command`},
		{"an element that is missing", func() (want, live metav1.Object) {
			return onStatefulSet(func(s *appsv1.StatefulSet) { container(s).Env[0].Name = "MOOD" })
		}, `spec.template.spec.containers[name="db"].env[name="MODE"]`},
		{"the same quantity in other words", func() (want, live metav1.Object) {
			return onStatefulSet(func(s *appsv1.StatefulSet) { container(s).Resources.Limits["cpu"] = resource.MustParse("1000m") })
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, live := tt.on()
			live.SetUID("uid")
			live.SetResourceVersion("7")
			got := owner.Compare(Child{Want: want}, live)
			difftest.Equal(t, "drift", tt.want, fieldsOfDrift(got))
			if got.UID != "uid" || got.ResourceVersion != "7" || got.ManagedFields != nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// The order is always the same, also of elements with the same key, which no API server accepts.
func TestDriftHasOneOrder(t *testing.T) {
	want, live := statefulSet(), statefulSet()
	for i := range 20 {
		c := &want.Spec.Template.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "sql", ContainerPort: int32(i + 1)})
	}
	live.Spec.Template.Spec.Containers[0].Image, live.Spec.Template.Spec.Containers[0].Ports = "", []corev1.ContainerPort{{Name: "other"}}
	first := owner.Compare(Child{Want: want}, live).Drift
	for range 100 {
		difftest.Equal(t, "drift", first, owner.Compare(Child{Want: want}, live).Drift)
	}
}

// A field that is no longer wanted goes, whichever way it came; one that someone else
// wants as well, or alone, stays.
func TestStaleFields(t *testing.T) {
	limitsOf := func(s *appsv1.StatefulSet) corev1.ResourceList {
		return s.Spec.Template.Spec.Containers[0].Resources.Limits
	}
	one := resource.MustParse("1")
	for _, tt := range []struct {
		name      string
		before    []*appsv1.StatefulSet                   // the first is created, the others are applied
		others    *appsv1ac.StatefulSetApplyConfiguration // what someone else applies
		want      *appsv1.StatefulSet
		wantDrift string
		wantMoves bool
		wantLeft  corev1.ResourceList
	}{
		{name: "nothing has changed", before: []*appsv1.StatefulSet{statefulSet("cpu")}, want: statefulSet("cpu"), wantLeft: corev1.ResourceList{"cpu": one}},
		{
			name: "dropped after the creation", before: []*appsv1.StatefulSet{statefulSet("cpu", "memory")}, want: statefulSet("memory"),
			wantDrift: `spec.template.spec.containers[name="db"].resources.limits.cpu`, wantMoves: true, wantLeft: corev1.ResourceList{"memory": one},
		},
		{
			name: "all dropped after the creation", before: []*appsv1.StatefulSet{statefulSet("cpu")}, want: statefulSet(),
			wantDrift: `spec.template.spec.containers[name="db"].resources.limits.cpu`, wantMoves: true,
		},
		{
			name: "dropped after an apply", before: []*appsv1.StatefulSet{statefulSet(), statefulSet("cpu")}, want: statefulSet(),
			wantDrift: `spec.template.spec.containers[name="db"].resources.limits.cpu`,
		},
		{
			name: "someone else's annotation and limit", before: []*appsv1.StatefulSet{statefulSet()},
			others: othersLimit().WithAnnotations(map[string]string{"a": "b"}), want: statefulSet(), wantLeft: corev1.ResourceList{"cpu": one},
		},
		{
			name: "a limit that someone else wants, too", before: []*appsv1.StatefulSet{statefulSet("cpu")},
			others: othersLimit(), want: statefulSet(),
			wantDrift: `spec.template.spec.containers[name="db"].resources.limits.cpu`, wantMoves: true, wantLeft: corev1.ResourceList{"cpu": one},
		},
		{
			name: "an annotation", before: []*appsv1.StatefulSet{with(statefulSet(), annotated(map[string]string{"a": "b", "c": "d"}))},
			want:      with(statefulSet(), annotated(map[string]string{"a": "b"})),
			wantDrift: `metadata.annotations.c`, wantMoves: true,
		},
		{
			name: "a label is not optional", before: []*appsv1.StatefulSet{with(statefulSet(), func(s *appsv1.StatefulSet) { s.Labels = map[string]string{"a": "b"} })}, want: statefulSet(),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kube := fake()
			w := NewWriter(manager, kube.AppsV1().StatefulSets)
			child := func(want metav1.Object) Child {
				live, err := kube.AppsV1().StatefulSets("parlor").Get(t.Context(), "db", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return Child{Resource: statefulSets, Want: want}
				}
				return owner.Compare(Child{Resource: statefulSets, Want: want}, live)
			}
			for _, want := range tt.before {
				if _, err := w.Write(t.Context(), child(want)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.others != nil {
				if _, err := kube.AppsV1().StatefulSets("parlor").Apply(t.Context(), tt.others, metav1.ApplyOptions{FieldManager: "others", Force: true}); err != nil {
					t.Fatal(err)
				}
			}
			got := child(tt.want)
			difftest.Equal(t, "drift", tt.wantDrift, fieldsOfDrift(got))
			if (got.ManagedFields != nil) != tt.wantMoves {
				t.Errorf("managed fields: %v", got.ManagedFields)
			}
			written, err := w.Write(t.Context(), got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.wantLeft, limitsOf(written.(*appsv1.StatefulSet))); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			difftest.Equal(t, "drift afterwards", "", fieldsOfDrift(child(tt.want)))
		})
	}
}

// othersLimit is what somebody applies who wants a limit.
func othersLimit() *appsv1ac.StatefulSetApplyConfiguration {
	return appsv1ac.StatefulSet("db", "parlor").WithSpec(appsv1ac.StatefulSetSpec().WithTemplate(corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().
		WithContainers(corev1ac.Container().WithName("db").WithResources(corev1ac.ResourceRequirements().
			WithLimits(corev1.ResourceList{"cpu": resource.MustParse("1")}))))))
}

func annotated(with map[string]string) func(*appsv1.StatefulSet) {
	return func(s *appsv1.StatefulSet) { s.Annotations = with }
}

// A list of objects may lose elements, too, whatever their key is.
func TestStaleElements(t *testing.T) {
	owner := Owner{Manager: manager, Optional: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "ports")}}
	kube := fake()
	w := NewWriter(manager, kube.CoreV1().Services)
	both := service()
	both.Spec.Ports = append(both.Spec.Ports, corev1.ServicePort{Name: "metrics", Port: 9090})
	created, err := w.Write(t.Context(), Child{Resource: services, Want: both})
	if err != nil {
		t.Fatal(err)
	}
	child := owner.Compare(Child{Resource: services, Want: service()}, created)
	if len(child.Drift) == 0 || child.ManagedFields == nil {
		t.Fatalf("drift %v, managed fields %v", child.Drift, child.ManagedFields)
	}
	written, err := w.Write(t.Context(), child)
	if err != nil {
		t.Fatal(err)
	}
	difftest.Equal(t, "ports", []corev1.ServicePort{{Name: "sql", Port: 5432}}, written.(*corev1.Service).Spec.Ports)

	// The key of a Service's port is its number, not its name.
	moved := service()
	moved.Spec.Ports[0].Port = 3306
	child = owner.Compare(Child{Resource: services, Want: moved}, written)
	if written, err = w.Write(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	difftest.Equal(t, "ports", []corev1.ServicePort{{Name: "sql", Port: 3306}}, written.(*corev1.Service).Spec.Ports)
	difftest.Equal(t, "drift afterwards", "", fieldsOfDrift(owner.Compare(Child{Resource: services, Want: moved}, written)))
}

// What managedFields say is not trusted to make sense.
func TestUnreadableManagedFields(t *testing.T) {
	live := statefulSet("cpu")
	for _, fields := range []*metav1.FieldsV1{nil, metav1.NewFieldsV1(""), metav1.NewFieldsV1(`["f:spec"]`), metav1.NewFieldsV1("melted"), metav1.NewFieldsV1(`{"f:spec":{"f:melted":{}}}`)} {
		for _, operation := range []metav1.ManagedFieldsOperationType{"Apply", "Update", ""} {
			live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: operation, FieldsV1: fields}}
			if got := owner.Compare(Child{Want: statefulSet()}, live); len(got.Drift) > 0 || got.ManagedFields != nil {
				t.Errorf("%v: got %+v", fields, got)
			}
		}
	}
}

// TestCSAUpgrade shows why k8s.io/client-go/util/csaupgrade does not do: with it, an
// apply resets what an admission plugin has set.
func TestCSAUpgrade(t *testing.T) {
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	fields, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), scheme.Scheme, defaulter{}, scheme.Scheme, kind, kind.GroupVersion(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	empty, live := &appsv1.StatefulSet{}, statefulSet("cpu")
	empty.SetGroupVersionKind(kind)
	// A POST fills in defaults, notes who owns them, and is then changed by a webhook.
	live.Spec.RevisionHistoryLimit = ptr.To[int32](10)
	created, err := fields.Update(empty, live, manager)
	if err != nil {
		t.Fatal(err)
	}
	live = created.(*appsv1.StatefulSet)
	live.Spec.RevisionHistoryLimit = ptr.To[int32](2)

	apply := func(entries []metav1.ManagedFieldsEntry) *appsv1.StatefulSet {
		live := live.DeepCopy()
		live.ManagedFields = entries
		want, err := contentOf(statefulSet())
		if err != nil {
			t.Fatal(err)
		}
		want["apiVersion"], want["kind"] = kind.ToAPIVersionAndKind()
		applied, err := fields.Apply(live, &unstructured.Unstructured{Object: want}, manager, true)
		if err != nil {
			t.Fatal(err)
		}
		s := applied.(*appsv1.StatefulSet)
		if len(s.Spec.Template.Spec.Containers[0].Resources.Limits) > 0 {
			t.Errorf("the limit is still there: %v", s.Spec.Template.Spec.Containers[0].Resources)
		}
		return s
	}
	upgraded := live.DeepCopy()
	if err := csaupgrade.UpgradeManagedFields(upgraded, sets.New(manager), manager); err != nil {
		t.Fatal(err)
	}
	if got := apply(upgraded.ManagedFields).Spec.RevisionHistoryLimit; got != nil {
		t.Errorf("csaupgrade leaves the webhook's value at %d: it would do", *got)
	}
	ours := owner.Compare(Child{Resource: statefulSets, Want: statefulSet()}, live)
	if got := apply(ours.ManagedFields).Spec.RevisionHistoryLimit; ptr.Deref(got, 0) != 2 {
		t.Errorf("the webhook's value is %v", got)
	}
}

// defaulter is for a field manager that is given objects with defaults already.
type defaulter struct{}

func (defaulter) Default(runtime.Object) {}

// The patch is made from the managed fields as they were, and must not be laid over
// what they have become.
func TestManagedFieldsPatch(t *testing.T) {
	got, err := Child{
		ResourceVersion: "42",
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Apply", FieldsV1: metav1.NewFieldsV1("{}")}},
	}.ManagedFieldsPatch()
	if err != nil {
		t.Fatal(err)
	}
	difftest.Equal(t, "patch", `[{"op":"replace","path":"/metadata/managedFields","value":[{"manager":"db-controller","operation":"Apply","fieldsV1":{}}]},`+
		`{"op":"replace","path":"/metadata/resourceVersion","value":"42"}]`, string(got))
}

func TestOthersIn(t *testing.T) {
	entry := func(manager, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: "Update", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const replicas = `{"f:spec":{"f:replicas":{}}}`
	live := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		entry("zeal", "", replicas), entry(manager, "", replicas), entry("hpa", "scale", replicas), entry("zeal", "scale", replicas),
		entry("kubelet", "status", replicas), entry("kubectl", "", `{"f:spec":{"f:paused":{}}}`),
	}}}
	difftest.Equal(t, "others", []string{`"hpa"`, `"zeal"`}, owner.OthersIn(live, []Difference{{Path: fieldpath.MakePathOrDie("spec", "replicas")}}))
	difftest.Equal(t, "others in nothing", nil, owner.OthersIn(live, nil))
}

// Someone else's object of the same name is never touched.
func TestWriter(t *testing.T) {
	kube := fake()
	w := NewWriter(manager, kube.CoreV1().Services)
	created, err := w.Write(t.Context(), Child{Resource: services, Want: service()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), Child{Resource: services, Want: service()}); !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), `creating Service "db"`) {
		t.Errorf("created twice: %v", err)
	}

	// As the API server answers if the name now belongs to another object.
	kube.PrependReactor("patch", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "db", field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "x", "field is immutable")})
	})
	_, err = w.Write(t.Context(), Child{Resource: services, Want: service(), UID: created.GetUID()})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `updating Service "db"`) {
		t.Errorf("applied to another UID: %v", err)
	}

	kube.ClearActions()
	if err := w.Delete(t.Context(), Delete(services, created)); err != nil {
		t.Fatal(err)
	}
	got := kube.Actions()[0].(clienttesting.DeleteActionImpl).DeleteOptions
	difftest.Equal(t, "delete options", metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: ptr.To[types.UID]("uid-of-db"), ResourceVersion: ptr.To("42")},
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	}, got)
	if err := w.Delete(t.Context(), Delete(services, created)); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `deleting Service "db"`) {
		t.Errorf("deleted twice: %v", err)
	}
}

// An apply carries the UID and the force that it needs, and changes nothing that the
// caller has.
func TestApplyRequest(t *testing.T) {
	kube := fake()
	w := NewWriter(manager, kube.CoreV1().Services)
	want := service()
	created, err := w.Write(t.Context(), Child{Resource: services, Want: want})
	if err != nil {
		t.Fatal(err)
	}
	kube.ClearActions()
	if _, err := w.Write(t.Context(), Child{Resource: services, Want: want, UID: created.GetUID()}); err != nil {
		t.Fatal(err)
	}
	action := kube.Actions()[0].(clienttesting.PatchActionImpl)
	if !strings.Contains(string(action.Patch), `"uid":"uid-of-db"`) || action.PatchType != types.ApplyPatchType {
		t.Errorf("%s: %s", action.PatchType, action.Patch)
	}
	difftest.Equal(t, "options", metav1.PatchOptions{FieldManager: manager, Force: ptr.To(true), FieldValidation: metav1.FieldValidationIgnore}, action.PatchOptions)
	if want.UID != "" || want.Kind != "" {
		t.Errorf("it has got the UID %q and the kind %q", want.UID, want.Kind)
	}
}
