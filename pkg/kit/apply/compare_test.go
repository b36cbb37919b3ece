package apply

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/kit/difftest"
)

// What differs is the same as in what the objects are converted to, whatever has changed in
// them.
func TestCompareConverted(t *testing.T) {
	const changes = 2_000
	random := rand.New(rand.NewPCG(1, 2))
	ports := Owner{Manager: manager, Optional: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "ports")}}
	var drifted, stale, moved int
	for i := range changes {
		owner, live, want, newLive, newWant := owner, metav1.Object(statefulSet("cpu", "memory")), metav1.Object(statefulSet("cpu", "memory")), metav1.Object(&appsv1.StatefulSet{}), metav1.Object(&appsv1.StatefulSet{})
		if i%2 == 0 {
			owner, live, want, newLive, newWant = ports, service(), service(), &corev1.Service{}, &corev1.Service{}
		}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", FieldsV1: metav1.NewFieldsV1(
			`{"f:spec":{"f:ports":{"k:{\"port\":5432}":{".":{},"f:port":{},"f:name":{},"f:appProtocol":{}}},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"db\"}":{"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}}}}}}}}}`)}})
		changeIn(t, random, live, newLive)
		changeIn(t, random, want, newWant)

		converted := Child{Want: newWant, Drift: driftOfConverted(t, newLive, newWant)}
		inBoth := len(converted.Drift)
		owner.addStale(&converted, newLive)
		got := owner.Compare(Child{Want: newWant}, newLive)
		for i := range got.Drift {
			got.Drift[i].Field = ""
		}
		if diff := cmp.Diff(converted.Drift, got.Drift, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s\ncompared with\n%s\nconverted (-), and in place (+):\n%s", asJSON(t, newLive), asJSON(t, newWant), diff)
		}
		difftest.Equal(t, "managed fields", converted.ManagedFields, got.ManagedFields)
		if inBoth > 0 {
			drifted++
		}
		if len(got.Drift) > inBoth {
			stale++
		}
		if got.ManagedFields != nil {
			moved++
		}
	}
	t.Logf("of %d pairs, %d had drifted, and %d had stale fields, %d of them to be moved", changes, drifted, stale, moved)
	if drifted < changes/4 || drifted > changes*3/4 || moved < changes/100 {
		t.Error("that is not enough of each")
	}
}

// driftOfConverted is a model of compare, which compares what objects are converted to.
func driftOfConverted(t *testing.T, live, want metav1.Object) []Difference {
	t.Helper()
	is, err := runtime.DefaultUnstructuredConverter.ToUnstructured(withoutManagedFields(live))
	if err != nil {
		t.Fatal(err)
	}
	wants, err := contentOf(want)
	if err != nil {
		t.Fatal(err)
	}
	found := compareConverted(is, wants)
	slices.SortStableFunc(found, func(a, b Difference) int { return a.Path.Compare(b.Path) })
	return found
}

func compareConverted(live, want any) (found []Difference) {
	switch want := want.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return []Difference{{Want: want}}
		}
		for name := range want {
			found = append(found, below(fieldpath.PathElement{FieldName: &name}, compareConverted(live[name], want[name]))...)
		}
		return found
	case []any:
		live, ok := live.([]any)
		if _, isOfObjects := want[0].(map[string]any); !ok || !isOfObjects {
			break
		}
		for i, element := range want {
			element, at := element.(map[string]any), fieldpath.PathElement{Index: &i}
			for _, name := range []string{"name", "uid"} {
				if key, ok := element[name].(string); ok {
					at = fieldpath.PathElement{Key: fieldpath.KeyByFields(name, key)}
				}
			}
			found = append(found, below(at, compareConvertedElement(live, element, at))...)
		}
		return found
	}
	if !reflect.DeepEqual(live, want) {
		found = []Difference{{Live: live, Want: want}}
	}
	return found
}

// compareConvertedElement compares an element of a list with the first of the same key in
// live, unless it is in live.
func compareConvertedElement(live []any, want map[string]any, at fieldpath.PathElement) []Difference {
	found := []Difference{{Want: want}}
	for _, element := range slices.Backward(live) {
		different := compareConverted(element, want)
		if len(different) == 0 {
			return nil
		}
		if at.Key != nil && fitsKey(element, *at.Key) && element.(map[string]any)[(*at.Key)[0].Name] != nil {
			found = different
		}
	}
	return found
}

// changeIn makes a copy of an object in which up to two values have changed, if they still
// have a type that fits.
func changeIn(t *testing.T, random *rand.Rand, from, into any) {
	t.Helper()
	var object map[string]any
	raw := asJSON(t, from)
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	for range random.IntN(3) {
		changeOne(random, object)
	}
	if json.Unmarshal(asJSON(t, object), into) == nil {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

// changeOne changes, drops or adds one value below object.
func changeOne(random *rand.Rand, object map[string]any) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(object)), func(name string) bool { return name == "managedFields" })
	if len(names) == 0 {
		object["added"] = "x"
		return
	}
	name := names[random.IntN(len(names))]
	switch value := object[name].(type) {
	case map[string]any:
		if random.IntN(8) > 0 {
			changeOne(random, value)
			return
		}
		object[name] = map[string]any{}
	case []any:
		if element, ok := value[random.IntN(len(value))].(map[string]any); ok && random.IntN(8) > 0 {
			changeOne(random, element)
			return
		}
		object[name] = append(value, value[0])
	case string:
		object[name] = []any{"x", "", value + "0"}[random.IntN(3)]
	case float64:
		object[name] = []any{0, value + 1}[random.IntN(2)]
	case bool:
		object[name] = !value
	}
	switch random.IntN(6) {
	case 0:
		delete(object, name)
	case 1:
		object[[]string{"added", "replicas", "port", "paused", "hostNetwork", "image", "appProtocol", "limits"}[random.IntN(8)]] = []any{0, "x", true, 3, map[string]any{"cpu": "2"}}[random.IntN(5)]
	}
}

func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The values that are hard to compare in place.
func TestCompareZeros(t *testing.T) {
	for name, test := range map[string]struct {
		live *appsv1.Deployment
		want *appsv1.Deployment
		ok   bool
	}{
		"nothing is there":              {&appsv1.Deployment{}, deployment(), false},
		"a name":                        {deployment(), deployment(), true},
		"zero, and zero is there":       {deployment(zero), deployment(zero), true},
		"zero, and nothing is there":    {deployment(), deployment(zero), false},
		"zero is there":                 {deployment(zero), deployment(), true},
		"false, which JSON leaves out":  {deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), deployment(), true},
		"true":                          {deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), true},
		"true, and nothing is there":    {deployment(), deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), false},
		"an empty list":                 {deployment(), deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = []corev1.Container{} }), true},
		"an empty word in a list":       {deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{""} }), deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{""} }), true},
		"another word in a list":        {deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"a"} }), deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"b"} }), false},
		"more words in a list":          {deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"a", "b"} }), deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"a"} }), false},
		"an empty annotation":           {deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": ""} }), deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": ""} }), true},
		"an annotation that is missing": {deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"b": ""} }), deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": ""} }), false},
	} {
		var o Owner
		drift := o.Compare(Child{Want: test.want}, test.live).Drift
		if isSame := len(drift) == 0; isSame != test.ok {
			t.Errorf("%s: %+v", name, drift)
		}
	}
}

func deployment(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	return with(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "parlor"}}, edits...)
}

func zero(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }
