package main

import (
	"flag"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

func main() {
	newProgram().Main()
}

func newProgram() manager.Manager {
	return manager.Manager{Name: Name, LeaseName: Name, Controllers: []manager.Descriptor{NewDescriptor()}}
}

// NewDescriptor returns what a process needs to know to run the controller.
func NewDescriptor() manager.Descriptor {
	config := &Config{}
	return manager.Descriptor{
		Name:         Name,
		ClusterWide:  true,
		Confidential: true,
		AddFlags:     func(flags *flag.FlagSet) { addFlags(flags, config) },
		Validate:     func() error { return config.Validate() },
		New:          func(d *manager.Dependencies) (manager.Controller, error) { return newController(*config, d) },
	}
}

// newController makes the controller and its informers: one factory for each selector.
func newController(config Config, d *manager.Dependencies) (manager.Controller, error) {
	selector := LabelSourceNamespace + "=" + config.SourceNamespace
	labeled := func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	}
	sources := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(config.SourceNamespace))
	copies := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithTweakListOptions(labeled))
	namespaces := kubeinformers.NewSharedInformerFactory(d.Kube, d.Resync)
	const permit = "kubectl apply -f apps/secretsync/install.yaml"
	resource := corev1.SchemeGroupVersion.WithResource
	return NewController(config, d.Kube, d.Metadata, d.Recorder,
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("secrets"), Namespace: config.SourceNamespace, Permit: permit}, sources.Core().V1().Secrets()),
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("secrets"), Selector: selector, Permit: permit}, copies.Core().V1().Secrets()),
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("namespaces"), Permit: permit}, namespaces.Core().V1().Namespaces()))
}
