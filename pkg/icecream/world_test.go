package icecream

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// world is one Icecream, what an API server stores beside it, and what the controller
// remembers.
type world struct {
	tb     rapid.TB
	ice    *v1alpha1.Icecream
	now    time.Time
	memory Memory
	ledger *ledger.Ledger
	store  apiserver.Store
	policy func(*appsv1.Deployment) // changes what the controller writes, as a webhook does; nil does not
	waits  string                   // what all Pods wait for; empty if they run
}

// model is the API server of all worlds.
var model = apiserver.New(apiserver.Options{}, apiserver.Deployments())

func newWorld(tb rapid.TB, ice *v1alpha1.Icecream) *world {
	return &world{tb: tb, ice: ice, now: now, ledger: ledger.New()}
}

// made returns the Icecream's Deployment as the cache shows it when it is rolled out.
func made(tb rapid.TB, ice *v1alpha1.Icecream, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	tb.Helper()
	w := newWorld(tb, ice)
	w.sync(nil)
	w.rollOut()
	d := w.deployment(DeploymentName(ice))
	d.Kind, d.APIVersion = "", ""
	for _, edit := range edits {
		edit(d)
	}
	return stripped(d)
}

func (w *world) key(name string) apiserver.Key {
	return apiserver.Key{Resource: apiserver.Deployments().Resource.GroupResource(), Namespace: w.ice.Namespace, Name: name}
}

// deployments returns all Deployments, sorted by name.
func (w *world) deployments() (all []*appsv1.Deployment) {
	for _, key := range slices.SortedFunc(maps.Keys(w.store.Objects), func(a, b apiserver.Key) int { return strings.Compare(a.Name, b.Name) }) {
		all = append(all, w.deployment(key.Name))
	}
	return all
}

// deployment returns the Deployment of that name; nil if there is none.
func (w *world) deployment(name string) *appsv1.Deployment {
	w.tb.Helper()
	stored, ok := w.store.Objects[w.key(name)]
	if !ok {
		return nil
	}
	d := &appsv1.Deployment{}
	w.check(runtime.DefaultUnstructuredConverter.FromUnstructured(stored.DeepCopy().Object, d))
	return d
}

func (w *world) check(err error) {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
}

// edit has somebody change a Deployment.
func (w *world) edit(manager, name string, edit func(*appsv1.Deployment)) {
	w.tb.Helper()
	d := w.deployment(name)
	edit(d)
	if equality.Semantic.DeepEqual(d, w.deployment(name)) {
		return
	}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: ptr.To(metav1.NewTime(w.now)), FieldsType: "FieldsV1",
	}}
	body, err := json.Marshal(d)
	w.check(err)
	w.send(name, apiserver.Request{Method: http.MethodPut, ContentType: runtime.ContentTypeJSON, Body: body})
}

// setStatus has the Deployment controller change the status of a Deployment.
func (w *world) setStatus(name string, edit func(*appsv1.Deployment)) {
	w.tb.Helper()
	d := w.deployment(name)
	edit(d)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	w.check(err)
	w.store, err = model.Put(w.store, w.now, &unstructured.Unstructured{Object: content})
	w.check(err)
}

