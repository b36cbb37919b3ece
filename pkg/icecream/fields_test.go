package icecream

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

// Another value of any field of the spec, one that it has today or one that is added later, reaches the
// Deployment by one patch from what the caches keep. If Pods depend on it, they have another hash, or a
// status would say Ready while the old ones run. Then there is nothing left to do.
func TestEveryFieldOfTheSpec(t *testing.T) {
	before := newIcecream()
	others := 0
	eachField(t, reflect.ValueOf(&before.Spec).Elem(), "spec", func(name string, set func()) {
		old := before.DeepCopy()
		set()
		after := before.DeepCopy()
		old.DeepCopyInto(before)
		if DeploymentName(after) != DeploymentName(before) {
			return // The schema refuses that.
		}
		others++
		live, want := NewDeployment(old), NewDeployment(after)
		live.UID = "uid-of-deployment"
		o := Observed{Icecream: after, Live: stripped(live)}
		if is, wants := withoutHash(live), withoutHash(want); !equality.Semantic.DeepEqual(is, wants) {
			if specHash(old.Spec) == specHash(after.Spec) {
				t.Errorf("%s changes the Pod template and not its hash: set it in setTemplate", name)
			}
			if isMadeFrom(&live.Spec.Template, after.Spec) || o.hasShape() {
				t.Errorf("with another %s, the old template counts as made from the new spec: set it in setTemplate", name)
			}
		}
		for i, ask := range o.Asks() {
			if drift := o.drift(); i == 0 && len(drift) == 0 && !equality.Semantic.DeepEqual(live.Spec, want.Spec) {
				t.Errorf("another %s is not seen in what the cache keeps: keep in stripped (cache.go) what it sets", name)
			} else if ask.Left == everything {
				t.Errorf("%s: there is a Deployment", name)
			}
		}
		stored := patched(t, o, live)
		if diff := cmp.Diff(want.Spec, stored.Spec, equateEmpty); diff != "" {
			t.Errorf("another %s reaches the Deployment otherwise than a new one (-new +patched):\n%s", name, diff)
		}
		for _, d := range (Observed{Icecream: after, Live: stripped(stored)}).drift() {
			t.Errorf("%s is written again and again, because %s: keep that in stripped (cache.go)", name, d)
		}
	})
	if others < 4 {
		t.Errorf("only %d fields were changed", others)
	}
}

// patched returns the Deployment as the API server stores it after the patch of all that is asked for.
func patched(t *testing.T, o Observed, live *appsv1.Deployment) *appsv1.Deployment {
	t.Helper()
	var due []ledger.Ask
	due = append(due, o.Asks()...)
	body, err := o.Patch(due)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(live)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = strategicpatch.StrategicMergePatch(raw, body, live); err != nil {
		t.Fatal(err)
	}
	stored := &appsv1.Deployment{}
	if err := json.Unmarshal(raw, stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

func withoutHash(d *appsv1.Deployment) *corev1.PodTemplateSpec {
	template := d.Spec.Template.DeepCopy()
	delete(template.Annotations, AnnotationSpecHash)
	return template
}

// eachField calls do for each field at and below a value, with what sets the field to another value.
func eachField(t *testing.T, value reflect.Value, name string, do func(name string, set func())) {
	t.Helper()
	if other, ok := anotherOf(value.Interface()); ok {
		do(name, func() { value.Set(reflect.ValueOf(other)) })
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for i := range value.NumField() {
			eachField(t, value.Field(i), fmt.Sprintf("%s.%s", name, value.Type().Field(i).Name), do)
		}
	case reflect.Pointer: // A pointer that is set to another value, and each field of that.
		below := reflect.New(value.Type().Elem())
		eachField(t, below.Elem(), name, func(name string, set func()) {
			do(name, func() { set(); value.Set(below) })
		})
	case reflect.Slice:
		below := reflect.MakeSlice(value.Type(), 1, 1)
		eachField(t, below.Index(0), name+"[]", func(name string, set func()) {
			do(name, func() { set(); value.Set(below) })
		})
	case reflect.Map:
		below := reflect.New(value.Type().Elem())
		eachField(t, below.Elem(), name+"{}", func(name string, set func()) {
			do(name, func() {
				set()
				of := reflect.MakeMap(value.Type())
				of.SetMapIndex(reflect.ValueOf("example.com/key").Convert(value.Type().Key()), below.Elem())
				value.Set(of)
			})
		})
	case reflect.String:
		do(name, func() { value.SetString("another") })
	case reflect.Bool:
		do(name, func() { value.SetBool(!value.Bool()) })
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		do(name, func() { value.SetInt(value.Int() + 7) })
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		do(name, func() { value.SetUint(value.Uint() + 7) })
	case reflect.Float32, reflect.Float64:
		do(name, func() { value.SetFloat(value.Float() + 0.5) })
	default:
		t.Fatalf("%s is a %s: teach anotherOf another value of it", name, value.Type())
	}
}

// anotherOf returns another value of a type whose fields mean nothing one by one.
func anotherOf(value any) (any, bool) {
	switch value.(type) {
	case resource.Quantity:
		return resource.MustParse("7"), true
	case metav1.Duration:
		return metav1.Duration{Duration: 7 * time.Second}, true
	case metav1.Time:
		return metav1.NewTime(time.Unix(7, 0)), true
	case intstr.IntOrString:
		return intstr.FromInt32(7), true
	}
	return nil, false
}

// A reference to an owner of another version is rewritten, by a patch of nothing else: the garbage
// collector asks for an owner in exactly the version of the reference, and once that is not served, it
// deletes nothing.
func TestOwnerOfAnotherVersion(t *testing.T) {
	ice := newIcecream()
	live := NewDeployment(ice)
	live.UID = "uid-of-deployment"
	now := live.OwnerReferences[0].APIVersion
	live.OwnerReferences[0].APIVersion = "controller.nicoleh.io/v1alpha0"
	o := Observed{Icecream: ice, Live: stripped(live)}
	if plan := Decide(o); plan.Adopts || len(plan.Asks) == 0 || plan.Asks[0].Left == "" {
		t.Errorf("the plan is %+v", plan)
	}
	body, err := o.Patch(o.Asks())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"$setElementOrder/ownerReferences":[{"uid":"uid-of-sundae"}],"ownerReferences":[{"apiVersion":"%s","uid":"uid-of-sundae"}],"uid":"uid-of-deployment"}}`
	if string(body) != fmt.Sprintf(want, now) {
		t.Errorf("the patch is %s", body)
	}
	if diff := cmp.Diff(NewDeployment(ice).OwnerReferences, patched(t, o, live).OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}
