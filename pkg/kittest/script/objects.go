package script

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// object is a pointer to a typed object, whose type has the name of its kind.
type object[T any] interface {
	*T
	apiserver.Object
}

// All returns the objects of a kind, sorted by namespace and name.
func All[T any, P object[T]](c *Cluster) []P {
	c.t.Helper()
	objects := find[T, P](c, c.Store(), func(apiserver.Key) bool { return true })
	slices.SortFunc(objects, func(a, b P) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// Get returns an object, and fails the test if there is none.
func Get[T any, P object[T]](c *Cluster, namespace, name string) P {
	c.t.Helper()
	return get[T, P](c, c.Store(), namespace, name)
}

func get[T any, P object[T]](c *Cluster, store apiserver.Store, namespace, name string) P {
	c.t.Helper()
	found := find[T, P](c, store, func(key apiserver.Key) bool { return key.Namespace == namespace && key.Name == name })
	if len(found) == 0 {
		c.t.Fatalf("there is no %s %s/%s", reflect.TypeFor[T]().Name(), namespace, name)
	}
	return found[0]
}

func find[T any, P object[T]](c *Cluster, store apiserver.Store, match func(apiserver.Key) bool) (found []P) {
	c.t.Helper()
	for key, stored := range store.Objects {
		if stored.GetKind() != reflect.TypeFor[T]().Name() || !match(key) {
			continue
		}
		obj := P(new(T))
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, obj); err != nil {
			c.t.Fatal(err)
		}
		found = append(found, obj)
	}
	return found
}

// Edit has people and controllers change an object, in one step: nobody else writes between
// reading and storing it. What is in its status is stored as it is. The change must not use the
// cluster.
func Edit[T any, P object[T]](c *Cluster, namespace, name string, change func(P)) {
	c.t.Helper()
	c.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
		obj := get[T, P](c, store, namespace, name)
		change(obj)
		return c.set(server, store, now, obj)
	})
}

// Set has people and controllers store an object, or change it to be so, in one step: what a
// request cannot store, such as the status, as it is.
func (c *Cluster) Set(obj apiserver.Object) {
	c.t.Helper()
	c.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
		return c.set(server, store, now, obj)
	})
}

func (c *Cluster) set(server *apiserver.Server, store apiserver.Store, now time.Time, obj apiserver.Object) (apiserver.Store, error) {
	key := c.keyOf(obj)
	status := untyped(c, obj).Object["status"]
	after, err := write(server, store, now, key, obj)
	if err != nil {
		return store, err
	}
	stored := after.Objects[key]
	if stored == nil || equality.Semantic.DeepEqual(status, stored.Object["status"]) {
		return after, nil
	}
	stored = stored.DeepCopy()
	stored.Object["status"] = status
	return server.Put(after, now, stored)
}

func write(server *apiserver.Server, store apiserver.Store, now time.Time, key apiserver.Key, obj apiserver.Object) (apiserver.Store, error) {
	if store.Objects[key] != nil {
		return server.Update(store, now, obj)
	}
	after, err := server.Create(store, now, obj)
	if known := apierrors.APIStatus(nil); errors.As(err, &known) && known.Status().Code == http.StatusNotImplemented {
		obj.SetGeneration(1)
		return server.Put(store, now, obj)
	}
	return after, err
}

// Delete has somebody delete an object, at once but for its finalizers. A policy other than in the
// background adds one.
func Delete[T any, P object[T]](c *Cluster, namespace, name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	key := c.keyOf(Get[T, P](c, namespace, name))
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), PropagationPolicy: &policy}
	c.Step(func(server *apiserver.Server, store apiserver.Store, now time.Time) (apiserver.Store, error) {
		return server.Delete(store, now, key, options)
	})
}

func (c *Cluster) keyOf(obj apiserver.Object) apiserver.Key {
	c.t.Helper()
	key, err := c.server.KeyOf(obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return key
}

func untyped(c *Cluster, obj apiserver.Object) *unstructured.Unstructured {
	c.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}
