package main

import (
	"testing"

	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/pkg/kittest/crd"
)

func TestSchemaAndTypesAgree(t *testing.T) {
	crd.Check(t, "artifacts/crd-database.yaml", scheme.Scheme)
}
