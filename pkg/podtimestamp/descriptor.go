package podtimestamp

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
)

// NewDescriptor returns what a process needs to know to run the controller, whose client
// reads metadata alone.
func NewDescriptor() manager.Descriptor {
	return manager.Descriptor{Name: Name, New: func(d manager.Dependencies) (manager.Controller, error) {
		client, err := metadata.NewForConfig(d.Config)
		if err != nil {
			return nil, err
		}
		resource := preflight.Resource{GroupVersionResource: Resource, Namespace: d.Namespace, Permit: "kubectl apply -f artifacts/rbac-podtimestamp.yaml, or -namespace for a single one"}
		pods := informer.NewInformer(d.Caches, resource, client.Resource(Resource).Namespace(d.Namespace), &metav1.PartialObjectMetadata{}, d.Resync)
		return NewController(Config{}, client, informer.Generic(pods, Resource.GroupResource()), d.Recorder, d.Clock)
	}}
}