// delete has somebody request the deletion of a Deployment, which stays until its dependents
// are gone.
func (w *world) delete(name string) {
	w.tb.Helper()
	var err error
	w.store, err = model.Delete(w.store, w.now, w.key(name), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	w.check(err)
}

// rollOut has the Deployment controller and the garbage collector do all of their work.
func (w *world) rollOut() {
	w.tb.Helper()
	for _, d := range w.deployments() {
		if d.DeletionTimestamp != nil {
			w.edit("kube-controller-manager", d.Name, func(d *appsv1.Deployment) { d.Finalizers = []string{} })
			continue
		}
		w.setStatus(d.Name, rolledOut)
		if w.waits != "" {
			w.setStatus(d.Name, func(d *appsv1.Deployment) { d.Status.ReadyReplicas, d.Status.AvailableReplicas = 0, 0 })
		}
	}
}

// rolledOut gives a Deployment the status that it has when its rollout is over.
func rolledOut(d *appsv1.Deployment) {
	n := ptr.Deref(d.Spec.Replicas, 1)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
}

// ghost is the UID of an Icecream that no longer exists.
const ghost = types.UID("uid-of-a-ghost")

// observe returns what the controller sees if its caches are up to date.
func (w *world) observe() Observed {
	w.tb.Helper()
	var all []*appsv1.Deployment
	for _, d := range w.deployments() {
		d.Kind, d.APIVersion = "", ""
		all = append(all, stripped(d))
	}
	o := seeing(w.ice, all...)
	o.Now, o.Memory = w.now, w.memory
	if o.Live != nil {
		owner := metav1.GetControllerOf(o.Live)
		o.OwnerIsGone = owner != nil && owner.UID == ghost
	}
	for i := range o.Pods {
		if w.waits != "" {
			broken := seen(notReady(0), kittest.Waits(w.waits, "because"))
			o.Pods[i].Ready, o.Pods[i].Problem = false, broken.Problem
		}
	}
	return o
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

// synced is what came of one sync.
type synced struct {
	plan   Plan
	due    []ledger.Ask
	words  string // what was to be done
	report Report
	events []string
	writes int
}

// sync does what the controller does in one sync. If there is a refusal, the API server
// answers each write with it.
func (w *world) sync(refusal error) (s synced) {
	w.tb.Helper()
	o := w.observe()
	s.plan = Decide(o)
	account := w.account()
	if s.plan.Asks != nil {
		o.Standing = account.Standing(w.now, s.plan.Asks)
	}
	s.due, s.words = o.Standing.Due, inWordsOf(o, s.plan)
	isCreation := o.Live == nil
	if isCreation && len(s.due) > 0 {
		s.due = s.plan.Asks
	}
	for due := s.due; len(due) > 0; {
		r := Result{Refusal: refusal}
		if refusal == nil {
			r = w.carryOut(o, due)
		}
		asked := due
		due = nil
		if r.Refusal != nil && !isCreation && len(asked) > 1 {
			asked, due = asked[:1], asked[1:]
		}
		after, outcomes, event := o.With(asked, r)
		for i, ask := range asked {
			account.Note(w.now, ask, outcomes[i])
		}
		s.tell(event)
		s.writes++
		o = after
	}
	if s.plan.Asks != nil {
		o.Standing = account.Standing(w.now, o.Asks())
	}
	s.report = Status(o, s.plan)
	w.memory = s.report.Memory
	if !equality.Semantic.DeepEqual(o.Icecream.Status, s.report.Status) {
		s.tell(StatusEvent(o, s.report.Status))
		w.ice = w.ice.DeepCopy()
		w.ice.Status = s.report.Status
		s.writes++
	}
	return s
}

func (w *world) account() *ledger.Account {
	return w.ledger.Of(cache.MetaObjectToName(w.ice), w.ice.UID)
}

func (s *synced) tell(e Event) {
	if e != (Event{}) {
		s.events = append(s.events, inWords(e))
	}
}

func inWords(e Event) string { return e.Type + " " + e.Reason + ": " + e.Message }

// carryOut writes what is due, which must succeed.
func (w *world) carryOut(o Observed, due []ledger.Ask) (r Result) {
	w.tb.Helper()
	name := DeploymentName(o.Icecream)
	if o.Live == nil {
		body, err := json.Marshal(NewDeployment(o.Icecream))
		w.check(err)
		w.send("", apiserver.Request{Method: http.MethodPost, ContentType: runtime.ContentTypeJSON, Body: body})
	} else {
		body, err := o.Patch(due)
		w.check(err)
		r.Other = LastWriter(w.deployment(name))
		w.send(name, apiserver.Request{Method: http.MethodPatch, ContentType: string(types.StrategicMergePatchType), Body: body})
	}
	if w.policy != nil {
		w.edit("webhook", name, w.policy)
	}
	r.Stored = w.deployment(name)
	return r
}

func (w *world) send(name string, request apiserver.Request) {
	w.tb.Helper()
	request.Path = "/apis/apps/v1/namespaces/" + w.ice.Namespace + "/deployments"
	if name != "" {
		request.Path += "/" + name
	}
	after, response := model.Answer(w.store, w.now, request)
	if response.Code >= http.StatusBadRequest {
		w.tb.Fatalf("%s %s: %s", request.Method, request.Path, response.Body)
	}
	w.store = after
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
