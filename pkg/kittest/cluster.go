// Package kittest is a fake cluster for the unit tests of controllers, whose watches can be
// held up, so that caches are stale for as long as a test wants.
//
// A test answers the requests of a fake clientset from a [Cluster], or from its own store
// with [Watches], and decides what the API server refuses. Neither knows a controller.
package kittest

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Object is an object of any kind.
type Object interface {
	runtime.Object
	metav1.Object
}

// Cluster stores objects as an API server does: it gives them UIDs and resource versions,
// and sends changes to watches. It does not check anything. Its methods are safe for
// concurrent use.
type Cluster struct {
	Watches

	mu      sync.Mutex
	version int
	objects map[schema.GroupVersionResource]map[cache.ObjectName]Object
}

// NewCluster returns an empty cluster.
func NewCluster() *Cluster {
	return &Cluster{version: 100, objects: map[schema.GroupVersionResource]map[cache.ObjectName]Object{}}
}

// Get returns a copy of the object, and whether it exists.
func (c *Cluster) Get(resource schema.GroupVersionResource, name cache.ObjectName) (obj Object, exists bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if obj, exists = c.objects[resource][name]; exists {
		obj = clone(obj)
	}
	return obj, exists
}

// List returns copies of the objects in the namespace, or in all namespaces if it is empty,
// that the selector matches, by name, and the resource version of that list.
func (c *Cluster) List(resource schema.GroupVersionResource, namespace string, selector labels.Selector) (objects []Object, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(c.objects[resource]), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		if obj := c.objects[resource][name]; isMatch(obj, namespace, selector) {
			objects = append(objects, clone(obj))
		}
	}
	return objects, strconv.Itoa(c.version)
}

// Set creates the object, or updates it if it exists, and returns a copy. An object keeps
// its UID, and gets a new resource version.
func (c *Cluster) Set(resource schema.GroupVersionResource, obj Object) Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	obj = clone(obj)
	name := cache.MetaObjectToName(obj)
	before, exists := c.objects[resource][name]
	c.version++
	obj.SetResourceVersion(strconv.Itoa(c.version))
	if exists {
		obj.SetUID(before.GetUID())
	} else {
		obj.SetUID(types.UID("uid-" + obj.GetResourceVersion()))
	}
	if c.objects[resource] == nil {
		c.objects[resource] = map[cache.ObjectName]Object{}
	}
	c.objects[resource][name] = obj
	c.Send(Change{Resource: resource, Version: c.version, Before: before, After: obj})
	return clone(obj)
}

// Remove deletes the object, and reports whether it existed.
func (c *Cluster) Remove(resource schema.GroupVersionResource, name cache.ObjectName) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, exists := c.objects[resource][name]
	if exists {
		delete(c.objects[resource], name)
		c.version++
		c.Send(Change{Resource: resource, Version: c.version, Before: before})
	}
	return exists
}

func clone(obj Object) Object { return obj.DeepCopyObject().(Object) }

// Pass lets the time of a testing/synctest bubble pass, and waits until everything in the
// bubble has settled.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
