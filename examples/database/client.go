package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	clientlisters "k8s.io/client-go/listers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/examples/database/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/lenient"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
)

// This file stands in for what `make generate` writes in a fork: the clientset, the
// informers and the listers of the API.

// client reads and writes Databases.
type client struct {
	rest.Interface
	parameters runtime.ParameterCodec
}

func newClient(config *rest.Config) (client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return client{}, err
	}
	// An object that cannot be decoded stops no other.
	restClient, err := lenient.RESTClientFor(config, v1alpha1.GroupVersion, serializer.NewCodecFactory(scheme))
	return client{restClient, runtime.NewParameterCodec(scheme)}, err
}

// in returns the client of one namespace, or of all if it is empty.
func (c client) in(namespace string) *gentype.ClientWithList[*v1alpha1.Database, *v1alpha1.DatabaseList] {
	return gentype.NewClientWithList(v1alpha1.Resource.Resource, c.Interface, c.parameters, namespace,
		func() *v1alpha1.Database { return &v1alpha1.Database{} }, func() *v1alpha1.DatabaseList { return &v1alpha1.DatabaseList{} })
}

// informer is an informer of Databases.
type informer struct {
	cache.TypedSharedIndexInformer[*v1alpha1.Database]
}

func newInformer(d manager.Dependencies, c client) informer {
	databases := c.in(d.Namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return databases.List(ctx, options)
		},
		WatchFuncWithContext: databases.Watch,
	}
	return informer{cache.NewTypedSharedIndexInformer[*v1alpha1.Database](
		cache.NewSharedIndexInformer(source, &v1alpha1.Database{}, d.Resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))}
}

// in returns the lister of one namespace.
func (i informer) in(namespace string) clientlisters.ResourceIndexer[*v1alpha1.Database] {
	return clientlisters.NewNamespaced(clientlisters.New[*v1alpha1.Database](i.GetIndexer(), v1alpha1.Resource.GroupResource()), namespace)
}
