// Package v1alpha1 is the first version of the API group controller.nicoleh.io.
//
// Everything that can be said about an Icecream without asking the cluster is
// said in the markers of its types: defaults, patterns and CEL rules end up in
// the CustomResourceDefinition, so that the API server refuses a bad object
// before any controller sees it.
//
// After a change here, run hack/update-codegen.sh.
//
// +k8s:deepcopy-gen=package
// +k8s:register-gen=package
// +groupName=controller.nicoleh.io
package v1alpha1
