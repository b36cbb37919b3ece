package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A witness watches every Icecream and every Deployment of a Lab and holds each
// status that was written to two standards.
//
// It must be consistent in itself, as kstatus reads it; that shows at once (see
// flaws). And one that says Current must have been true: while the Icecream had
// that spec and before the status was written, there was a moment at which its
// Deployment was rolled out just so. All resource versions come from one
// sequence, so this holds or does not hold whatever the two watches are late by.
type witness struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu          sync.Mutex
	icecreams   map[types.UID]*sighting
	deployments map[cache.ObjectName][]version // by resource version
	claims      []claim
	findings    []finding
	blind       uint64                               // changes up to this resource version may have been missed
	mirrors     map[string]func(image string) string // by namespace: what a policy there makes of an image
}

// sighting is what was last seen of an Icecream.
type sighting struct {
	icecream *v1alpha1.Icecream
	since    uint64 // the resource version that its generation began with
}

// version is what a Deployment was like from one resource version to the next.
type version struct {
	from         uint64
	owner        types.UID
	image        string
	replicas     int32
	isRolledOut  bool
	wasDeletedAt bool
}

// finding is what is wrong with a status.
type finding struct {
	namespace string
	error
}

// claim is that an Icecream was Current as of a resource version.
type claim struct {
	icecream     *v1alpha1.Icecream
	since, until uint64
}

// observe calls a witness, who stays until its verdict.
func observe(client dynamic.Interface) *witness {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{cancel: cancel, icecreams: map[types.UID]*sighting{}, deployments: map[cache.ObjectName][]version{}, mirrors: map[string]func(string) string{}}
	w.done.Go(func() {
		w.follow(ctx, client.Resource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)), w.seeIcecream)
	})
	w.done.Go(func() {
		w.follow(ctx, client.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")), w.seeDeployment)
	})
	return w
}

// verdict sends the witness home and returns everything it has to say.
func (w *witness) verdict() error {
	// What it has been told of last may still be on its way.
	const grace = 10 * time.Second
	for end := time.Now().Add(grace); w.isInDoubt() && time.Now().Before(end); {
		time.Sleep(pollEvery)
	}
	w.cancel()
	w.done.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if !w.isProven(c) {
			w.find(c.icecream, []string{fmt.Sprintf("Current at resource version %d, but its Deployment was at no time since %d rolled out as the spec says: %+v",
				c.until, c.since, w.deployments[deploymentOf(c.icecream)])})
		}
	}
	if len(w.findings) == 0 {
		return nil
	}
	const most = 20
	var worst []error
	for _, f := range w.findings[:min(len(w.findings), most)] {
		worst = append(worst, f.error)
	}
	return fmt.Errorf("%d statuses were not right:\n%w", len(w.findings), errors.Join(worst...))
}

// take returns what has been found wrong in a namespace by now, and leaves it out
// of the verdict.
func (w *witness) take(namespace string) (found []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.findings = slices.DeleteFunc(w.findings, func(f finding) bool {
		if f.namespace == namespace {
			found = append(found, f.error)
		}
		return f.namespace == namespace
	})
	return found
}

// isInDoubt says whether any claim has not been proven yet.
func (w *witness) isInDoubt() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = slices.DeleteFunc(w.claims, w.isProven)
	return len(w.claims) > 0
}

// follow shows every state of every object of a resource to see, until ctx ends.
// If the server cannot say what has happened since it was last asked, there is a
// gap, before which nothing can be proven.
func (w *witness) follow(ctx context.Context, resource dynamic.NamespaceableResourceInterface, see func(*unstructured.Unstructured, bool)) {
	for first := true; ctx.Err() == nil; {
		list, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			time.Sleep(pollEvery)
			continue
		}
		w.mu.Lock()
		if !first {
			w.blind = max(w.blind, versionOf(list.GetResourceVersion()))
			clear(w.icecreams) // what came before what is now is not known
		}
		first = false
		for i := range list.Items {
			see(&list.Items[i], false)
		}
		w.mu.Unlock()

		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return resource.Watch(ctx, options)
			},
		})
		if err != nil {
			continue
		}
		for event := range watcher.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok || event.Type == watch.Bookmark {
				continue
			}
			w.mu.Lock()
			see(object, event.Type == watch.Deleted)
			w.mu.Unlock()
		}
	}
}

