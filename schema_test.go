package main

import (
	"path/filepath"
	"testing"

	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kittest/crd"
)

// Whatever the schemas of our kinds admit, the Go types decode and encode in a moment.
func TestSchemasAndTypesAgree(t *testing.T) {
	files, err := filepath.Glob("artifacts/examples/crd-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no CustomResourceDefinitions: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			crd.Check(t, file, scheme.Scheme)
		})
	}
}
