// Package v1alpha1 is the first version of the API group controller.nicoleh.io.
//
// The markers of the types contain every default and every validation rule that does not
// depend on other objects in the cluster. They become part of the
// CustomResourceDefinition, so the API server rejects an invalid Icecream before the
// controller sees it.
//
// After a change to this package, run hack/update-codegen.sh and
// hack/update-manifests.sh.
//
// +k8s:deepcopy-gen=package
// +k8s:register-gen=package
// +groupName=controller.nicoleh.io
// +groupGoName=Samplecontroller
package v1alpha1
