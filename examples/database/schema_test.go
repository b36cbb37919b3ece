package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/examples/database/apis/database/v1alpha1"
	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kittest/crd"
)

func TestSchemaAndTypesAgree(t *testing.T) {
	crd.Check(t, "artifacts/crd-database.yaml", scheme.Scheme, func(obj runtime.Object) {
		if db, ok := obj.(*v1alpha1.Database); ok { // not one of another version
			newStatefulSet(db)
		}
	})
}
