package secretsync

import (
	"cmp"
	"flag"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/metadata"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/typed"
)

// Config is what an operator can choose.
type Config struct {
	// SourceNamespace is the namespace of the Secrets to copy.
	SourceNamespace string
	// Annotation marks the Secrets to copy and the namespaces to copy them to. Only a
	// value that clearly means yes counts, such as "true", or no value.
	Annotation string
	// RequireReceivers restricts copying to Secrets that say which namespaces may have
	// them.
	RequireReceivers bool
	// Instance distinguishes this secretsync from others that copy Secrets from the same
	// namespace. If it is empty, it is the annotation.
	Instance string
}

// instance returns the name of the instance, which its copies carry.
func (c Config) instance() string { return cmp.Or(c.Instance, c.Annotation) }

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

// addFlags adds the controller's flags and sets the defaults.
func addFlags(flags *flag.FlagSet, c *Config) {
	flags.StringVar(&c.SourceNamespace, "secretsync-source-namespace", "secretsync", "The namespace whose Secrets secretsync copies.")
	flags.StringVar(&c.Annotation, "secretsync-annotation", "controller.nicoleh.io/secretsync", "The annotation that marks the Secrets that secretsync copies and the namespaces that it copies them to. Only a clear yes counts: \"true\", or no value.")
	flags.BoolVar(&c.RequireReceivers, "secretsync-require-receivers", false, "Copy only Secrets whose annotation "+AnnotationNamespaces+" or "+AnnotationNamespaceSelector+" says which namespaces may have them.")
	flags.StringVar(&c.Instance, "secretsync-instance", "", "The name by which secretsync tells its own copies from those of another secretsync with the same source namespace. If empty, the value of -secretsync-annotation.")
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

// newFor wires a controller to its clients and informers.
func newFor(config Config, d manager.Dependencies) (*Controller, error) {
	kube, err := typed.NewForConfig(manager.Protobuf(d.Config))
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(d.Config)
	if err != nil {
		return nil, err
	}
	const permit = "kubectl apply -f artifacts/rbac-secretsync.yaml"
	secrets, namespaces := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("namespaces")
	secretClients := typed.Clients[corev1.Secret, corev1.SecretList](kube, secrets)
	namespaceClient := typed.Clients[corev1.Namespace, corev1.NamespaceList](kube, namespaces)(metav1.NamespaceNone)
	return NewController(config, secretClients, namespaceClient, meta,
		informer.NewCache[*corev1.Secret](d.Caches, preflight.Resource{GroupVersionResource: secrets, Namespace: config.SourceNamespace, Permit: permit}, secretClients(config.SourceNamespace), &corev1.Secret{}, d.Resync),
		informer.NewCache[*corev1.Secret](d.Caches, preflight.Resource{GroupVersionResource: secrets, Selector: LabelSourceNamespace + "=" + config.SourceNamespace, Permit: permit}, secretClients(metav1.NamespaceAll), &corev1.Secret{}, d.Resync),
		informer.NewCache[*corev1.Namespace](d.Caches, preflight.Resource{GroupVersionResource: namespaces, Permit: permit}, namespaceClient, &corev1.Namespace{}, d.Resync),
		d.Recorder, d.Clock)
}
