package secretsync

import (
	"flag"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeinformers "k8s.io/client-go/informers"

	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// Config is what an operator can choose.
type Config struct {
	// SourceNamespace is the namespace of the Secrets to copy.
	SourceNamespace string
	// Annotation marks the Secrets to copy and the namespaces to copy them to. Only a true
	// value counts, such as "true", or no value.
	Annotation string
	// RequireReceivers restricts copying to Secrets that say which namespaces may have
	// them.
	RequireReceivers bool
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

// addFlags adds the controller's flags and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	flags.StringVar(&c.SourceNamespace, "secretsync-source-namespace", "secretsync", "The namespace whose Secrets secretsync copies.")
	flags.StringVar(&c.Annotation, "secretsync-annotation", DefaultAnnotation, "The annotation that selects the Secrets to copy and the namespaces to copy them to. No value, \"true\", \"yes\", \"on\" and \"1\" mean yes.")
	flags.BoolVar(&c.RequireReceivers, "secretsync-require-receivers", false, "Copy only Secrets whose annotation "+AnnotationNamespaces+" or "+AnnotationNamespaceSelector+" selects their target namespaces.")
}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error {
	switch {
	case len(validation.IsDNS1123Label(c.SourceNamespace)) > 0:
		return fmt.Errorf("-secretsync-source-namespace=%q is not the name of a namespace", c.SourceNamespace)
	case len(validation.IsQualifiedName(strings.ToLower(c.Annotation))) > 0: // as the API server checks it
		return fmt.Errorf("-secretsync-annotation=%q is not the key of an annotation, such as example.com/secretsync", c.Annotation)
	}
	return nil
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
	const permit = "kubectl apply -f artifacts/rbac-secretsync.yaml"
	resource := corev1.SchemeGroupVersion.WithResource
	return NewController(config, d.Kube, d.Metadata, d.Recorder,
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("secrets"), Namespace: config.SourceNamespace, Permit: permit}, sources.Core().V1().Secrets()),
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("secrets"), Selector: selector, Permit: permit}, copies.Core().V1().Secrets()),
		manager.Watch(d, preflight.Resource{GroupVersionResource: resource("namespaces"), Permit: permit}, namespaces.Core().V1().Namespaces()))
}
