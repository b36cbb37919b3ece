package explore

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// replicaSet is the kind of the owners of Pods. There are none: a reference has the name and
// the UID of the Deployment.
var replicaSet = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

var (
	deployments = appsv1.Resource("deployments")
	pods        = corev1.Resource("pods")
)

// All returns the objects of a resource, as a type, in order of their names.
func All[T any](w World, resource schema.GroupResource) []*T {
	var all []*T
	for _, key := range slices.SortedFunc(maps.Keys(w.Store.Objects), compareKeys) {
		if key.Resource == resource {
			all = append(all, As[T](w.Store.Objects[key]))
		}
	}
	return all
}

// Get returns an object as a type, or nil if there is none.
func Get[T any](w World, resource schema.GroupResource, namespace, name string) *T {
	object := w.Object(resource, namespace, name)
	if object == nil {
		return nil
	}
	return As[T](object)
}

// As returns an object as a type. It panics if the object is not of that type.
func As[T any](object *unstructured.Unstructured) *T {
	typed := new(T)
	if same, ok := any(typed).(*unstructured.Unstructured); ok {
		same.Object = object.DeepCopy().Object
		return typed
	}
	utilruntime.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed))
	return typed
}

func compareKeys(a, b apiserver.Key) int {
	return strings.Compare(a.Resource.String()+"/"+a.Namespace+"/"+a.Name, b.Resource.String()+"/"+b.Namespace+"/"+b.Name)
}

// Create returns the world with one object more. It panics if the API server refuses it.
func (w World) Create(o Object) World {
	after, err := w.with(o)
	utilruntime.Must(err)
	return after
}

func (w World) with(o Object) (World, error) {
	after, err := w.Server.Create(w.Store, w.Now, o.Manager, o.Object)
	if err != nil {
		return w, err
	}
	made := w.to(after)
	if o.UID == "" {
		return made, nil
	}
	for key, object := range after.Objects {
		if w.Store.Objects[key] != nil {
			continue
		}
		raw, err := object.MarshalJSON()
		if err != nil {
			return w, err
		}
		renamed := &unstructured.Unstructured{}
		if err := renamed.UnmarshalJSON(bytes.ReplaceAll(raw, []byte(object.GetUID()), []byte(o.UID))); err != nil {
			return w, err
		}
		after.Objects[key] = renamed
		for i := len(w.events); i < len(made.events); i++ {
			made.events[i].Object = renamed
		}
	}
	return made, nil
}

