package main

import (
	"context"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/fake"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/children"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/podproblem"
)

// What a fork needs whose Icecreams own a StatefulSet and a Service: a row for each
// kind, and rules that decide about them. The rest of the controller stays as it is.
func TestChildrenOfAnyKind(t *testing.T) {
	statefulSets, services := appsv1.SchemeGroupVersion.WithResource("statefulsets"), corev1.SchemeGroupVersion.WithResource("services")
	synctest.Test(t, func(t *testing.T) {
		kube, client := kubefake.NewClientset(), fake.NewClientset()
		// Of what it is created with, the fake clientset guesses the plural.
		for verb, object := range map[string]runtime.Object{"get": newIcecream(), "list": &v1alpha1.IcecreamList{Items: []v1alpha1.Icecream{*newIcecream()}}} {
			client.PrependReactor(verb, icecreamResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, object, nil })
		}
		kube.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			obj := action.(clienttesting.CreateAction).GetObject().(metav1.Object)
			obj.SetUID(types.UID("uid-of-" + action.GetResource().Resource))
			obj.SetResourceVersion("1")
			return false, nil, nil
		})
		icecreams, builtin := externalversions.NewSharedInformerFactory(client, 0), kubeinformers.NewSharedInformerFactory(kube, 0)
		nameFor := func(ice *v1alpha1.Icecream) string { return ice.Name + "-db" }
		c, err := NewController(usual, client.SamplecontrollerV1alpha1().Icecreams,
			informer.Of[*v1alpha1.Icecream](icecreams.Samplecontroller().V1alpha1().Icecreams().Informer()),
			map[schema.GroupVersionResource]childKind{
				statefulSets: with(builtin.Apps().V1().StatefulSets().Informer(), kindOf(kube.AppsV1().StatefulSets, nameFor)),
				services:     with(builtin.Core().V1().Services().Informer(), kindOf(kube.CoreV1().Services, nameFor)),
			},
			informer.Of[*podproblem.Pod](builtin.Core().V1().Pods().Informer()),
			nil, clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		icecreams.StartWithContext(ctx)
		builtin.StartWithContext(ctx)
		defer func() {
			cancel()
			icecreams.Shutdown()
			builtin.Shutdown()
		}()
		synctest.Wait()
		name := nameOf(newIcecream())
		observe := func() icecream.Observed {
			t.Helper()
			synctest.Wait()
			if err := c.writes.EnsureReady(name); err != nil {
				t.Fatal(err)
			}
			o, err := c.observe(name)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		act := func(d children.Decision) children.Outcome {
			t.Helper()
			d.Verdict = children.Act
			out, err := c.act(t.Context(), icecream.Assessment{Observed: observe()}, d)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}

		// Rules would decide this.
		ice := newIcecream()
		meta := metav1.ObjectMeta{Name: "sundae-db", Namespace: namespace, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Icecream", Name: ice.Name, UID: ice.UID, Controller: ptr.To(true)},
		}}
		service := func(port int32) apply.Child {
			return apply.Child{Resource: services, Want: &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "sql", Port: port}}}}}
		}
		set := apply.Child{Resource: statefulSets, Want: &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{ServiceName: "sundae-db", Replicas: ptr.To[int32](3)}}}

		created := act(children.Decision{Children: []apply.Child{service(5432), set}, RecheckLive: true}).Written
		equal(t, "created", []string{"uid-of-services", "uid-of-statefulsets"}, uidsOf(created))
		for resource, kind := range c.children {
			synctest.Wait()
			owned := kind.cache.By(byOwner, key(namespace, string(ice.UID)))
			asking := c.icecreams.By(byChild, childKey(resource, namespace, "sundae-db"))
			if len(owned) != 1 || len(asking) != 1 {
				t.Errorf("%s: %d are the Icecream's, and %d Icecreams ask for them", resource.Resource, len(owned), len(asking))
			}
		}

		ports := apply.Owner{Manager: icecream.FieldManager, Optional: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "ports")}}
		repaired := ports.Compare(service(3306), created[0])
		equal(t, "drift", `spec.ports[name="sql"].port`, repaired.Drift[0].Field)
		applied := act(children.Decision{Children: []apply.Child{repaired}}).Written
		equal(t, "port", 3306, applied[0].(*corev1.Service).Spec.Ports[0].Port)

		// One that is refused ends it, and is what the outcome is about.
		kube.PrependReactor("create", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(statefulSets.GroupResource(), "sundae-db", nil)
		})
		refused := act(children.Decision{Children: []apply.Child{repaired, set, repaired}, Deletions: []apply.Deletion{apply.Delete(services, applied[0])}})
		if len(refused.Written) != 1 || len(refused.Deleted) != 0 || !apierrors.IsForbidden(refused.Err) {
			t.Errorf("got %+v", refused)
		}

		deleted := act(children.Decision{Deletions: []apply.Deletion{apply.Delete(statefulSets, created[1]), apply.Delete(services, applied[0])}})
		equal(t, "deleted", []types.UID{"uid-of-statefulsets", "uid-of-services"}, deleted.Deleted)
		synctest.Wait()
		for resource, kind := range c.children {
			if left := kind.cache.GetIndexer().ListKeys(); len(left) > 0 {
				t.Errorf("%s are left: %v", resource.Resource, left)
			}
		}
	})
}

