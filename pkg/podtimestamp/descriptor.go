package podtimestamp

import (
	"flag"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// Config is what an operator can choose: nothing, so far.
type Config struct{}

// NewDescriptor returns what a process needs to know to run the controller.
func NewDescriptor() manager.Descriptor {
	config := &Config{}
	return manager.Descriptor{
		Name:     Name,
		AddFlags: func(flags *flag.FlagSet) { addFlags(flags, config) },
		Validate: func() error { return config.Validate() },
		New:      func(d manager.Dependencies) (manager.Controller, error) { return newFor(*config, d) },
	}
}

// addFlags adds the controller's flags and sets the defaults.
func addFlags(*flag.FlagSet, *Config) {}

// Validate returns an error that names the flag that is wrong.
func (c Config) Validate() error { return nil }

// newFor wires a controller to its client and its informer, which read metadata alone.
func newFor(config Config, d manager.Dependencies) (*Controller, error) {
	client, err := metadata.NewForConfig(d.Config)
	if err != nil {
		return nil, err
	}
	resource := preflight.Resource{GroupVersionResource: Resource, Namespace: d.Namespace, Permit: "kubectl apply -f artifacts/rbac-podtimestamp.yaml, or -namespace for a single one"}
	pods := informer.NewCache[*metav1.PartialObjectMetadata](d.Caches, resource, client.Resource(Resource).Namespace(d.Namespace), &metav1.PartialObjectMetadata{}, d.Resync)
	return NewController(config, client, pods, d.Recorder, d.Clock)
}
