package crd_test

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nicoleh.io/k8s-controller/pkg/kittest/crd"
)

// Timer is a kind without a DeepCopy of its own.
type Timer struct {
	metav1.TypeMeta `json:",inline"`
	Interval        metav1.Duration `json:"interval,omitempty"`
}

// DeepCopyObject is not called.
func (t *Timer) DeepCopyObject() runtime.Object { return t }

// A schema without a pattern admits any text as a duration, and one such object stops everyone who watches the kind.
// A test calls Check, which fails with the same errors.
func Example() {
	const definition = `
spec:
  group: example.com
  names: {kind: Timer}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          interval: {type: string}
`
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(schema.GroupVersion{Group: "example.com", Version: "v1"}, &Timer{})
	for _, err := range crd.Disagreements([]byte(definition), scheme, nil) {
		what, cure, _ := strings.Cut(err.Error(), "; ")
		fmt.Println(what)
		fmt.Println(cure)
	}
	// Output:
	// v1: interval: the schema admits "tomorrow": it cannot be decoded: time: invalid duration "tomorrow"
	// give the field the marker +kubebuilder:validation:Type=string and +kubebuilder:validation:Pattern=`^([0-9]{1,5}(ms|s|m|h)){1,4}$`, and generate again
}
