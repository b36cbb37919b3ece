package main

import (
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
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

// NewDescriptor describes the controller to a [manager.Manager].
func NewDescriptor() manager.Descriptor {
	var sourceNamespace string
	return manager.Descriptor{
		Name:         Name,
		ClusterWide:  true,
		Confidential: true,
		AddFlags: func(flags *flag.FlagSet) {
			flags.StringVar(&sourceNamespace, "source-namespace", "secretsync", "The namespace whose Secrets secretsync copies.")
		},
		Validate: func() error {
			if len(validation.IsDNS1123Label(sourceNamespace)) > 0 {
				return fmt.Errorf("-source-namespace=%q is not the name of a namespace", sourceNamespace)
			}
			return nil
		},
		New: func(d *manager.Dependencies) (manager.Controller, error) { return newController(sourceNamespace, d) },
	}
}

// newController makes the controller and its informers: one factory for each selector.
func newController(sourceNamespace string, d *manager.Dependencies) (manager.Controller, error) {
	selector := LabelSourceNamespace + "=" + sourceNamespace
	labeled := func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	}
	sources := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithNamespace(sourceNamespace))
	copies := kubeinformers.NewSharedInformerFactoryWithOptions(d.Kube, d.Resync, kubeinformers.WithTweakListOptions(labeled))
	namespaces := kubeinformers.NewSharedInformerFactory(d.Kube, d.Resync)
	const permit = "kubectl apply -f apps/secretsync/install.yaml"
	resource := corev1.SchemeGroupVersion.WithResource
	return NewController(sourceNamespace, d.Kube, d.Recorder,
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("secrets"), Namespace: sourceNamespace, Permit: permit}, sources.Core().V1().Secrets()),
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("secrets"), Selector: selector, Permit: permit}, copies.Core().V1().Secrets()),
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("namespaces"), Permit: permit}, namespaces.Core().V1().Namespaces()))
}
