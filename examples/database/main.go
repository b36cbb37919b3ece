// Command database is an example of a controller that is made from this repository: a
// Database runs its Pods through a StatefulSet, and has a version that cannot go down.
// docs/fork.md goes through it.
package main

import (
	_ "time/tzdata" // the image has none

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"

	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned"
	"nicoleh.io/k8s-controller/examples/database/generated/clientset/versioned/scheme"
	"nicoleh.io/k8s-controller/examples/database/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

func main() {
	program := manager.Manager{
		Name:        "database",
		LeaseName:   "database-controller",
		Controllers: []manager.Descriptor{NewDescriptor()},
	}
	program.Main()
}

// NewDescriptor returns what a process needs to know to run the controller.
func NewDescriptor() manager.Descriptor {
	return manager.Descriptor{Name: "database", AddToScheme: v1alpha1.Install, New: newController}
}

// newController makes the controller with its clients and informers.
func newController(d *manager.Dependencies) (manager.Controller, error) {
	groupVersion := schema.GroupVersion(v1alpha1.GroupVersion)
	// An object that cannot be decoded stops no other.
	client, err := lenient.ClientsetFor(d.Config, groupVersion, scheme.Scheme, versioned.New)
	if err != nil {
		return nil, err
	}
	own := externalversions.NewSharedInformerFactoryWithOptions(client, d.Resync, externalversions.WithNamespace(d.Namespace))
	all := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(d.Namespace))
	needs := func(resource schema.GroupVersionResource) preflight.Resource {
		return preflight.Resource{GroupVersionResource: resource, Namespace: d.Namespace, Permit: "kubectl apply -f examples/database/rbac.yaml"}
	}
	databases := needs(groupVersion.WithResource("databases"))
	databases.Define = "kubectl apply -f examples/database/crd-database.yaml"
	return NewController(client, d.Kube,
		manager.Watch(d, databases, own.Database().V1alpha1().Databases()),
		manager.Watch(d, needs(appsv1.SchemeGroupVersion.WithResource("statefulsets")), all.Apps().V1().StatefulSets()))
}
