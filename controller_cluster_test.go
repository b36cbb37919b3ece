package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/pkg/generated/clientset/versioned/fake"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/pkg/kittest"
)

const namespace = "parlor"

var (
	icecreamsGVR   = v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)
	deploymentsGVR = appsv1.SchemeGroupVersion.WithResource("deployments")
	podsGVR        = corev1.SchemeGroupVersion.WithResource("pods")
)

// cluster is the generated fake clientsets with what they lack for a controller
// that looks at UIDs, resource versions and generations; and with watches that
// can be held up, so that caches trail the server for as long as a test likes.
type cluster struct {
	t        *testing.T
	kube     kubefake.Clientset
	client   fake.Clientset
	trackers map[schema.GroupVersionResource]clienttesting.ObjectTracker

	mu       sync.Mutex
	made     int // objects and versions so far
	watches  kittest.Watches
	refusals map[string][]error // by verb and resource: the answers to the next requests
	deny     func(request string) error
	policy   func(*appsv1.Deployment) // changes what is about to be stored

	told     []string // events
	reported []string // errors that a loop reported
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		t:        t,
		trackers: newTrackers(),
		made:     100,
		refusals: map[string][]error{},
	}
	for _, f := range []*clienttesting.Fake{&c.kube.Fake, &c.client.Fake} {
		f.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			obj, err := c.react(action)
			return true, obj, err
		})
		f.PrependWatchReactor("*", c.watches.React)
	}
	return c
}

// newTrackers keep the objects, those of Deployments with their managed fields.
func newTrackers() map[schema.GroupVersionResource]clienttesting.ObjectTracker {
	decoder := codecs.UniversalDecoder()
	return map[schema.GroupVersionResource]clienttesting.ObjectTracker{
		icecreamsGVR:   clienttesting.NewObjectTracker(few, decoder),
		deploymentsGVR: clienttesting.NewFieldManagedObjectTracker(few, decoder, typeConverter),
		podsGVR:        clienttesting.NewObjectTracker(few, decoder),
	}
}

// few are the kinds that there are. A tracker with managed fields goes through
// all that it knows at every write.
var (
	few = func() *runtime.Scheme {
		s := runtime.NewScheme()
		metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
		for _, add := range []func(*runtime.Scheme) error{v1alpha1.Install, appsv1.AddToScheme} {
			utilruntime.Must(add(s))
		}
		s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{})
		return s
	}()
	codecs        = serializer.NewCodecFactory(few)
	typeConverter = applyconfigurations.NewTypeConverter(few)
)

// react answers a request.
func (c *cluster) react(action clienttesting.Action) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := action.GetVerb() + " " + action.GetResource().Resource
	if c.deny != nil {
		if err := c.deny(key); err != nil {
			return nil, err
		}
	}
	if answers := c.refusals[key]; len(answers) > 0 {
		answer := answers[0]
		c.refusals[key] = answers[1:]
		if errors.Is(answer, errLost) {
			if _, err := c.carryOut(action); err != nil {
				return nil, err
			}
		}
		if answer != nil {
			return nil, answer
		}
	}
	return c.carryOut(action)
}

// errLost is the refusal of a request that is carried out all the same.
var errLost = errors.New("connection lost")

func (c *cluster) carryOut(action clienttesting.Action) (runtime.Object, error) {
	gvr := action.GetResource()
	switch action := action.(type) {
	case clienttesting.ListActionImpl:
		_, list, err := clienttesting.ObjectReaction(c.trackers[gvr])(action)
		if err == nil {
			list.(metav1.ListInterface).SetResourceVersion(strconv.Itoa(c.made))
		}
		return list, err
	case clienttesting.CreateActionImpl:
		return c.create(gvr, action.GetObject().DeepCopyObject(), action.CreateOptions)
	case clienttesting.UpdateActionImpl:
		return c.updateStatus(gvr, action)
	case clienttesting.PatchActionImpl:
		return c.patch(gvr, action)
	case clienttesting.DeleteActionImpl:
		return nil, c.remove(gvr, action.GetName(), action.DeleteOptions.Preconditions)
	default:
		_, obj, err := clienttesting.ObjectReaction(c.trackers[gvr])(action)
		return obj, err
	}
}

func (c *cluster) version() string {
	c.made++
	return strconv.Itoa(c.made)
}