// seeIcecream judges the status of an Icecream. The caller holds the lock.
func (w *witness) seeIcecream(object *unstructured.Unstructured, isDeleted bool) {
	ice := &v1alpha1.Icecream{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ice) != nil {
		// A spec that nobody can decode is no excuse for a status that is wrong.
		object = object.DeepCopy()
		delete(object.Object, "spec")
		ice = &v1alpha1.Icecream{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ice) != nil {
			return // The status has not been written by a controller, either.
		}
	}
	at, before := versionOf(ice.ResourceVersion), w.icecreams[ice.UID]
	now := &sighting{icecream: ice, since: at}
	if before != nil && before.icecream.Generation == ice.Generation {
		now.since = before.since
	}
	if isDeleted {
		delete(w.icecreams, ice.UID)
		return
	}
	w.icecreams[ice.UID] = now
	if before != nil && equality.Semantic.DeepEqual(before.icecream.Status, ice.Status) && before.icecream.Generation == ice.Generation {
		return
	}
	var last *v1alpha1.Icecream
	if before != nil {
		last = before.icecream
	}
	w.find(ice, flaws(object, ice, last))
	if IsReady(ice) == nil && ice.DeletionTimestamp == nil {
		w.claims = append(w.claims, claim{icecream: ice, since: now.since, until: at})
	}
}

// seeDeployment remembers a state of a Deployment. The caller holds the lock.
func (w *witness) seeDeployment(object *unstructured.Unstructured, isDeleted bool) {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d); err != nil {
		w.findings = append(w.findings, finding{object.GetNamespace(), err})
		return
	}
	v := version{from: versionOf(d.ResourceVersion), replicas: ptr.Deref(d.Spec.Replicas, 1), wasDeletedAt: isDeleted}
	if owner := metav1.GetControllerOfNoCopy(d); owner != nil {
		v.owner = owner.UID
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == "icecream" {
			v.image = container.Image
		}
	}
	v.isRolledOut = d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == v.replicas &&
		d.Status.Replicas == v.replicas && d.Status.AvailableReplicas == v.replicas
	name := cache.MetaObjectToName(d)
	w.deployments[name] = append(w.deployments[name], v)
}

// isProven says whether the Deployment was rolled out as the claim says it was.
func (w *witness) isProven(c claim) bool {
	if c.since <= w.blind {
		return true // for all that can be known
	}
	history := w.deployments[deploymentOf(c.icecream)]
	for i, v := range history {
		isOver := i+1 < len(history) && history[i+1].from <= c.since
		if v.from < c.until && !isOver && !v.wasDeletedAt && v.isRolledOut && v.owner == c.icecream.UID &&
			w.isImage(v.image, c.icecream) && v.replicas == ptr.Deref(c.icecream.Spec.Replicas, 1) {
			return true
		}
	}
	return false
}

// isImage reports whether a Deployment with this image is what the Icecream asks for.
func (w *witness) isImage(image string, ice *v1alpha1.Icecream) bool {
	mirror := w.mirrors[ice.Namespace]
	return image == ice.Spec.Image || mirror != nil && image == mirror(ice.Spec.Image)
}

// expectImages tells the witness that a policy in the namespace replaces images.
func (w *witness) expectImages(namespace string, mirror func(image string) string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mirrors[namespace] = mirror
}

func (w *witness) find(ice *v1alpha1.Icecream, flaws []string) {
	for _, flaw := range flaws {
		w.findings = append(w.findings, finding{ice.Namespace, fmt.Errorf("Icecream %s, resource version %s, generation %d: %s; status %+v",
			cache.MetaObjectToName(ice), ice.ResourceVersion, ice.Generation, flaw, ice.Status)})
	}
}

