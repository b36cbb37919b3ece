package main

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kittest/crd"
)

// Whatever the schemas of our kinds admit, the Go types decode, and the controller hashes and encodes
// it in a moment.
func TestSchemasAndTypesAgree(t *testing.T) {
	files, err := filepath.Glob("artifacts/examples/crd-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no CustomResourceDefinitions: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			crd.Check(t, file, scheme.Scheme, func(obj runtime.Object) {
				if ice, ok := obj.(*v1alpha1.Icecream); ok {
					_, _ = icecream.NewDeployment(ice) // can say that a template is none
				}
			})
		})
	}
}