func (c *cluster) create(gvr schema.GroupVersionResource, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	m := obj.(metav1.Object)
	if d, ok := obj.(*appsv1.Deployment); ok && c.policy != nil {
		c.policy(d)
	}
	if m.GetUID() == "" {
		m.SetUID(types.UID("uid-" + c.version()))
	}
	m.SetGeneration(max(m.GetGeneration(), 1))
	m.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	m.SetResourceVersion(c.version())
	if err := c.trackers[gvr].Create(gvr, obj, namespace, opts); err != nil {
		return nil, err
	}
	return c.show(gvr, nil, m.GetName()), nil
}

// update keeps an object as it has become, if it has become anything else.
func (c *cluster) update(gvr schema.GroupVersionResource, before, after runtime.Object) runtime.Object {
	if equality.Semantic.DeepEqual(before, after) {
		return after
	}
	is, was := after.(metav1.Object), before.(metav1.Object)
	is.SetResourceVersion(c.version())
	is.SetGeneration(was.GetGeneration())
	if !equality.Semantic.DeepEqual(specOf(before), specOf(after)) {
		is.SetGeneration(was.GetGeneration() + 1)
	}
	if err := c.trackers[gvr].Update(gvr, after, namespace, metav1.UpdateOptions{FieldManager: "cluster"}); err != nil {
		c.t.Errorf("updating %s: %v", is.GetName(), err)
	}
	return c.show(gvr, before, is.GetName())
}

func specOf(obj runtime.Object) any {
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		return obj.Spec
	case *v1alpha1.Icecream:
		return obj.Spec
	default:
		return nil
	}
}

func (c *cluster) patch(gvr schema.GroupVersionResource, action clienttesting.PatchActionImpl) (runtime.Object, error) {
	before, err := c.trackers[gvr].Get(gvr, namespace, action.GetName())
	if err != nil {
		return nil, err
	}
	var precondition metav1.PartialObjectMetadata
	if err := json.Unmarshal(action.GetPatch(), &precondition); err != nil {
		return nil, err
	}
	if precondition.UID != before.(metav1.Object).GetUID() {
		return nil, apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), action.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), precondition.UID, "field is immutable"),
		})
	}
	if version := precondition.ResourceVersion; version != "" && version != before.(metav1.Object).GetResourceVersion() {
		return nil, conflict(gvr, action.GetName())
	}
	_, after, err := clienttesting.ObjectReaction(c.trackers[gvr])(action)
	if err != nil {
		return nil, err
	}
	if d, ok := after.(*appsv1.Deployment); ok && c.policy != nil {
		c.policy(d)
	}
	return c.update(gvr, before, after), nil
}

// updateStatus is a PUT to the status subresource, which takes the status and
// nothing else.
func (c *cluster) updateStatus(gvr schema.GroupVersionResource, action clienttesting.UpdateActionImpl) (runtime.Object, error) {
	sent, ok := action.GetObject().(*v1alpha1.Icecream)
	if !ok || action.GetSubresource() != "status" {
		return nil, apierrors.NewMethodNotSupported(gvr.GroupResource(), action.GetVerb())
	}
	obj, err := c.trackers[gvr].Get(gvr, namespace, sent.Name)
	if err != nil {
		return nil, err
	}
	before := obj.(*v1alpha1.Icecream)
	if sent.UID != before.UID || sent.ResourceVersion != before.ResourceVersion {
		return nil, conflict(gvr, sent.Name)
	}
	after := before.DeepCopy()
	after.Status = sent.Status
	return c.update(gvr, before, after), nil
}

func (c *cluster) remove(gvr schema.GroupVersionResource, name string, only *metav1.Preconditions) error {
	before, err := c.trackers[gvr].Get(gvr, namespace, name)
	if err != nil {
		return err
	}
	m := before.(metav1.Object)
	if only != nil && (only.UID != nil && *only.UID != m.GetUID() || only.ResourceVersion != nil && *only.ResourceVersion != m.GetResourceVersion()) {
		return conflict(gvr, name)
	}
	if err := c.trackers[gvr].Delete(gvr, namespace, name); err != nil {
		return err
	}
	c.made++
	c.watches.Send(kittest.Change{Resource: gvr, Version: c.made, Before: before.(kittest.Object)})
	return nil
}

