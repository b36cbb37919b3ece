package icecream

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/kit/kstatus"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
	"nicoleh.io/k8s-controller/pkg/kittest"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

// now is when everything in these tests happens.
var now = time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC)

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

func scaledTo(n int32) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Replicas = ptr.To(n) }
}

func withImage(image string) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Image = image }
}

func withTemplate(template string) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) { ice.Spec.Template = &runtime.RawExtension{Raw: []byte(template)} }
}

// has gives an Icecream the conditions that say that since some time.
func has(state kstatus.State, reason string, age time.Duration) func(*v1alpha1.Icecream) {
	return func(ice *v1alpha1.Icecream) {
		kstatus.Conclusion{State: state, Reason: reason}.SetOn(&ice.Status.Conditions, ice.Generation, now.Add(-age))
	}
}

func beingDeleted[T metav1.Object](obj T) { obj.SetDeletionTimestamp(ptr.To(metav1.NewTime(now))) }

func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

// scaled is what people do with kubectl scale.
func scaled(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) }

// runs returns an edit of a Deployment: it runs another image.
func runs(image string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { ours(d).Image = image }
}

// ours returns our container of a Deployment.
func ours(d *appsv1.Deployment) *corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	return &containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })]
}

func forbidden(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "sundae", errors.New(why))
}

func invalid() error {
	required := field.Required(field.NewPath("spec"), "")
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "sundae", field.ErrorList{required})
}

func terminating() error {
	err := forbidden("the namespace is being terminated").(*apierrors.StatusError) //nolint:errorlint // it is not wrapped
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// attempt returns what is remembered after that many equal writes, the first of them that long ago.
func attempt(ice *v1alpha1.Icecream, failure error, count int, age time.Duration) pace.Attempt {
	return pace.Attempt{Wish: Decide(Observed{Now: now, Icecream: ice}).Wish, Failure: failure, Count: count, Since: now.Add(-age), At: now}
}

// made returns the Icecream's Deployment as the cache shows it when it is rolled out and somebody has edited it.
func made(tb rapid.TB, ice *v1alpha1.Icecream, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	tb.Helper()
	store := applied(tb, apiserver.Store{}, ice)
	d := onlyOne(tb, store)
	rolledOut(d)
	for _, edit := range edits {
		edit(d)
	}
	store, err := model.Put(store, now, d)
	if err != nil {
		tb.Fatal(err)
	}
	return stripped(onlyOne(tb, store))
}

// admitted returns the Icecream's Deployment as the cache shows it when it is rolled out. Admission has changed it when
// it was created.
func admitted(tb rapid.TB, ice *v1alpha1.Icecream, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	tb.Helper()
	d := onlyOne(tb, applied(tb, apiserver.Store{}, ice))
	for _, change := range changes {
		change(d)
	}
	rolledOut(d)
	return stripped(d)
}

// model is an API server.
var model = apiserver.New(apiserver.Options{}, apiserver.Deployments())

// stored returns the Icecream's Deployment as the API server stores it, and each edit of somebody else.
func stored(tb rapid.TB, ice *v1alpha1.Icecream, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	tb.Helper()
	store := applied(tb, apiserver.Store{}, ice)
	for _, edit := range edits {
		store = edited(tb, store, edit)
	}
	return onlyOne(tb, store)
}

// edited returns the store after somebody has edited the Deployment.
func edited(tb rapid.TB, store apiserver.Store, edit func(*appsv1.Deployment)) apiserver.Store {
	tb.Helper()
	d := onlyOne(tb, store)
	edit(d)
	store, err := model.Update(store, now, d)
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

// applied returns the store after the write that is decided from what the cache keeps of the Deployment, if one is.
func applied(tb rapid.TB, store apiserver.Store, ice *v1alpha1.Icecream) apiserver.Store {
	tb.Helper()
	return appliedTo(tb, model, store, ice)
}

func appliedTo(tb rapid.TB, server *apiserver.Server, store apiserver.Store, ice *v1alpha1.Icecream) apiserver.Store {
	tb.Helper()
	store, response := send(server, store, ice)
	if response.Code >= http.StatusBadRequest {
		tb.Fatalf("%s", response.Body)
	}
	return store
}

// send writes what is decided from what the cache keeps of the Deployment.
func send(server *apiserver.Server, store apiserver.Store, ice *v1alpha1.Icecream) (apiserver.Store, apiserver.Response) {
	o := Observed{Now: now, Icecream: ice}
	for _, obj := range store.Objects {
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.DeepCopy().Object, d); err != nil {
			return store, apiserver.Refuse(err)
		}
		o.Live = stripped(d)
	}
	plan := Decide(o)
	request := cmp.Or(plan.Apply, plan.Scale)
	if request == nil {
		return store, apiserver.Response{}
	}
	query := url.Values{"fieldManager": {FieldManager}}
	if request.Options(FieldManager).Force != nil {
		query.Set("force", "true")
	}
	return server.Answer(store, now, apiserver.Request{
		Method:      http.MethodPatch,
		Path:        "/apis/apps/v1/namespaces/" + ice.Namespace + "/deployments/" + DeploymentName(ice),
		Query:       query,
		ContentType: string(request.Type),
		Body:        request.Body,
	})
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

// rolledOut gives a Deployment the status that it has when its rollout is over.
func rolledOut(d *appsv1.Deployment) {
	n := ptr.Deref(d.Spec.Replicas, 1)
	d.Status = appsv1.DeploymentStatus{Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	d.Status.ObservedGeneration = d.Generation
}

// rollingOut gives a Deployment the status that it has when one Pod is not available yet.
func rollingOut(d *appsv1.Deployment) {
	rolledOut(d)
	d.Status.ReadyReplicas--
	d.Status.AvailableReplicas--
}

// says gives a Deployment a condition.
func says(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		condition := appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message}
		d.Status.Conditions = append(d.Status.Conditions, condition)
	}
}

// seeing returns what is observed of an Icecream, the Deployment of its name, and the Pods of that.
func seeing(ice *v1alpha1.Icecream, live *appsv1.Deployment) Observed {
	o := Observed{Now: now, Icecream: ice, Live: live}
	if live != nil {
		o.Pods = podsOf(live, "node-1", "node-2")
	}
	return o
}

// podsOf returns the Pods that a Deployment has so far, one after the other on these nodes,
// all ready.
func podsOf(d *appsv1.Deployment, nodes ...string) (pods []Pod) {
	for i := range max(0, int(d.Status.Replicas)) {
		pods = append(pods, Pod{
			Name: fmt.Sprintf("%s-%d", d.Name, i), Node: nodes[i%len(nodes)], Ready: true,
			ReplicaSet: d.Name + "-7c8b", TemplateHash: "7c8b", Created: now.Add(-time.Hour),
		})
	}
	return pods
}

// decided says what is to be written, or why nothing is.
func decided(o Observed) string {
	plan := Decide(o)
	switch {
	case plan.Held.Reason != "" && plan.Scale != nil:
		return fmt.Sprintf("replicas; %s: %s: %s", plan.Held.State, plan.Held.Reason, plan.Held.Message)
	case plan.Held.Reason != "":
		return fmt.Sprintf("%s: %s: %s", plan.Held.State, plan.Held.Reason, plan.Held.Message)
	case plan.Apply != nil && plan.Scale != nil:
		return "everything, or replicas"
	case plan.Apply != nil:
		return "everything"
	case plan.Scale != nil:
		return "replicas"
	default:
		return "nothing"
	}
}

// reported says what the status reports if nothing is written now, and after how long it is to be looked at again.
func reported(o Observed) (verdict string, recheckAfter time.Duration) {
	s, recheckAfter := Status(o, Decide(o))
	return verdictOf(s) + ": " + messageOf(s), recheckAfter
}

// verdictOf returns what the three conditions say together: the one that is True and the
// reason, or what is wrong with them.
func verdictOf(s v1alpha1.IcecreamStatus) string {
	var verdict string
	for _, name := range kstatus.States() {
		c := meta.FindStatusCondition(s.Conditions, string(name))
		if c == nil || c.ObservedGeneration != s.ObservedGeneration || c.Reason == "" || c.LastTransitionTime.IsZero() {
			return fmt.Sprintf("%s is %+v", name, c)
		}
		if c.Status == metav1.ConditionTrue {
			verdict += string(name) + ": " + c.Reason
		}
	}
	return verdict
}

func messageOf(s v1alpha1.IcecreamStatus) string {
	return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady).Message
}

