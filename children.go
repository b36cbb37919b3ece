package main

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/typed"
)

// childKinds returns the kinds of objects that an Icecream owns. For other kinds, change
// these rows, the permissions in the chart, and the rules in package icecream; nothing else
// of the controller names a kind of child.
func childKinds(kube *typed.Set) map[schema.GroupVersionResource]childKind {
	return map[schema.GroupVersionResource]childKind{
		icecream.Deployments: kindOf(typed.Clients[appsv1.Deployment, appsv1.DeploymentList](kube, icecream.Deployments), icecream.DeploymentName),
	}
}

// childKind is a kind of object that Icecreams own.
type childKind struct {
	apply.Writer
	// nameFor returns the name of the child that an Icecream asks for.
	nameFor func(*v1alpha1.Icecream) string
	// pack makes of an object what is to be kept of it in the cache.
	pack cache.TransformFunc
	// newCache adds a cache of the kind.
	newCache func(*informer.Caches, preflight.Resource, time.Duration) informer.Cache[*informer.Packed]
	// cache is the cache of the kind, once the controller is made.
	cache informer.Cache[*informer.Packed]
}

// childClient is what typed clients have in common.
type childClient[T any, L runtime.Object] interface {
	apply.Client[T]
	informer.Client[L]
}

// kindOf returns the kind of these clients. Objects that could not be an Icecream's are
// reduced to what shows that they are someone else's.
func kindOf[O any, T interface {
	*O
	metav1.Object
	runtime.Object
}, L runtime.Object, C childClient[T, L]](clients func(namespace string) C, nameFor func(*v1alpha1.Icecream) string) childKind {
	return childKind{
		Writer:  apply.NewWriter[O, T](icecream.FieldManager, clients),
		nameFor: nameFor,
		pack: informer.PackedAfter(func(obj T) {
			if !couldBeOurs(obj) {
				children.StripForeign[O](obj)
			}
		}),
		newCache: func(caches *informer.Caches, r preflight.Resource, resync time.Duration) informer.Cache[*informer.Packed] {
			return informer.NewCache[*informer.Packed](caches, r, informer.Client[L](clients(r.Namespace)), T(new(O)), resync)
		},
	}
}

// couldBeOurs reports whether an object could be a child of an Icecream, or could have been
// one.
func couldBeOurs(obj metav1.Object) bool {
	_, isLabeled := obj.GetLabels()[icecream.LabelIcecream]
	return isLabeled || isControlledByIcecream(obj)
}

// isControlledByIcecream reports whether an object's controller is an Icecream,
// whichever it is and whether or not it still exists.
func isControlledByIcecream(obj metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.Kind == "Icecream" && owner.APIVersion == v1alpha1.GroupVersion.String()
}
