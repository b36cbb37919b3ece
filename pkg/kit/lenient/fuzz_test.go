package lenient_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// Whatever the usual decoder accepts is decoded just so; of what it refuses, nothing
// is passed off as decoded.
func FuzzDecode(f *testing.F) {
	for _, flaw := range flaws {
		f.Add([]byte(deploymentJSON("sundae", flaw.spec, flaw.status)))
		f.Add([]byte(listJSON(deploymentJSON("sundae", flaw.spec, flaw.status), deploymentJSON("good", goodSpec, `{}`))))
	}
	for _, seed := range []string{
		"", "null", "[]", "{", `{"kind":"Status","apiVersion":"v1","code":"x"}`, listJSON("null"), listJSON("7"),
		deploymentJSON("sundae", "null", "null"), deploymentJSON("sundae", goodSpec, `{}`) + "}",
		`{"apiVersion":"apps/v1","kind":"DeploymentList","items":{}}`,
		`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":"x"},"metadata":{"annotations":{"a":5}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, wantKind, wantErr := usually.Decode(data, nil, nil)
		got, kind, err := leniently.Decode(data, nil, nil)
		if !reflect.DeepEqual(kind, wantKind) {
			t.Errorf("the kind is %v, want %v", kind, wantKind)
		}
		switch {
		case wantErr == nil:
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("error %v (-usual +lenient):\n%s", err, diff)
			}
		case err != nil:
			if err.Error() != wantErr.Error() {
				t.Errorf("the error is %v, want %v", err, wantErr)
			}
		default:
			if !isFlawed(got) {
				t.Errorf("the usual decoder says %v, and this is %+v", wantErr, got)
			}
		}
	})
}

// A list has all of its items, each of them as if it had come alone, in whichever
// way: what is wrong with one makes no difference to another.
func FuzzList(f *testing.F) {
	for i, flaw := range flaws {
		f.Add(flaw.spec, flaw.status, uint64(1)<<i|1, uint8(i+2))
	}
	f.Add(goodSpec, `{}`, uint64(0b101), uint8(3))
	f.Add(`{"replicas":`, `{}`, uint64(1), uint8(2))
	f.Add("{\"\xff\":1}", `{"conditions":[{"type":7}]}`, uint64(2), uint8(5))
	f.Fuzz(func(t *testing.T, spec, status string, which uint64, n uint8) {
		if !json.Valid([]byte(spec)) || !json.Valid([]byte(status)) {
			t.Skip("an API server sends JSON")
		}
		items := make([]string, n%64)
		for i := range items {
			items[i] = deploymentJSON(fmt.Sprintf("sundae-%d", i), goodSpec, `{"replicas":4}`)
			if which>>i&1 == 1 {
				items[i] = deploymentJSON(fmt.Sprintf("sundae-%d", i), spec, status)
			}
		}
		list := &appsv1.DeploymentList{}
		if _, _, err := leniently.Decode([]byte(listJSON(items...)), nil, list); err != nil {
			t.Fatal(err)
		}
		if want := (metav1.ListMeta{ResourceVersion: "9", Continue: "more", RemainingItemCount: new(int64(5))}); !reflect.DeepEqual(list.ListMeta, want) {
			t.Errorf("the list has metadata %+v", list.ListMeta)
		}
		if len(list.Items) != len(items) {
			t.Fatalf("%d items of %d", len(list.Items), len(items))
		}
		for i, item := range items {
			alone, _, err := leniently.Decode([]byte(item), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _, strictly := usually.Decode([]byte(item), nil, nil)
			got := &list.Items[i]
			got.TypeMeta = metav1.TypeMeta{} // which a list keeps
			if diff := cmp.Diff(alone.(*appsv1.Deployment), got); diff != "" {
				t.Errorf("item %d (-alone +in a list):\n%s", i, diff)
			}
			if isFlawed(got) != (strictly != nil) {
				t.Errorf("item %d has problems %q, and the usual decoder says %v", i, problems(got), strictly)
			}
			if lenient.DecodeError(got, "spec") != "" && !reflect.DeepEqual(got.Spec, appsv1.DeploymentSpec{}) {
				t.Errorf("half of a spec: %+v", got.Spec)
			}
		}
	})
}

// isFlawed reports whether an object, or an item of a list, has a problem.
func isFlawed(obj runtime.Object) bool {
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		return len(problems(obj)) > 0
	case *appsv1.DeploymentList:
		return slices.ContainsFunc(obj.Items, func(d appsv1.Deployment) bool { return len(problems(&d)) > 0 })
	default:
		return false
	}
}
