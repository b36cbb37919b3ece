package icecream

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// Another value of any field of the spec, one that it has today or one that is added later, is another wish
// and reaches the Deployment by one apply. Then there is nothing left to do.
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
		if decide := func(ice *v1alpha1.Icecream) Plan { return Decide(Observed{Now: now, Icecream: ice}) }; decide(old).Wish == decide(after).Wish {
			t.Errorf("another %s is the same wish: set it in NewDeployment", name)
		}
		store := applied(t, applied(t, apiserver.Store{}, old), after)
		if diff := cmp.Diff(stored(t, after).Spec, onlyOne(t, store).Spec); diff != "" {
			t.Errorf("another %s reaches the Deployment otherwise than a new one (-new +updated):\n%s", name, diff)
		}
		if again := applied(t, store, after); again.Version != store.Version {
			t.Errorf("%s is written again and again", name)
		}
	})
	if others < 5 {
		t.Errorf("only %d fields were changed", others)
	}
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
	case runtime.RawExtension:
		return runtime.RawExtension{Raw: []byte(`{"metadata": {"annotations": {"note": "melted"}}}`)}, true
	case metav1.Duration:
		return metav1.Duration{Duration: 7 * time.Second}, true
	case metav1.Time:
		return metav1.NewTime(time.Unix(7, 0)), true
	case intstr.IntOrString:
		return intstr.FromInt32(7), true
	}
	return nil, false
}