func conflict(gvr schema.GroupVersionResource, name string) error {
	return apierrors.NewConflict(gvr.GroupResource(), name, fmt.Errorf("a precondition failed"))
}

// show shows the watches an object as it now is, and returns that. There is no before if it
// was created.
func (c *cluster) show(gvr schema.GroupVersionResource, before runtime.Object, name string) runtime.Object {
	after, err := c.trackers[gvr].Get(gvr, namespace, name)
	if err != nil {
		c.t.Errorf("reading back %s: %v", name, err)
	}
	change := kittest.Change{Resource: gvr, Version: c.made, After: after.(kittest.Object)}
	if before != nil {
		change.Before = before.(kittest.Object)
	}
	c.watches.Send(change)
	return after
}

// hold holds up the watches of these resources.
func (c *cluster) hold(resources ...schema.GroupVersionResource) { c.watches.Hold(resources...) }

// release lets the watches of these resources catch up and holds them no longer.
func (c *cluster) release(resources ...schema.GroupVersionResource) { c.watches.Release(resources...) }

// refuse answers the next requests of a verb and a resource with these errors.
func (c *cluster) refuse(request string, with ...error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals[request] = with
}

// gvrOf is the resource of an object.
func gvrOf(obj runtime.Object) schema.GroupVersionResource {
	switch obj.(type) {
	case *v1alpha1.Icecream:
		return icecreamsGVR
	case *appsv1.Deployment:
		return deploymentsGVR
	default:
		return podsGVR
	}
}

// has somebody create these objects, or change them to be so.
func (c *cluster) has(objs ...runtime.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, obj := range objs {
		gvr := gvrOf(obj)
		obj = obj.DeepCopyObject()
		before, err := c.trackers[gvr].Get(gvr, namespace, obj.(metav1.Object).GetName())
		if err == nil {
			c.update(gvr, before, obj)
		} else if _, err := c.create(gvr, obj, metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// lacks has somebody delete an object, at once.
func (c *cluster) lacks(gvr schema.GroupVersionResource, name string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.remove(gvr, name, nil); err != nil {
		c.t.Fatal(err)
	}
}

// edit has somebody change an object.
func edit[T runtime.Object](c *cluster, name string, change func(T)) {
	c.t.Helper()
	var kind T
	obj := get(c, gvrOf(kind), name).(T)
	change(obj)
	c.has(obj)
}

func get(c *cluster, gvr schema.GroupVersionResource, name string) runtime.Object {
	c.t.Helper()
	obj, err := c.trackers[gvr].Get(gvr, namespace, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return obj.DeepCopyObject()
}

func (c *cluster) icecream(name string) *v1alpha1.Icecream {
	c.t.Helper()
	return get(c, icecreamsGVR, name).(*v1alpha1.Icecream)
}

func (c *cluster) deployment(name string) *appsv1.Deployment {
	c.t.Helper()
	return get(c, deploymentsGVR, name).(*appsv1.Deployment)
}

// deployments are those that exist and who controls them.
func (c *cluster) deployments() map[string]string {
	c.t.Helper()
	list, err := c.trackers[deploymentsGVR].List(deploymentsGVR, appsv1.SchemeGroupVersion.WithKind("Deployment"), namespace)
	if err != nil {
		c.t.Fatal(err)
	}
	owners := map[string]string{}
	for _, d := range list.(*appsv1.DeploymentList).Items {
		owners[d.Name] = ""
		if owner := metav1.GetControllerOf(&d); owner != nil {
			owners[d.Name] = string(owner.UID)
		}
	}
	return owners
}

// rollOut has the Deployment controller finish its work, with Pods on these nodes.
func (c *cluster) rollOut(name string, nodes ...string) {
	c.t.Helper()
	d := c.deployment(name)
	for i := range ptr.Deref(d.Spec.Replicas, 1) {
		c.has(podOf(d, fmt.Sprintf("%s-%d", name, i), nodes[int(i)%len(nodes)]))
	}
	d.Status = rolledOut(d)
	c.has(d)
}

func rolledOut(d *appsv1.Deployment) appsv1.DeploymentStatus {
	n := ptr.Deref(d.Spec.Replicas, 1)
	return appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
	}
}

// podOf is a ready Pod of the Deployment.
func podOf(d *appsv1.Deployment, name, node string) *corev1.Pod {
	labels := maps.Clone(d.Spec.Template.Labels)
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = "7c8b"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: labels, Annotations: maps.Clone(d.Spec.Template.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: d.Name + "-7c8b", UID: "uid-of-a-replica-set", Controller: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy()}},
		},
	}
}

