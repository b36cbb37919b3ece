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
	return manager.Descriptor{Name: "database", OnByDefault: true, AddToScheme: v1alpha1.Install, New: newParts}
}

// newParts makes the controller's clients and informers, and the controller.
func newParts(d manager.Dependencies) (parts manager.Parts, err error) {
	groupVersion := schema.GroupVersion(v1alpha1.GroupVersion)
	// An object that cannot be decoded stops no other.
	rest, err := lenient.RESTClientFor(d.Config, groupVersion, scheme.Codecs)
	if err != nil {
		return parts, err
	}
	client := versioned.New(rest)
	own := externalversions.NewSharedInformerFactoryWithOptions(client, d.Resync, externalversions.WithNamespace(d.Namespace))
	databases := own.Database().V1alpha1().Databases()
	all := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(d.Namespace))
	statefulSets := all.Apps().V1().StatefulSets()
	c, err := NewController(client, d.Kube, databases, statefulSets)
	needs := func(resource schema.GroupVersionResource) preflight.Resource {
		return preflight.Resource{GroupVersionResource: resource, Namespace: d.Namespace, Permit: "kubectl apply -f examples/database/rbac.yaml"}
	}
	ofDatabases := needs(groupVersion.WithResource("databases"))
	ofDatabases.Define = "kubectl apply -f examples/database/crd-database.yaml"
	return manager.Parts{
		Controller: c,
		Caches: []manager.Cache{
			{Resource: ofDatabases, Informer: databases.Informer()},
			{Resource: needs(appsv1.SchemeGroupVersion.WithResource("statefulsets")), Informer: statefulSets.Informer()},
		},
	}, err
}
