// Package v1alpha1 is a version of the API group controller.nicoleh.io.
//
// The markers of the types contain every default, and the validation rules that OpenAPI can
// express. They become part of the CustomResourceDefinition, so the API server rejects what
// breaks them before the controller sees it. Everything else about a container is left to
// the API server, which validates the Deployment.
//
// There is one rule in CEL, about the deploymentName. The API server evaluates a rule that
// uses oldSelf on writes of the status as well, and refuses the status of a stored Icecream
// in which a field that the rule reads has a type that it does not expect. Patterns and
// bounds it checks only where a value changes.
//
// After a change to this package, run hack/update-codegen.sh and
// hack/update-manifests.sh.
//
// +k8s:deepcopy-gen=package
// +k8s:register-gen=package
// +groupName=controller.nicoleh.io
// +groupGoName=Samplecontroller
package v1alpha1
