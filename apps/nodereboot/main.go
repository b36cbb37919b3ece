package main

import (
	"flag"
	_ "time/tzdata" // the image has none

	corev1 "k8s.io/api/core/v1"
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
	config := &Config{}
	return manager.Descriptor{
		Name:        Name,
		ClusterWide: true,
		AddFlags:    func(flags *flag.FlagSet) { addFlags(flags, config) },
		Validate:    func() error { return config.Validate() },
		New:         func(d *manager.Dependencies) (manager.Controller, error) { return newController(*config, d) },
	}
}

// newController makes the controller and its informers.
func newController(config Config, d *manager.Dependencies) (manager.Controller, error) {
	if len(config.BlockingPods) > 0 {
		d.Need(preflight.Resource{
			GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
			Permit:               "kubectl create clusterrolebinding nodereboot-blocking-pods --clusterrole=nodereboot-blocking-pods --serviceaccount=nodereboot-system:nodereboot, or run without -blocking-pods",
		})
	}
	nodes := preflight.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"),
		Permit:               "kubectl apply -f apps/nodereboot/install.yaml",
	}
	all := kubeinformers.NewSharedInformerFactory(d.Kube, d.Resync)
	return NewController(config, d.Kube, d.Recorder, manager.Watch(d, nodes, all.Core().V1().Nodes()))
}