// newPod returns a Pod of the plain Icecream that has been ready for an hour, as edited.
func newPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "parlor", Name: "sundae-1", UID: "uid-of-sundae-1", ResourceVersion: "9",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels:            map[string]string{LabelIcecream: "sundae"},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "9", Controller: ptr.To(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: kittest.ReadyStatus(containerName, "registry.example/vanilla:1", now.Add(-time.Hour)),
	}
	ofTemplate("7c8b", time.Hour)(pod)
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// seen returns a Pod of the plain Icecream, as edited and as the controller reads it.
func seen(edits ...func(*corev1.Pod)) Pod {
	p, _ := PodOf(newPod(edits...), now)
	return p
}

// ofTemplate makes a Pod one of the ReplicaSet of that template.
func ofTemplate(hash string, age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.CreationTimestamp = metav1.NewTime(now.Add(-age))
		pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		pod.OwnerReferences[0].Name = "sundae-" + hash
	}
}

// notReady makes a Pod one that has not been ready for that long.
func notReady(age time.Duration) func(*corev1.Pod) { return kittest.NotReady(now.Add(-age)) }

// unschedulable makes a Pod one for which no node has been found for that long.
func unschedulable(age time.Duration) func(*corev1.Pod) { return kittest.Unschedulable(now.Add(-age)) }

// hasFailed makes a Pod one that its node rejected that long ago.
func hasFailed(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		notReady(age)(pod)
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "OutOfcpu", "Node didn't have enough resource: cpu"
	}
}

// recovered makes a Pod one that is ready again, and whose container was started after a crash that long ago.
func recovered(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		kittest.Ended(1, "Error")(pod)
		pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(now.Add(-age))
	}
}

// cannotPull makes a Pod one whose image has not been pulled for that long.
func cannotPull(age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		notReady(age)(pod)
		kittest.Waits("ErrImagePull", "denied")(pod)
	}
}
