package patch_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/patch"
)

// The API server refuses this patch if the object is not at resource version 7 any more.
func Example() {
	observed := &metav1.ObjectMeta{UID: "1234", ResourceVersion: "7"}
	body, err := patch.Merge(observed, map[string]*string{"flavor": ptr.To("mint"), "topping": nil}, nil)
	fmt.Println(string(body), err)
	// Output: {"metadata":{"annotations":{"flavor":"mint","topping":null},"resourceVersion":"7","uid":"1234"}} <nil>
}