func newIcecream(edits ...func(*v1alpha1.Icecream)) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sundae", UID: "uid-of-sundae"},
		Spec:       v1alpha1.IcecreamSpec{Replicas: ptr.To[int32](2), Image: "registry.example/vanilla:1"},
	}
	for _, edit := range edits {
		edit(ice)
	}
	return ice
}

// foreign is a Deployment that nobody here has made.
func foreign(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-of-foreign"}}
}

// writes are the requests so far that were to change something, and how many of each.
func (c *cluster) writes() map[string]int {
	counts := map[string]int{}
	for _, action := range append(c.kube.Actions(), c.client.Actions()...) {
		if !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			request := []string{action.GetVerb(), action.GetResource().Resource}
			if sub := action.GetSubresource(); sub != "" {
				request = append(request, sub)
			}
			counts[strings.Join(request, " ")]++
		}
	}
	return counts
}

// clear forgets the requests, events and reports so far.
func (c *cluster) clear() {
	c.kube.ClearActions()
	c.client.ClearActions()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told, c.reported = nil, nil
}

// Event makes the cluster the recorder of its own events.
func (c *cluster) Event(regarding runtime.Object, kind, reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf("%s %s: %s", kind, reason, message))
	if _, ok := regarding.(*v1alpha1.Icecream); !ok {
		c.t.Errorf("an event about %T", regarding)
	}
}

// Eventf implements record.EventRecorder.
func (c *cluster) Eventf(regarding runtime.Object, kind, reason, message string, args ...any) {
	c.Event(regarding, kind, reason, fmt.Sprintf(message, args...))
}

// AnnotatedEventf implements record.EventRecorder.
func (c *cluster) AnnotatedEventf(regarding runtime.Object, _ map[string]string, kind, reason, message string, args ...any) {
	c.Eventf(regarding, kind, reason, message, args...)
}

func (c *cluster) events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

func (c *cluster) reports() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reported)
}

type clusterKey struct{}

// keepReport is what utilruntime reports errors to.
func keepReport(ctx context.Context, err error, msg string, _ ...any) {
	if c, ok := ctx.Value(clusterKey{}).(*cluster); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reported = append(c.reported, fmt.Sprintf("%s: %v", msg, err))
	}
}

var usual = Config{StatusWindow: 2 * time.Second, StallAfter: time.Minute}

// run runs a controller until stop is called, or the test ends.
func (c *cluster) run(config Config) (controller *Controller, stop func()) {
	c.t.Helper()
	icecreams := externalversions.NewSharedInformerFactory(&c.client, 0)
	builtin := kubeinformers.NewSharedInformerFactory(&c.kube, 0)
	controller, err := NewController(config, &c.client, &c.kube, c, icecreams, builtin, builtin)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithValue(c.t.Context(), clusterKey{}, c))
	icecreams.StartWithContext(ctx)
	builtin.StartWithContext(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- controller.Run(ctx, 2) }()
	stop = sync.OnceFunc(func() {
		cancel()
		icecreams.Shutdown()
		builtin.Shutdown()
		if err := <-stopped; err != nil {
			c.t.Errorf("Run: %v", err)
		}
	})
	c.t.Cleanup(stop)
	kittest.Pass(time.Second)
	return controller, stop
}

// inBubble runs a test with a cluster of its own, in a bubble of its own time.
func inBubble(t *testing.T, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newCluster(t)) })
}

// equal compares, with no difference between nothing and nothing.
func equal[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// saying is what an Icecream's status says, in a line.
func saying(ice *v1alpha1.Icecream) string {
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if condition := meta.FindStatusCondition(ice.Status.Conditions, name); condition != nil && condition.Status == metav1.ConditionTrue {
			return fmt.Sprintf("%s (%s), %d available, on %s", name, condition.Reason, ice.Status.AvailableReplicas, ice.Status.Placement)
		}
	}
	return "nothing"
}
