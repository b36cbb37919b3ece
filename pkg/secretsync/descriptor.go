package secretsync

import (
	"flag"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

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

// addFlags adds the controller's flags, and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	flags.StringVar(&c.SourceNamespace, "secretsync-source-namespace", "secretsync", "The namespace whose Secrets secretsync copies.")
	flags.StringVar(&c.Annotation, "secretsync-annotation", "controller.nicoleh.io/secretsync", "The annotation of the Secrets that secretsync copies, and of the namespaces that it copies them to. Only a clear yes counts: no value, or \"true\".")
	flags.BoolVar(&c.RequireReceivers, "secretsync-require-receivers", false, "Copy only Secrets that say, by annotation "+AnnotationNamespaces+" or "+AnnotationNamespaceSelector+", which namespaces may have them.")
	flags.StringVar(&c.Instance, "secretsync-instance", "", "The name by which secretsync knows its own copies from those of another one with the same source namespace. Empty is -secretsync-annotation.")
}

// newFor wires a controller to its clients and informers.
func newFor(c Config, d manager.Dependencies) (*Controller, error) {
	kube, err := kubernetes.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(d.Config)
	if err != nil {
		return nil, err
	}
	const permit = "kubectl apply -f artifacts/rbac-secretsync.yaml"
	secrets, namespaced := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("namespaces")
	sources, copies, namespaces := kubeinformers.NewSharedInformerFactory(kube, d.Resync), kubeinformers.NewSharedInformerFactory(kube, d.Resync), kubeinformers.NewSharedInformerFactory(kube, d.Resync)
	informer.Install(d.Caches, sources, preflight.Resource{GroupVersionResource: secrets, Namespace: c.SourceNamespace, Permit: permit}, kube.CoreV1().Secrets(c.SourceNamespace), &corev1.Secret{})
	informer.Install(d.Caches, copies, preflight.Resource{GroupVersionResource: secrets, Selector: LabelSourceNamespace + "=" + c.SourceNamespace, Permit: permit}, kube.CoreV1().Secrets(metav1.NamespaceAll), &corev1.Secret{})
	informer.Install(d.Caches, namespaces, preflight.Resource{GroupVersionResource: namespaced, Permit: permit}, kube.CoreV1().Namespaces(), &corev1.Namespace{})
	return NewController(c, kube, meta, sources.Core().V1().Secrets(), copies.Core().V1().Secrets(), namespaces.Core().V1().Namespaces(), d.Recorder, d.Clock)
}
