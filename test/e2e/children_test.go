package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/kit/apply"
)

// A controller whose children are a StatefulSet and a Service writes them with
// pkg/kit/apply as the Icecream controller writes its Deployment. What this API server
// fills in is no drift, what the controller no longer wants goes, and nobody else's
// object is touched.
func TestChildrenOfOtherKinds(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	ctx, kube := t.Context(), n.Lab.Kube
	owner := apply.Owner{Manager: "db-controller", Optional: []fieldpath.Path{
		fieldpath.MakePathOrDie("spec", "ports"),
		fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", "db"), "resources"),
	}}
	service := apply.Child{Resource: corev1.SchemeGroupVersion.WithResource("services")}
	meta, labels := metav1.ObjectMeta{Name: "db", Namespace: n.Name}, map[string]string{"app": "db"}
	serviceOf := func(ports ...int32) *corev1.Service {
		s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels}}
		for _, port := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", port), Port: port, TargetPort: intstr.FromInt32(port)})
		}
		return s
	}
	set := apply.Child{Resource: appsv1.SchemeGroupVersion.WithResource("statefulsets")}
	setOf := func(limits ...corev1.ResourceName) *appsv1.StatefulSet {
		list := corev1.ResourceList{}
		for _, name := range limits {
			list[name] = resource.MustParse("1")
		}
		return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			Replicas:    ptr.To[int32](2),
			ServiceName: "db",
			Selector:    &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "db", Image: "registry.example/db:1", Ports: []corev1.ContainerPort{{ContainerPort: 5432}},
				Resources: corev1.ResourceRequirements{Limits: list},
			}}}},
		}}
	}
	services, sets := apply.NewWriter(owner.Manager, kube.CoreV1().Services), apply.NewWriter(owner.Manager, kube.AppsV1().StatefulSets)
	// latest returns an object as it is now: the StatefulSet's controller writes its status.
	latest := func(object metav1.Object) metav1.Object {
		t.Helper()
		if _, ok := object.(*appsv1.StatefulSet); !ok {
			return object
		}
		live, err := kube.AppsV1().StatefulSets(n.Name).Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	write := func(w apply.Writer, child apply.Child, live metav1.Object, drift ...string) (written metav1.Object) {
		t.Helper()
		n.Eventually(t, "the write meets with no conflict", func(context.Context) (err error) {
			if live != nil {
				child = owner.Compare(child, latest(live))
				var fields []string
				for _, f := range child.Drift {
					fields = append(fields, f.Field)
				}
				if !slices.Equal(fields, drift) {
					t.Fatalf("drift in %q, want %q", fields, drift)
				}
			}
			if written, err = w.Write(ctx, child); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			return err
		})
		if again := owner.Compare(child, written); len(again.Drift) > 0 || again.ManagedFields != nil {
			t.Fatalf("drift after the write: %v", again.Drift)
		}
		return written
	}

	service.Want, set.Want = serviceOf(5432, 9090), setOf("cpu", "memory")
	svc, stateful := write(services, service, nil), write(sets, set, nil)
	if _, err := services.Write(ctx, service); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}

	// What belongs to an Update here is more than was asked for: the defaults, too.
	if fields := string(stateful.GetManagedFields()[0].FieldsV1.GetRawBytes()); !strings.Contains(fields, "f:revisionHistoryLimit") {
		t.Errorf("the fields of the POST are %s", fields)
	}

	// A field and an element of a list that came with the POST go, and stay away.
	service.Want, set.Want = serviceOf(5432), setOf("memory")
	metrics := `spec.ports[port=9090,protocol="TCP"]`
	svc = write(services, service, svc, metrics, metrics+".name", metrics+".port", metrics+".protocol", metrics+".targetPort")
	if ports := svc.(*corev1.Service).Spec.Ports; len(ports) != 1 || ports[0].Port != 5432 {
		t.Errorf("ports %v", ports)
	}
	stateful = write(sets, set, stateful, `spec.template.spec.containers[name="db"].resources.limits.cpu`)

	// What others change is repaired, what they add is left alone.
	var edited *appsv1.StatefulSet
	n.Eventually(t, "somebody edits it", func(ctx context.Context) (err error) {
		edited = latest(stateful).(*appsv1.StatefulSet)
		edited.Spec.Template.Spec.Containers[0].Image = "registry.example/mud:1"
		edited.Spec.Template.Annotations = map[string]string{"team": "parlor"}
		edited, err = kube.AppsV1().StatefulSets(n.Name).Update(ctx, edited, metav1.UpdateOptions{FieldManager: "somebody"})
		return err
	})
	repaired := write(sets, set, edited, `spec.template.spec.containers[name="db"].image`).(*appsv1.StatefulSet)
	if repaired.Spec.Template.Annotations["team"] != "parlor" {
		t.Errorf("annotations %v", repaired.Spec.Template.Annotations)
	}

	// Neither a write nor a deletion is for another object of the name, or for another
	// version than the one that was seen.
	stranger := owner.Compare(set, repaired)
	stranger.UID = "uid-of-another"
	if _, err := sets.Write(ctx, stranger); !apierrors.IsConflict(err) {
		t.Errorf("applied to another UID: %v", err)
	}
	if err := sets.Delete(ctx, apply.Delete(set.Resource, stateful)); !apierrors.IsConflict(err) {
		t.Errorf("deleted as it was before: %v", err)
	}
	n.Eventually(t, "the StatefulSet can be deleted as it is", func(ctx context.Context) error {
		live, err := kube.AppsV1().StatefulSets(n.Name).Get(ctx, "db", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return sets.Delete(ctx, apply.Delete(set.Resource, live))
	})
	if err := services.Delete(ctx, apply.Delete(service.Resource, svc)); err != nil {
		t.Error(err)
	}
}

// A field that this API server does not know is refused in an apply, also without
// validation, which pkg/kit/apply therefore does not ask for.
func TestUnknownFieldInApply(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	patch := `{"apiVersion": "v1", "kind": "ConfigMap", "data": {"flavor": "vanilla"}, "topping": "sprinkles"}`
	_, err := n.Lab.Kube.CoreV1().ConfigMaps(n.Name).Patch(t.Context(), "cone", types.ApplyPatchType, []byte(patch), metav1.PatchOptions{
		FieldManager:    "test",
		FieldValidation: metav1.FieldValidationIgnore,
	})
	if err == nil || !strings.Contains(err.Error(), ".topping: field not declared in schema") {
		t.Errorf("the answer is %v", err)
	}
}
