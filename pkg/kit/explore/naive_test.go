package explore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

const namespace = "default"

var (
	foosGVR     = schema.GroupVersionResource{Group: "samples.example.com", Version: "v1", Resource: "foos"}
	foos        = foosGVR.GroupResource()
	deployments = appsv1.Resource("deployments")
	fooKind     = foosGVR.GroupVersion().WithKind("Foo")
)

// naive is a controller as one writes it after reading kubernetes/sample-controller: each Foo
// gets the Deployment that it names, and says how many of its Pods are available.
type naive struct {
	foos        informer.Cache[*unstructured.Unstructured]
	deployments informer.Cache[*appsv1.Deployment]
	client      dynamic.Interface
	kube        kubernetes.Interface
	// countsSyncs makes each sync write something new.
	countsSyncs bool
	// forces makes it overwrite the status, whatever has become of the Foo.
	forces bool
	// polls makes it look at each Foo every hour, and follow no Deployment.
	polls bool
	// reads makes it read a Deployment that it could not create, for as long as reads says so.
	reads func(n int, err error) bool
}

// newNaive makes the controller as a process does.
func newNaive(n naive) func(manager.Dependencies) (explore.Instance, error) {
	return func(d manager.Dependencies) (made explore.Instance, err error) {
		n := n
		if n.client, err = dynamic.NewForConfig(d.Config); err != nil {
			return made, err
		}
		if n.kube, err = kubernetes.NewForConfig(d.Config); err != nil {
			return made, err
		}
		n.foos = informer.NewCache[*unstructured.Unstructured](d.Caches, preflight.Resource{GroupVersionResource: foosGVR}, n.client.Resource(foosGVR), &unstructured.Unstructured{}, 0)
		n.deployments = informer.NewCache[*appsv1.Deployment](d.Caches, preflight.Resource{GroupVersionResource: appsv1.SchemeGroupVersion.WithResource("deployments")}, n.kube.AppsV1().Deployments(""), &appsv1.Deployment{}, 0)
		loop := worker.New("naive", n.sync, worker.WithClock(d.Clock), worker.WithKeys(informer.Keys(n.foos.GetStore())))
		if _, err := n.foos.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    informer.Named(loop.Add),
			UpdateFunc: func(_, obj any) { informer.Named(loop.Add)(obj) },
		}); err != nil {
			return made, err
		}
		_, err = n.deployments.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]{
			AddFunc:    func(d *appsv1.Deployment) { n.addOwner(loop, d) },
			UpdateFunc: func(_, d *appsv1.Deployment) { n.addOwner(loop, d) },
			DeleteFunc: func(d cache.DeletedObject[*appsv1.Deployment]) { n.addOwner(loop, d.OptionalObj) },
		})
		return explore.Instance{Loop: loop}, err
	}
}

func (n *naive) addOwner(loop *worker.Loop, d *appsv1.Deployment) {
	if owner := metav1.GetControllerOf(d); owner != nil && owner.Kind == "Foo" && !n.polls {
		loop.Add(cache.NewObjectName(d.Namespace, owner.Name))
	}
}

func (n *naive) sync(ctx context.Context, name cache.ObjectName) (requeueAfter time.Duration, err error) {
	if n.polls {
		requeueAfter = time.Hour
	}
	foo := n.foos.Get(name.Namespace, name.Name)
	if foo == nil {
		return 0, nil
	}
	wanted, _, err := unstructured.NestedString(foo.Object, "spec", "deploymentName")
	if err != nil {
		return 0, err
	}
	d := n.deployments.Get(name.Namespace, wanted)
	if d == nil {
		if d, err = n.kube.AppsV1().Deployments(name.Namespace).Create(ctx, deploymentOf(foo, wanted), metav1.CreateOptions{}); err != nil {
			return 0, errors.Join(err, n.read(ctx, name.Namespace, wanted))
		}
	}
	if !metav1.IsControlledBy(d, foo) {
		return 0, fmt.Errorf("resource %q already exists and is not managed by Foo", d.Name)
	}
	updated := foo.DeepCopy()
	status := map[string]any{"availableReplicas": int64(d.Status.AvailableReplicas)}
	if n.countsSyncs {
		syncs, _, err := unstructured.NestedInt64(foo.Object, "status", "syncs")
		if err != nil {
			return 0, err
		}
		status["syncs"] = syncs + 1
	}
	updated.Object["status"] = status
	if n.forces {
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return 0, err
		}
		_, err = n.client.Resource(foosGVR).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		return 0, err
	}
	_, err = n.client.Resource(foosGVR).Namespace(name.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{})
	return requeueAfter, err
}

// read reads a Deployment that could not be created.
func (n *naive) read(ctx context.Context, namespace, name string) (err error) {
	for i := 0; n.reads != nil && n.reads(i, err); i++ {
		_, err = n.kube.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return err
}

func deploymentOf(foo *unstructured.Unstructured, name string) *appsv1.Deployment {
	labels := map[string]string{"controller": foo.GetName()}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: foo.GetNamespace(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, fooKind)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
}

// naively is the controller with one Foo, in a cluster in which Deployments roll out. People
// rename the Deployment, or make a Deployment of another name themselves.
func naively(n naive) explore.Setup {
	foo := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"deploymentName": "one"}}}
	foo.SetGroupVersionKind(fooKind)
	foo.SetNamespace(namespace)
	foo.SetName("bar")
	return explore.Setup{
		Kinds: []apiserver.Kind{
			apiserver.CustomResource(foosGVR, "Foo", managedfields.NewDeducedTypeConverter(), nil),
			apiserver.Deployments(),
			apiserver.Pods(),
		},
		Objects:  []explore.Object{{Manager: "people", Object: foo}},
		Programs: []explore.Program{{Name: "the controller", Elected: true, New: newNaive(n)}},
		World:    []explore.Actor{explore.Rollouts(true), explore.Collector()},
		Edits: []explore.Actor{{Name: "somebody", Moves: func(w explore.World) []explore.Move {
			return []explore.Move{{Did: "renames the Deployment", After: explore.Update(w, "people", foos, namespace, "bar", "", func(u *unstructured.Unstructured) {
				u.Object["spec"] = map[string]any{"deploymentName": "two"}
			})}}
		}}},
		Checks:   explore.Checks{Stored: neverBack, Rest: oneDeployment},
		Requests: 10,
		Settles:  time.Minute,
	}
}
