// Package typed makes typed clients of the kinds that a program names.
//
// They send the same requests as the clients of client-go's clientset, which implement the
// same interfaces. But a program with a clientset has all kinds of the API, whichever of
// them it uses, and these are 10 MB. (Nor are they made by client-go's package gentype: its
// fake clients are in the same package, and need another megabyte.)
package typed

import (
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// AddToScheme adds the kinds that every set has clients of: those of the groups apps,
// authentication, authorization, coordination, core and events.
func AddToScheme(scheme *runtime.Scheme) error {
	return (&runtime.SchemeBuilder{
		appsv1.AddToScheme,
		authenticationv1.AddToScheme,
		authorizationv1.AddToScheme,
		coordinationv1.AddToScheme,
		corev1.AddToScheme,
		eventsv1.AddToScheme,
	}).AddToScheme(scheme)
}

// Set makes typed clients.
type Set struct {
	versions   map[schema.GroupVersion]rest.Interface
	parameters runtime.ParameterCodec
}

// New returns a set for the kinds in the scheme, with a client for each group and version.
func New(scheme *runtime.Scheme, newClient func(schema.GroupVersion) (rest.Interface, error)) (*Set, error) {
	s := &Set{versions: map[schema.GroupVersion]rest.Interface{}, parameters: runtime.NewParameterCodec(scheme)}
	for _, version := range scheme.PrioritizedVersionsAllGroups() {
		client, err := newClient(version)
		if err != nil {
			return nil, err
		}
		s.versions[version] = client
	}
	return s, nil
}

// schemeWith returns a scheme with the kinds that [AddToScheme] adds, and those that more adds.
// A scheme is large, and a program has many sets, so all without more share one.
func schemeWith(more []func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	if len(more) == 0 {
		return builtIn()
	}
	return newScheme(more)
}

// Nothing may be added to the scheme that builtIn returns.
var builtIn = sync.OnceValues(func() (*runtime.Scheme, error) { return newScheme(nil) })

func newScheme(more []func(*runtime.Scheme) error) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := append(runtime.NewSchemeBuilder(AddToScheme), more...)
	return scheme, builder.AddToScheme(scheme)
}

// NewForConfig returns a set for the built-in kinds that [AddToScheme] adds, and those that
// more adds:
//
//	typed.NewForConfig(config, batchv1.AddToScheme)
//
// All of its clients share connections and one rate limit.
func NewForConfig(config *rest.Config, more ...func(*runtime.Scheme) error) (*Set, error) {
	scheme, err := schemeWith(more)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if config.RateLimiter == nil && config.QPS > 0 {
		if config.Burst <= 0 {
			return nil, errors.New("a QPS needs a Burst")
		}
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return New(scheme, func(version schema.GroupVersion) (rest.Interface, error) {
		config.GroupVersion, config.APIPath = &version, "/apis"
		if version.Group == corev1.GroupName {
			config.APIPath = "/api"
		}
		return rest.RESTClientForConfigAndClient(config, http)
	})
}

// RESTClient returns the client for everything in a group and version. It panics if the set
// has none.
func (s *Set) RESTClient(version schema.GroupVersion) rest.Interface {
	client, ok := s.versions[version]
	if !ok {
		panic(fmt.Sprintf("the scheme of these clients does not know %s: pass its AddToScheme to NewForConfig", version))
	}
	return client
}

// Clients returns the clients of a resource, by namespace, for objects of type O and lists of
// type L:
//
//	typed.Clients[appsv1.Deployment, appsv1.DeploymentList](set, appsv1.SchemeGroupVersion.WithResource("deployments"))
//
// The namespace is empty for all of them, and for a resource that has none. Clients panics if
// the set has no client for the resource's group and version.
func Clients[O, L any, T interface {
	*O
	object
}, LT interface {
	*L
	runtime.Object
}](s *Set, resource schema.GroupVersionResource) func(namespace string) *ClientWithList[T, LT] {
	clients := ClientsWithoutList[O, T](s, resource)
	return func(namespace string) *ClientWithList[T, LT] {
		return &ClientWithList[T, LT]{clients(namespace), func() LT { return new(L) }}
	}
}

// ClientsWithoutList is [Clients] for a resource that cannot be listed, such as reviews.
func ClientsWithoutList[O any, T interface {
	*O
	object
}](s *Set, resource schema.GroupVersionResource) func(namespace string) *Client[T] {
	client := s.RESTClient(resource.GroupVersion())
	return func(namespace string) *Client[T] {
		return &Client[T]{client, s.parameters, resource.Resource, namespace, func() T { return new(O) }}
	}
}