// with returns the kind with the cache of an informer.
func with(of cache.SharedIndexInformer, kind childKind) childKind {
	kind.cache = informer.Of[*informer.Packed](of)
	return kind
}

func uidsOf(objects []metav1.Object) (uids []string) {
	for _, obj := range objects {
		uids = append(uids, string(obj.GetUID()))
	}
	return uids
}

// A cache keeps all of what could be an Icecream's, and of others' objects hardly anything.
func TestWhatIsKeptOfChildren(t *testing.T) {
	pack := kindOf(kubefake.NewClientset().AppsV1().Deployments, icecream.DeploymentName).pack
	object := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := foreign("sundae")
		d.Spec.Paused = true
		change(d)
		return d
	}
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		isKept bool
	}{
		"somebody else's":  {func(*appsv1.Deployment) {}, false},
		"one of our label": {func(d *appsv1.Deployment) { d.Labels = map[string]string{icecream.LabelIcecream: "sundae"} }, true},
		"an Icecream's": {func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(newIcecream(), schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Icecream"))}
		}, true},
		"another group's": {func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(newIcecream(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Icecream"})}
		}, false},
	} {
		packed, err := pack(object(test.change))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := packed.(*informer.Packed).Unpack()
		if err != nil {
			t.Fatal(err)
		}
		if d := kept.(*appsv1.Deployment); d.Spec.Paused != test.isKept || d.Name != "sundae" {
			t.Errorf("%s: kept %+v", name, d)
		}
	}
}

// An index has only what a name does not tell, and each child once.
func TestOwnersOfChildren(t *testing.T) {
	pack := kindOf(kubefake.NewClientset().AppsV1().Deployments, icecream.DeploymentName).pack
	for name, test := range map[string]struct {
		child, owner string
		want         []string
	}{
		"nobody's":               {"sundae", "", nil},
		"of its owner's name":    {"sundae", "sundae", nil},
		"of another name":        {"cone", "sundae", []string{"parlor/uid-of-sundae"}},
		"of an owner misspelled": {"sundae", "Sundae", []string{"parlor/uid-of-sundae"}},
	} {
		d := foreign(test.child)
		if test.owner != "" {
			d.OwnerReferences = []metav1.OwnerReference{{Name: test.owner, UID: "uid-of-sundae", Controller: ptr.To(true)}}
		}
		packed, err := pack(d)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := ownerKeys(packed.(*informer.Packed))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, test.want, keys)
	}
}