// Update returns the world after a change of an object. It panics if the API server refuses
// it.
func Update[T any](w World, manager string, resource schema.GroupResource, namespace, name, subresource string, change func(*T)) World {
	return w.must(w.Server.Update(w.Store, w.Now, manager, apiserver.Key{Resource: resource, Namespace: namespace, Name: name}, subresource, func(u *unstructured.Unstructured) {
		typed := As[T](u)
		change(typed)
		if same, ok := any(typed).(*unstructured.Unstructured); ok {
			u.Object = same.Object
			return
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		utilruntime.Must(err)
		u.Object = object
	}))
}

// Delete returns the world after the deletion of an object. It panics if the API server
// refuses it.
func (w World) Delete(resource schema.GroupResource, namespace, name string, options metav1.DeleteOptions) World {
	return w.must(w.Server.Delete(w.Store, w.Now, apiserver.Key{Resource: resource, Namespace: namespace, Name: name}, options))
}

func (w World) must(store apiserver.Store, err error) World {
	utilruntime.Must(err)
	return w.to(store)
}

// Collector is the garbage collector.
func Collector() Actor {
	return Actor{Name: "the garbage collector", Moves: func(w World) []Move {
		after, did, ok := w.Server.Collect(w.Store, w.Now)
		if !ok {
			return nil
		}
		return []Move{{Did: did, After: w.to(after)}}
	}}
}

// Rollouts is the deployment controller, the scheduler and the kubelet of a cluster in which
// nothing goes wrong: each Deployment gets as many Pods of its template as it wants, these
// become ready, and its status says so. Each of that is a move; or all of them are one, if
// isFast.
func Rollouts(isFast bool) Actor {
	return Actor{Name: "Kubernetes", Moves: func(w World) (moves []Move) {
		for _, d := range All[appsv1.Deployment](w, deployments) {
			if d.DeletionTimestamp != nil {
				continue
			}
			after, did := w, []string{}
			for _, stage := range []func(World, *appsv1.Deployment) (World, string){makePods, startPods, reportPods} {
				next, what := stage(after, d)
				if what == "" {
					continue
				}
				if !isFast {
					moves = append(moves, Move{Did: what, After: next})
				}
				after, did = next, append(did, what)
			}
			if isFast && len(did) > 0 {
				moves = append(moves, Move{Did: "rolls out Deployment " + d.Name, After: after})
			}
		}
		if after, did := removePods(w); did != "" {
			moves = append(moves, Move{Did: did, After: after})
		}
		return moves
	}}
}

// removePods deletes the Pods of Deployments that are gone.
func removePods(w World) (World, string) {
	did := ""
	for _, pod := range All[corev1.Pod](w, pods) {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || owner.Kind != replicaSet.Kind {
			continue
		}
		if d := w.Object(deployments, pod.Namespace, owner.Name); d != nil && d.GetUID() == owner.UID {
			continue
		}
		w = w.Delete(pods, pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		did = "deletes the Pods of a Deployment that is gone"
	}
	return w, did
}

// makePods makes the Pods that a Deployment wants, and deletes others.
func makePods(w World, d *appsv1.Deployment) (World, string) {
	isDone := true
	for _, pod := range podsOf(w, d) {
		if !isOf(d, &pod) || !slices.Contains(podNames(d), pod.Name) {
			w = w.Delete(pods, pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			isDone = false
		}
	}
	for i, name := range podNames(d) {
		if w.Object(pods, d.Namespace, name) != nil {
			continue
		}
		isDone = false
		spec := *d.Spec.Template.Spec.DeepCopy()
		spec.NodeName = fmt.Sprintf("node-%d", i+1)
		w = w.Create(Object{Manager: "kube-controller-manager", Object: &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: d.Namespace,
				Labels: d.Spec.Template.Labels, Annotations: d.Spec.Template.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, replicaSet)},
			},
			Spec: spec,
		}})
	}
	if isDone {
		return w, ""
	}
	return w, "makes the Pods of Deployment " + d.Name
}

func podNames(d *appsv1.Deployment) (names []string) {
	for i := range ptr.Deref(d.Spec.Replicas, 1) {
		names = append(names, fmt.Sprintf("%s-%d", d.Name, i+1))
	}
	return names
}

// podsOf returns the Pods that a Deployment controls.
func podsOf(w World, d *appsv1.Deployment) (owned []corev1.Pod) {
	for _, pod := range All[corev1.Pod](w, pods) {
		if pod.Namespace == d.Namespace && metav1.IsControlledBy(pod, d) {
			owned = append(owned, *pod)
		}
	}
	return owned
}

// isOf reports whether a Pod was made from the Deployment's present template.
func isOf(d *appsv1.Deployment, pod *corev1.Pod) bool {
	return maps.Equal(pod.Labels, d.Spec.Template.Labels) && maps.Equal(pod.Annotations, d.Spec.Template.Annotations)
}

// startPods makes the Pods ready.
func startPods(w World, d *appsv1.Deployment) (World, string) {
	isDone := true
	for _, pod := range podsOf(w, d) {
		if isReady(&pod) {
			continue
		}
		isDone = false
		w = Update(w, "kubelet", pods, pod.Namespace, pod.Name, "status", func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{
				Phase: corev1.PodRunning,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.Now)},
				},
			}
		})
	}
	if isDone {
		return w, ""
	}
	return w, "starts the Pods of Deployment " + d.Name
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// reportPods writes the Deployment's status.
func reportPods(w World, d *appsv1.Deployment) (World, string) {
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	for _, pod := range podsOf(w, d) {
		status.Replicas++
		if isOf(d, &pod) {
			status.UpdatedReplicas++
		}
		if isReady(&pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}
	status.UnavailableReplicas = max(0, ptr.Deref(d.Spec.Replicas, 1)-status.AvailableReplicas)
	if isSame(d.Status, status) {
		return w, ""
	}
	return Update(w, "kube-controller-manager", deployments, d.Namespace, d.Name, "status", func(d *appsv1.Deployment) {
		d.Status = status
	}), "reports on Deployment " + d.Name
}

func isSame(a, b appsv1.DeploymentStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.Replicas == b.Replicas && a.UpdatedReplicas == b.UpdatedReplicas &&
		a.ReadyReplicas == b.ReadyReplicas && a.AvailableReplicas == b.AvailableReplicas && a.UnavailableReplicas == b.UnavailableReplicas
}
