package lenient_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// A Cone was stored before its schema required the image to be a string.
func Example() {
	decoder := jsonDecoder(lenient.Codecs(coneCodecs.WithoutConversion()))
	obj, err := runtime.Decode(decoder, []byte(`{
		"apiVersion": "parlor.example/v1alpha1", "kind": "Cone",
		"metadata": {"name": "sundae"},
		"spec": {"image": 5},
		"status": {"replicas": 3}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	cone := obj.(*Cone)
	fmt.Println(cone.Name, "runs", cone.Status.Replicas)
	fmt.Println(lenient.Problem(cone, "spec"))
	// Output:
	// sundae runs 3
	// spec.image: json: cannot unmarshal number into Go struct field ConeSpec.spec.image of type string
}
