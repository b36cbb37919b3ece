package typed

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Client is the client of a resource, in one namespace or in all of them, for objects of
// type T. The methods have the contracts of those in client-go's clientset.
type Client[T object] struct {
	rest       rest.Interface
	parameters runtime.ParameterCodec
	resource   string
	namespace  string
	newObject  func() T
}

// ClientWithList is a [Client] of a resource that can be listed, as lists of type L.
type ClientWithList[T object, L runtime.Object] struct {
	*Client[T]

	newList func() L
}

type object interface {
	runtime.Object
	metav1.Object
}

// Get returns the object of that name.
func (c *Client[T]) Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error) {
	return c.send(ctx, c.to(c.rest.Get()).Name(name).VersionedParams(&opts, c.parameters))
}

// Create creates obj, and returns it as it was stored.
func (c *Client[T]) Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error) {
	return c.send(ctx, c.to(c.rest.Post()).VersionedParams(&opts, c.parameters).Body(obj))
}

// Update replaces the object of obj's name by obj, and returns it as it was stored.
func (c *Client[T]) Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error) {
	return c.send(ctx, c.to(c.rest.Put()).Name(obj.GetName()).VersionedParams(&opts, c.parameters).Body(obj))
}

// UpdateStatus replaces the status of the object of obj's name by that of obj, and returns
// the object as it was stored.
func (c *Client[T]) UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error) {
	return c.send(ctx, c.to(c.rest.Put()).Name(obj.GetName()).SubResource("status").VersionedParams(&opts, c.parameters).Body(obj))
}

// Patch applies a patch to the object of that name, and returns it as it was stored.
func (c *Client[T]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error) {
	return c.send(ctx, c.to(c.rest.Patch(pt)).Name(name).SubResource(subresources...).VersionedParams(&opts, c.parameters).Body(data))
}

// Delete deletes the object of that name.
func (c *Client[T]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.to(c.rest.Delete()).Name(name).Body(&opts).Do(ctx).Error()
}

// Watch watches the objects that opts select.
func (c *Client[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return c.to(c.rest.Get()).VersionedParams(&opts, c.parameters).Timeout(timeout(opts)).Watch(ctx)
}

// List returns the objects that opts select.
func (c *ClientWithList[T, L]) List(ctx context.Context, opts metav1.ListOptions) (L, error) {
	list := c.newList()
	err := c.to(c.rest.Get()).VersionedParams(&opts, c.parameters).Timeout(timeout(opts)).Do(ctx).Into(list)
	return list, err
}

// to directs a request to the resource.
func (c *Client[T]) to(request *rest.Request) *rest.Request {
	return request.UseProtobufAsDefaultIfPreferred(true).NamespaceIfScoped(c.namespace, c.namespace != "").Resource(c.resource)
}

// send sends a request whose response is an object.
func (c *Client[T]) send(ctx context.Context, request *rest.Request) (T, error) {
	received := c.newObject()
	err := request.Do(ctx).Into(received)
	return received, err
}

// timeout returns how long the API server may take, which is zero if opts do not say.
func timeout(opts metav1.ListOptions) time.Duration {
	return time.Duration(ptr.Deref(opts.TimeoutSeconds, 0)) * time.Second
}
