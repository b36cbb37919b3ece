package icecream

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/ledger"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// now is when everything in these tests begins.
var now = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

// deadline is how long there may be no progress by default.
const deadline = 10 * time.Minute

var equateEmpty = cmpopts.EquateEmpty()

// newIcecream returns an Icecream of three replicas, as edited.
func newIcecream(edits ...func(*v1alpha1.Icecream)) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: "parlor", Name: "sundae", UID: "uid-of-sundae", Generation: 1, ResourceVersion: "7"},
		Spec:       v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](3), Image: "registry.example/vanilla:1"},
	}
	for _, edit := range edits {
		edit(ice)
	}
	return ice
}

// calls has the Icecream ask for a Deployment of that name.
func calls(name string) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.DeploymentName = name }
}

func beingDeleted[T metav1.Object](obj T) { obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(now))) }

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "sundae", errors.New(why))
}

func invalid() error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "sundae", field.ErrorList{field.Required(field.NewPath("spec"), "")})
}

func terminating() error {
	err := forbidden("the namespace is being terminated").(*apierrors.StatusError) //nolint:errorlint // it is not wrapped
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// model is an API server.
var model = apiserver.New(apiserver.Options{}, apiserver.Deployments())

// made returns the Icecream's Deployment as the cache shows it when it is rolled out, as edited.
func made(tb rapid.TB, ice *v1alpha1.Icecream, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	tb.Helper()
	d := stored(tb, ice)
	for _, edit := range append([]func(*appsv1.Deployment){rolledOut}, edits...) {
		edit(d)
	}
	return stripped(d)
}

// stored returns the Icecream's Deployment as the API server stores it, and each edit.
func stored(tb rapid.TB, ice *v1alpha1.Icecream, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	tb.Helper()
	store, err := model.Create(apiserver.Store{}, now, NewDeployment(ice))
	if err != nil {
		tb.Fatal(err)
	}
	d := onlyOne(tb, store)
	for _, edit := range edits {
		edit(d)
		if store, err = model.Update(store, now, d); err != nil {
			tb.Fatal(err)
		}
		d = onlyOne(tb, store)
	}
	return d
}

// withPatch returns a stored Deployment with a patch.
func withPatch(tb rapid.TB, d *appsv1.Deployment, body []byte) *appsv1.Deployment {
	tb.Helper()
	store, err := model.Put(apiserver.Store{}, now, d)
	if err != nil {
		tb.Fatal(err)
	}
	store, response := model.Answer(store, now, apiserver.Request{
		Method: http.MethodPatch, Path: "/apis/apps/v1/namespaces/" + d.Namespace + "/deployments/" + d.Name,
		ContentType: string(types.StrategicMergePatchType), Body: body,
	})
	if response.Code != http.StatusOK {
		tb.Fatalf("%s: %s", body, response.Body)
	}
	return onlyOne(tb, store)
}

// onlyOne returns the only Deployment that is stored.
func onlyOne(tb rapid.TB, store apiserver.Store) *appsv1.Deployment {
	tb.Helper()
	d := &appsv1.Deployment{}
	for _, obj := range store.Objects {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.DeepCopy().Object, d); err != nil {
			tb.Fatal(err)
		}
	}
	d.Kind, d.APIVersion = "", ""
	return d
}

// repaired returns what is stored after one write, if anything is due, and what that was.
func repaired(tb rapid.TB, ice *v1alpha1.Icecream, d *appsv1.Deployment) (after *appsv1.Deployment, repairs string) {
	tb.Helper()
	o, _ := asking(seeing(ice, stripped(d)))
	due := o.Standing.Due
	if len(due) == 0 {
		return d, ""
	}
	body, err := o.Patch(due)
	if err != nil {
		tb.Fatal(err)
	}
	return withPatch(tb, d, body), driftOf(o, due)
}

// rolledOut gives a Deployment the status that it has when its rollout is over.
func rolledOut(d *appsv1.Deployment) {
	n := ptr.Deref(d.Spec.Replicas, 1)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
}

// seeing returns what is observed of an Icecream, these Deployments, and their Pods.
func seeing(ice *v1alpha1.Icecream, deployments ...*appsv1.Deployment) Observed {
	o := Observed{Now: now, Icecream: ice}
	for _, d := range deployments {
		if d.Name == DeploymentName(ice) {
			o.Live = d
		}
		if d.Labels[LabelIcecream] == ice.Name {
			o.Pods = append(o.Pods, podsOf(d, "node-1", "node-2")...)
		}
	}
	return o
}

// podsOf returns the Pods that a Deployment has so far, one after the other on these nodes,
// all ready.
func podsOf(d *appsv1.Deployment, nodes ...string) (pods []Pod) {
	for i := range max(0, int(d.Status.Replicas)) {
		pods = append(pods, Pod{
			Name: fmt.Sprintf("%s-%d", d.Name, i), Node: nodes[i%len(nodes)], Ready: true,
			ReplicaSet: d.Name + "-7c8b", TemplateHash: "7c8b", SpecHash: d.Spec.Template.Annotations[AnnotationSpecHash],
		})
	}
	return pods
}

// asking returns what is observed with what a new process knows about its plan's asks.
func asking(o Observed) (Observed, Plan) {
	plan := Decide(o)
	if plan.Asks != nil {
		o.Standing = ledger.New().Of(cache.MetaObjectToName(o.Icecream), o.Icecream.UID).Standing(o.Now, plan.Asks)
	}
	return o, plan
}

// report returns what is reported about what is observed, if nothing is written.
func report(tb rapid.TB, o Observed) Report {
	tb.Helper()
	return Status(asking(o))
}

// lasting returns what a process remembers that has seen the same for that long.
func lasting(tb rapid.TB, o Observed, d time.Duration) Memory {
	tb.Helper()
	o.Now, o.Memory = o.Now.Add(-d), Memory{}
	return report(tb, o).Memory
}

// newPod returns a Pod of the plain Icecream that has been ready for an hour, as edited.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	ice := newIcecream()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "parlor", Name: "sundae-1", UID: "uid-of-sundae-1", ResourceVersion: "9",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels:            map[string]string{LabelIcecream: "sundae", appsv1.DefaultDeploymentUniqueLabelKey: "7c8b"},
			Annotations:       map[string]string{AnnotationSpecHash: specHash(ice.Spec)},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "sundae-7c8b", UID: "uid-of-a-replica-set", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: kittest.ReadyStatus(containerName, ice.Spec.Image, now.Add(-time.Hour)),
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// seen returns a Pod of the plain Icecream, as edited and as the controller reads it.
func seen(edits ...func(*corev1.Pod)) Pod {
	p, _ := PodOf(newPod(edits...))
	return p
}

// notReady makes a Pod one that has not been ready for that long.
func notReady(age time.Duration) func(*corev1.Pod) { return kittest.NotReady(now.Add(-age)) }

// unschedulable makes a Pod one for which no node has been found for that long.
func unschedulable(age time.Duration) func(*corev1.Pod) { return kittest.Unschedulable(now.Add(-age)) }

// hasFailed makes a Pod one that its node has rejected.
func hasFailed(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"}
}

// waiting returns a Pod whose container has waited for that long.
func waiting(reason string, age time.Duration) Pod {
	return seen(notReady(age), kittest.Waits(reason, "out of cream"))
}
