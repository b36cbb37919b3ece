package main

import (
	"k8s.io/client-go/metadata/metadatainformer"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

func main() {
	newProgram().Main()
}

func newProgram() manager.Manager {
	return manager.Manager{Name: Name, LeaseName: Name, Controllers: []manager.Descriptor{NewDescriptor()}}
}

// NewDescriptor describes the controller to a [manager.Manager].
func NewDescriptor() manager.Descriptor {
	return manager.Descriptor{Name: Name, New: newController}
}

// newController makes the controller and its informer.
func newController(d *manager.Dependencies) (manager.Controller, error) {
	factory := metadatainformer.NewFilteredSharedInformerFactory(d.Metadata, d.Resync, d.Namespace, nil)
	pods := preflight.Resource{
		GroupVersionResource: Resource,
		Namespace:            d.Namespace,
		Permit:               "kubectl apply -f apps/podtimestamp/install.yaml, or restrict the controller to one namespace with -namespace",
	}
	return NewController(d.Metadata, manager.Watch(d, pods, factory.ForResource(Resource)).Informer(), d.Recorder)
}
