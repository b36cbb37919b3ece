package apply

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Objects that are compared in place are as wanted only if nothing is found in what they
// are converted to, whatever has changed in them.
func TestIsAsWanted(t *testing.T) {
	const changes = 2_000
	random := rand.New(rand.NewPCG(1, 2))
	ports := Owner{Manager: manager, Optional: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "ports")}}
	asWanted, drifted := 0, 0
	for i := range changes {
		owner, live, want, newLive, newWant := owner, metav1.Object(statefulSet("cpu", "memory")), metav1.Object(statefulSet("cpu", "memory")), metav1.Object(&appsv1.StatefulSet{}), metav1.Object(&appsv1.StatefulSet{})
		if i%2 == 0 {
			owner, live, want, newLive, newWant = ports, service(), service(), &corev1.Service{}, &corev1.Service{}
		}
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", FieldsV1: metav1.NewFieldsV1(
			`{"f:spec":{"f:ports":{"k:{\"port\":5432}":{".":{},"f:port":{},"f:name":{},"f:appProtocol":{}}},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"db\"}":{"f:resources":{"f:limits":{"f:cpu":{},"f:memory":{}}}}}}}}}`)}})
		changeIn(t, random, live, newLive)
		changeIn(t, random, want, newWant)
		slow := Child{Want: newWant}
		owner.findDrift(&slow, newLive)
		isFound := len(slow.Drift) > 0 || slow.ManagedFields != nil
		isAsWanted := owner.isAsWanted(newLive, newWant)
		if isAsWanted && isFound {
			t.Fatalf("what is found in\n%s\ncompared with\n%s\nis %+v", asJSON(t, newLive), asJSON(t, newWant), slow.Drift)
		}
		if isAsWanted {
			asWanted++
		}
		if isFound {
			drifted++
		}
	}
	if inDoubt := changes - asWanted - drifted; asWanted < changes/10 || inDoubt > changes/5 {
		t.Errorf("of %d pairs, %d were found to be as wanted and %d not; the others were in doubt", changes, asWanted, drifted)
	} else {
		t.Logf("of %d pairs, %d were as wanted, %d were not, and %d were in doubt", changes, asWanted, drifted, inDoubt)
	}
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
func TestCovers(t *testing.T) {
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
		"an empty list":                 {deployment(), deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = []corev1.Container{} }), false},
		"an empty word in a list":       {deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{""} }), deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{""} }), true},
		"another word in a list":        {deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"a"} }), deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"b"} }), false},
		"more words in a list":          {deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"a", "b"} }), deployment(func(d *appsv1.Deployment) { d.Finalizers = []string{"a"} }), false},
		"an empty annotation":           {deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": ""} }), deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": ""} }), true},
		"an annotation that is missing": {deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"b": ""} }), deployment(func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": ""} }), false},
	} {
		var o Owner
		if got := o.isAsWanted(test.live, test.want); got != test.ok {
			t.Errorf("%s: %t", name, got)
		}
		if drift := o.Compare(Child{Want: test.want}, test.live).Drift; test.ok && len(drift) > 0 {
			t.Errorf("%s: %+v", name, drift)
		}
	}
}

func deployment(edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	return with(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "parlor"}}, edits...)
}

func zero(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }
