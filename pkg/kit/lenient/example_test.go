package lenient_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// The usual decoder returns an error for this object, and for a list that contains it.
func Example() {
	info, _ := runtime.SerializerInfoForMediaType(lenient.Codecs(scheme.Codecs).SupportedMediaTypes(), runtime.ContentTypeJSON)
	obj, _, err := info.Serializer.Decode([]byte(`{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": {"name": "web"},
		"spec": {"replicas": "three"}
	}`), nil, nil)
	d := obj.(*appsv1.Deployment)
	fmt.Println(d.Name, err)
	fmt.Println(lenient.DecodeError(d, "spec") != "", lenient.DecodeError(d, "status") != "")
	// Output:
	// web <nil>
	// true false
}
