package icecream_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	clientsetscheme "nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
)

// What a cache keeps of an Icecream includes why its spec could not be decoded.
func TestStripKeepsTheDecodingProblem(t *testing.T) {
	info, ok := runtime.SerializerInfoForMediaType(lenient.Codecs(clientsetscheme.Codecs.WithoutConversion()).SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("there is no decoder for JSON")
	}
	obj, err := runtime.Decode(info.Serializer, []byte(`{
		"apiVersion": "controller.nicoleh.io/v1alpha1", "kind": "Icecream",
		"metadata": {"name": "sundae", "namespace": "parlor", "managedFields": [{"manager": "kubectl"}]},
		"spec": {"image": 5}, "status": {"replicas": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	ice := obj.(*v1alpha1.Icecream)
	icecream.CompactIcecream(ice)
	const want = "spec.image: json: cannot unmarshal number into Go struct field IcecreamSpec.spec.image of type string"
	if got := lenient.Problem(ice, "spec"); got != want {
		t.Errorf("the problem is %q, want %q", got, want)
	}
	if ice.Status.Replicas != 3 || ice.Spec.Image != "" || ice.ManagedFields != nil {
		t.Errorf("the rest is %+v", ice)
	}
}
