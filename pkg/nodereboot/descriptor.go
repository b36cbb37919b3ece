package nodereboot

import (
	"flag"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// NewDescriptor returns what a process needs to know to run the controller.
func NewDescriptor() manager.Descriptor {
	config := &Config{}
	return manager.Descriptor{
		Name:        Name,
		ClusterWide: true,
		AddFlags:    func(flags *flag.FlagSet) { addFlags(flags, config) },
		Validate:    func() error { return config.Validate() },
		New:         func(d manager.Dependencies) (manager.Controller, error) { return newFor(*config, d) },
	}
}

// newFor wires a controller to its client and informers.
func newFor(c Config, d manager.Dependencies) (*Controller, error) {
	kube, err := kubernetes.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return nil, err
	}
	nodes := preflight.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Permit: "kubectl apply -f artifacts/rbac-nodereboot.yaml"}
	leases := preflight.Resource{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: c.AgentNamespace, Permit: "kubectl apply -f artifacts/reboot-agent.yaml"}
	informers := kubeinformers.NewSharedInformerFactory(kube, d.Resync)
	informer.Install(d.Caches, informers, nodes, kube.CoreV1().Nodes(), &corev1.Node{})
	informer.Install(d.Caches, informers, leases, kube.CoordinationV1().Leases(c.AgentNamespace), &coordinationv1.Lease{})
	return NewController(c, kube, informers.Core().V1().Nodes(), informers.Coordination().V1().Leases(), d.Recorder, d.Clock)
}