// flaws are what is wrong with the status of an Icecream in itself, and in its
// change from the one before, which is nil for the first.
func flaws(object *unstructured.Unstructured, ice, before *v1alpha1.Icecream) (found []string) {
	flaw := func(is bool, format string, args ...any) {
		if is {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	s := ice.Status
	if s.ObservedGeneration == 0 && len(s.Conditions) == 0 {
		return nil // the controller has not been here yet
	}
	read, err := status.Compute(object)
	if err != nil {
		return []string{fmt.Sprintf("kstatus cannot read it: %v", err)}
	}
	isTrue := func(condition string) bool { return meta.IsStatusConditionTrue(s.Conditions, condition) }
	ready, reconciling, stalled := isTrue(v1alpha1.ConditionReady), isTrue(v1alpha1.ConditionReconciling), isTrue(v1alpha1.ConditionStalled)

	wants := status.InProgressStatus
	switch {
	case ice.DeletionTimestamp != nil:
		wants = status.TerminatingStatus
	case s.ObservedGeneration != ice.Generation:
	case stalled:
		wants = status.FailedStatus
	case ready:
		wants = status.CurrentStatus
	}
	flaw(read.Status != wants, "kstatus reads %s (%s), and it should be %s", read.Status, read.Message, wants)
	flaw(reconciling && stalled, "it is both Reconciling and Stalled")
	flaw(ready && (reconciling || stalled), "it is Ready and yet Reconciling or Stalled")
	flaw(!ready && !reconciling && !stalled, "it is neither Ready nor Reconciling nor Stalled")
	flaw(s.ObservedGeneration > ice.Generation, "it is about a generation that does not exist yet")
	for _, condition := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		is := meta.FindStatusCondition(s.Conditions, condition)
		if is == nil {
			flaw(true, "it has no condition %s", condition)
			continue
		}
		flaw(is.ObservedGeneration != s.ObservedGeneration, "condition %s is of generation %d, the status of %d", condition, is.ObservedGeneration, s.ObservedGeneration)
		if before != nil {
			was := meta.FindStatusCondition(before.Status.Conditions, condition)
			if was == nil || was.Status != is.Status {
				continue
			}
			flaw(!was.LastTransitionTime.Equal(&is.LastTransitionTime), "condition %s had status %s since %s, and now has it since %s (before, at resource version %s: %+v)",
				condition, is.Status, was.LastTransitionTime, is.LastTransitionTime, before.ResourceVersion, before.Status)
		}
	}
	if read.Status == status.CurrentStatus {
		found = append(found, untruths(ice)...)
	}
	return found
}

// untruths are what in the status of an Icecream that is Current shows that it
// should not be.
func untruths(ice *v1alpha1.Icecream) (found []string) {
	s, wanted := ice.Status, ptr.Deref(ice.Spec.Replicas, 1)
	for what, count := range map[string]int32{
		"replicas": s.Replicas, "updatedReplicas": s.UpdatedReplicas, "readyReplicas": s.ReadyReplicas, "availableReplicas": s.AvailableReplicas,
	} {
		if count != wanted {
			found = append(found, fmt.Sprintf("it is Current with %d %s of %d", count, what, wanted))
		}
	}
	name := ice.Spec.DeploymentName
	if name == "" {
		name = ice.Name
	}
	if s.DeploymentName != name {
		found = append(found, fmt.Sprintf("it is Current with Deployment %q, not %q", s.DeploymentName, name))
	}
	if int(s.NodeCount) != len(s.Nodes) {
		return found // a status lists no more than 100 nodes
	}
	var pods, readyPods int32
	for _, node := range s.Nodes {
		pods += node.Pods
		readyPods += node.ReadyPods
	}
	if pods != wanted || readyPods != wanted {
		found = append(found, fmt.Sprintf("it is Current with %d Pods on its nodes, %d of them ready, of %d", pods, readyPods, wanted))
	}
	return found
}

func deploymentOf(ice *v1alpha1.Icecream) cache.ObjectName {
	return cache.NewObjectName(ice.Namespace, ice.Status.DeploymentName)
}

// versionOf is a resource version as the number that it is.
func versionOf(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
