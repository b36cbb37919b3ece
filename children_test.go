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
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/fake"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/icecream"
	"nicoleh.io/k8s-controller/pkg/kit/apply"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/metrics"
)

// What a fork needs whose Icecreams own a StatefulSet and a Service: a row for each
// kind, and rules that decide about them. The rest of the controller stays as it is.
func TestChildrenOfAnyKind(t *testing.T) {
	statefulSets, services := appsv1.SchemeGroupVersion.WithResource("statefulsets"), corev1.SchemeGroupVersion.WithResource("services")
	synctest.Test(t, func(t *testing.T) {
		kube, client := kubefake.NewClientset(), fake.NewClientset(newIcecream())
		kube.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			obj := action.(clienttesting.CreateAction).GetObject().(metav1.Object)
			obj.SetUID(types.UID("uid-of-" + action.GetResource().Resource))
			obj.SetResourceVersion("1")
			return false, nil, nil
		})
		icecreams, builtin := externalversions.NewSharedInformerFactory(client, 0), kubeinformers.NewSharedInformerFactory(kube, 0)
		nameFor := func(ice *v1alpha1.Icecream) string { return ice.Name + "-db" }
		c, err := newController(&Controller{
			config:    usual,
			client:    client,
			clock:     clock.RealClock{},
			metrics:   metrics.For("icecream"),
			icecreams: icecreams.Controller().V1alpha1().Icecreams(),
			pods:      builtin.Core().V1().Pods(),
			children: map[schema.GroupVersionResource]childKind{
				statefulSets: {
					Writer:   apply.NewWriter(icecream.FieldManager, kube.AppsV1().StatefulSets),
					informer: builtin.Apps().V1().StatefulSets().Informer(),
					strip:    informer.Stripped(func(*appsv1.StatefulSet) {}),
					nameFor:  nameFor,
				},
				services: {
					Writer:   apply.NewWriter(icecream.FieldManager, kube.CoreV1().Services),
					informer: builtin.Core().V1().Services().Informer(),
					strip:    informer.Stripped(func(*corev1.Service) {}),
					nameFor:  nameFor,
				},
			},
		})
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
		act := func(d icecream.Decision) icecream.Outcome {
			t.Helper()
			d.Verdict = icecream.Act
			out, err := c.act(t.Context(), icecream.Assessment{Observed: observe()}, d)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}

		// Rules would decide this.
		ice := newIcecream()
		owner := metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("Icecream").WithName(ice.Name).WithUID(ice.UID).WithController(true)
		service := func(port int32) apply.Child {
			return apply.Child{Resource: services, Want: corev1ac.Service("sundae-db", namespace).WithOwnerReferences(owner).
				WithSpec(corev1ac.ServiceSpec().WithPorts(corev1ac.ServicePort().WithName("sql").WithPort(port)))}
		}
		set := apply.Child{Resource: statefulSets, Want: appsv1ac.StatefulSet("sundae-db", namespace).WithOwnerReferences(owner).
			WithSpec(appsv1ac.StatefulSetSpec().WithServiceName("sundae-db").WithReplicas(3))}

		created := act(icecream.Decision{Children: []apply.Child{service(5432), set}, RecheckLive: true}).Written
		equal(t, "created", []string{"uid-of-services", "uid-of-statefulsets"}, uidsOf(created))
		for resource, kind := range c.children {
			synctest.Wait()
			owned, err := kind.informer.GetIndexer().ByIndex(byOwner, key(namespace, string(ice.UID)))
			asking, _ := c.icecreams.TypedInformer().GetTypedIndexer().ByTypedIndex(byChild, childKey(resource, namespace, "sundae-db"))
			if len(owned) != 1 || len(asking) != 1 || err != nil {
				t.Errorf("%s: %d are the Icecream's, and %d Icecreams ask for them: %v", resource.Resource, len(owned), len(asking), err)
			}
		}

		ports := apply.Owner{Manager: icecream.FieldManager, Optional: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "ports")}}
		repaired := ports.Compare(service(3306), created[0])
		equal(t, "drift", `spec.ports[name="sql"].port`, repaired.Drift[0].Field)
		applied := act(icecream.Decision{Children: []apply.Child{repaired}}).Written
		equal(t, "port", 3306, applied[0].(*corev1.Service).Spec.Ports[0].Port)

		// One that is refused ends it, and is what the outcome is about.
		kube.PrependReactor("create", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(statefulSets.GroupResource(), "sundae-db", nil)
		})
		refused := act(icecream.Decision{Children: []apply.Child{repaired, set, repaired}, Deletions: []apply.Deletion{apply.Delete(services, applied[0])}})
		if len(refused.Written) != 1 || len(refused.Deleted) != 0 || !apierrors.IsForbidden(refused.Err) {
			t.Errorf("got %+v", refused)
		}

		deleted := act(icecream.Decision{Deletions: []apply.Deletion{apply.Delete(statefulSets, created[1]), apply.Delete(services, applied[0])}})
		equal(t, "deleted", []types.UID{"uid-of-statefulsets", "uid-of-services"}, deleted.Deleted)
		synctest.Wait()
		for resource, kind := range c.children {
			if left := kind.informer.GetIndexer().ListKeys(); len(left) > 0 {
				t.Errorf("%s are left: %v", resource.Resource, left)
			}
		}
	})
}

func uidsOf(objects []metav1.Object) (uids []string) {
	for _, obj := range objects {
		uids = append(uids, string(obj.GetUID()))
	}
	return uids
}
