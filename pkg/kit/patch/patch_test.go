package patch_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

// The API server refuses this patch if the object is not at resource version 7 any more.
func ExampleMerge() {
	observed := &metav1.ObjectMeta{UID: "1234", ResourceVersion: "7"}
	body, err := patch.Merge(observed, map[string]*string{"flavor": ptr.To("mint"), "topping": nil}, nil)
	fmt.Println(string(body), err)
	// Output: {"metadata":{"annotations":{"flavor":"mint","topping":null},"resourceVersion":"7","uid":"1234"}} <nil>
}

// A patch without annotations must leave those that are there: null would remove them.
func TestMergeWithoutAnnotations(t *testing.T) {
	body, err := patch.Merge(&metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}, nil, map[string]any{"unschedulable": true})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"unschedulable":true}}`
	if string(body) != want {
		t.Errorf("got %s, want %s", body, want)
	}
}
