package patch_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

func ExampleMerge() {
	node := &metav1.ObjectMeta{Name: "node-1", UID: "u", ResourceVersion: "7"}
	body, err := patch.Merge(node, map[string]*string{"example.com/set": ptr.To("x"), "example.com/removed": nil}, nil)
	fmt.Println(string(body), err)
	// Output: {"metadata":{"annotations":{"example.com/removed":null,"example.com/set":"x"},"resourceVersion":"7","uid":"u"}} <nil>
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
