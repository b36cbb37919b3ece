// Package v1alpha1 is the API of Databases.
//
// +k8s:deepcopy-gen=package
// +k8s:register-gen=package
// +groupName=db.example.com
// +groupGoName=Database
package v1alpha1
