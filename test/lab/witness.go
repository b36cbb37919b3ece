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

// A witness watches every Icecream and every workload of a Lab, which is a Deployment, and
// checks each status of an Icecream that is written in it:
//
//   - The status must be consistent as kstatus reads it. The witness checks this as soon as
//     it sees the status; see flaws.
//   - A status that kstatus reads as Current must have been true: at some moment after the
//     Icecream got its spec, and before the status was written, its workload was rolled
//     out with this spec. The resource versions of Icecreams and workloads come from the
//     same sequence, so the result does not depend on the delay of the two watches.
type witness struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex
	icecreams map[types.UID]*observation
	workloads map[cache.ObjectName][]version // sorted by resource version
	unproven  []currentStatus
	findings  []finding
	gapUntil  uint64                               // changes up to this resource version may have been missed
	mirrors   map[string]func(image string) string // by namespace: how a policy there changes an image
}

// observation is the latest state of an Icecream that the witness has seen.
type observation struct {
	icecream *v1alpha1.Icecream
	since    uint64 // the resource version at which the witness first saw this generation
}

// version is the state of a workload from one resource version to the next.
type version struct {
	from        uint64 // the resource version at which the state began
	owner       types.UID
	image       string
	replicas    int32
	isRolledOut bool
	isDeleted   bool
}

// finding is an error in the status of an Icecream.
type finding struct {
	namespace string
	error
}

// currentStatus is a status that kstatus reads as Current. It is proven if the workload
// was rolled out at some time between two resource versions: since is when the Icecream got
// its spec, and until is when the status was written.
type currentStatus struct {
	icecream     *v1alpha1.Icecream
	since, until uint64
}

// startWitness starts a witness, which watches until stop is called.
func startWitness(client dynamic.Interface) *witness {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{cancel: cancel, icecreams: map[types.UID]*observation{}, workloads: map[cache.ObjectName][]version{}, mirrors: map[string]func(string) string{}}
	w.done.Go(func() {
		w.follow(ctx, client.Resource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)), w.seeIcecream)
	})
	w.done.Go(func() {
		w.follow(ctx, client.Resource(workloads), w.seeWorkload)
	})
	return w
}

// stop stops the witness. It returns an error for all findings that takeFindings has not
// returned, and for all statuses that are still unproven.
func (w *witness) stop() error {
	// The watch events that prove the last statuses may not have arrived yet.
	const grace = 10 * time.Second
	for end := time.Now().Add(grace); w.hasUnproven() && time.Now().Before(end); {
		time.Sleep(pollEvery)
	}
	w.cancel()
	w.done.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.unproven {
		if !w.isProven(c) {
			w.addFindings(c.icecream, []string{fmt.Sprintf("it is Current at resource version %d, but at no time since resource version %d was its workload rolled out with this spec: %+v",
				c.until, c.since, w.workloads[workloadOf(c.icecream)])})
		}
	}
	if len(w.findings) == 0 {
		return nil
	}
	const most = 20
	var first []error
	for _, f := range w.findings[:min(len(w.findings), most)] {
		first = append(first, f.error)
	}
	return fmt.Errorf("%d errors in the statuses of Icecreams:\n%w", len(w.findings), errors.Join(first...))
}

// takeFindings removes and returns the findings in a namespace so far. The error that stop
// returns does not include them.
func (w *witness) takeFindings(namespace string) (found []error) {
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

// hasUnproven reports whether any Current status has not been proven yet.
func (w *witness) hasUnproven() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unproven = slices.DeleteFunc(w.unproven, w.isProven)
	return len(w.unproven) > 0
}

// follow lists and watches a resource until ctx is done, and calls see with every state of
// every object. If the watch cannot be resumed where it ended, changes may have been missed;
// follow then records the end of this gap in gapUntil.
func (w *witness) follow(ctx context.Context, resource dynamic.NamespaceableResourceInterface, see func(*unstructured.Unstructured, bool)) {
	for first := true; ctx.Err() == nil; {
		list, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			time.Sleep(pollEvery)
			continue
		}
		w.mu.Lock()
		if !first {
			w.gapUntil = max(w.gapUntil, versionOf(list.GetResourceVersion()))
			clear(w.icecreams) // the previous states are not known
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

// seeWorkload records a state of a workload. The caller must hold the lock.
func (w *witness) seeWorkload(object *unstructured.Unstructured, isDeleted bool) {
	live := &workload{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, live); err != nil {
		w.findings = append(w.findings, finding{object.GetNamespace(), err})
		return
	}
	v := stateOf(live)
	v.from, v.isDeleted = versionOf(live.ResourceVersion), isDeleted
	if owner := metav1.GetControllerOfNoCopy(live); owner != nil {
		v.owner = owner.UID
	}
	name := cache.MetaObjectToName(live)
	w.workloads[name] = append(w.workloads[name], v)
}

// seeIcecream checks the status of an Icecream. The caller must hold the lock.
func (w *witness) seeIcecream(object *unstructured.Unstructured, isDeleted bool) {
	ice := &v1alpha1.Icecream{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ice) != nil {
		// The spec cannot be decoded, but the status must be right all the same.
		object = object.DeepCopy()
		delete(object.Object, "spec")
		ice = &v1alpha1.Icecream{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ice) != nil {
			return // the status cannot be decoded, so no controller has written it
		}
	}
	at, before := versionOf(ice.ResourceVersion), w.icecreams[ice.UID]
	now := &observation{icecream: ice, since: at}
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
	w.addFindings(ice, flaws(object, ice, last))
	if IsReady(ice) == nil && ice.DeletionTimestamp == nil {
		w.unproven = append(w.unproven, currentStatus{icecream: ice, since: now.since, until: at})
	}
}

// isProven reports whether the workload was rolled out as a Current status says. It
// returns true for a status that cannot be checked because changes may have been missed.
func (w *witness) isProven(c currentStatus) bool {
	if c.since <= w.gapUntil {
		return true
	}
	history := w.workloads[workloadOf(c.icecream)]
	for i, v := range history {
		isOver := i+1 < len(history) && history[i+1].from <= c.since
		if v.from < c.until && !isOver && !v.isDeleted && v.isRolledOut && v.owner == c.icecream.UID &&
			w.isImage(v.image, imageOf(c.icecream), c.icecream.Namespace) && v.replicas == ptr.Deref(c.icecream.Spec.Replicas, 1) {
			return true
		}
	}
	return false
}

// isImage reports whether image is the one that is wanted, or what a policy in the namespace
// makes of it.
func (w *witness) isImage(image, wanted, namespace string) bool {
	mirror := w.mirrors[namespace]
	return image == wanted || mirror != nil && image == mirror(wanted)
}

// expectImages tells the witness that a policy in the namespace changes images, and how.
func (w *witness) expectImages(namespace string, mirror func(image string) string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mirrors[namespace] = mirror
}

// addFindings records flaws in the status of an Icecream.
func (w *witness) addFindings(ice *v1alpha1.Icecream, flaws []string) {
	for _, flaw := range flaws {
		w.findings = append(w.findings, finding{ice.Namespace, fmt.Errorf("Icecream %s, resource version %s, generation %d: %s; status %+v",
			cache.MetaObjectToName(ice), ice.ResourceVersion, ice.Generation, flaw, ice.Status)})
	}
}

// flaws returns the inconsistencies within the status of an Icecream, and between it and the
// status in before, the previous state of the Icecream. before is nil if there is none.
func flaws(object *unstructured.Unstructured, ice, before *v1alpha1.Icecream) (found []string) {
	flaw := func(is bool, format string, args ...any) {
		if is {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	s := ice.Status
	if s.ObservedGeneration == 0 && len(s.Conditions) == 0 {
		return nil // the definition is an earlier one, without a default
	}
	read, err := status.Compute(object)
	if err != nil {
		return []string{fmt.Sprintf("kstatus cannot read the status: %v", err)}
	}
	if s.ObservedGeneration == -1 && len(s.Conditions) == 0 { // the default: nobody has written a status yet
		flaw(read.Status == status.CurrentStatus, "kstatus reads %s, but there is no status yet", read.Status)
		return found
	}
	isTrue := func(condition string) bool { return meta.IsStatusConditionTrue(s.Conditions, condition) }
	ready, reconciling, stalled := isTrue(v1alpha1.ConditionReady), isTrue(v1alpha1.ConditionReconciling), isTrue(v1alpha1.ConditionStalled)

	want := status.InProgressStatus
	switch {
	case ice.DeletionTimestamp != nil:
		want = status.TerminatingStatus
	case s.ObservedGeneration != ice.Generation:
	case stalled:
		want = status.FailedStatus
	case ready:
		want = status.CurrentStatus
	}
	flaw(read.Status != want, "kstatus reads %s (%s), want %s", read.Status, read.Message, want)
	flaw(reconciling && stalled, "it is both Reconciling and Stalled")
	flaw(ready && (reconciling || stalled), "it is both Ready and Reconciling or Stalled")
	flaw(!ready && !reconciling && !stalled, "it is neither Ready nor Reconciling nor Stalled")
	flaw(s.ObservedGeneration > ice.Generation, "it describes a generation that does not exist yet")
	for _, condition := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		is := meta.FindStatusCondition(s.Conditions, condition)
		if is == nil {
			flaw(true, "it has no condition %s", condition)
			continue
		}
		flaw(is.ObservedGeneration != s.ObservedGeneration, "condition %s describes generation %d, but the status describes generation %d", condition, is.ObservedGeneration, s.ObservedGeneration)
		if before != nil {
			was := meta.FindStatusCondition(before.Status.Conditions, condition)
			if was == nil || was.Status != is.Status {
				continue
			}
			flaw(!was.LastTransitionTime.Equal(&is.LastTransitionTime), "condition %s is still %s, but its lastTransitionTime has changed from %s to %s (previous status, at resource version %s: %+v)",
				condition, is.Status, was.LastTransitionTime, is.LastTransitionTime, before.ResourceVersion, before.Status)
		}
	}
	if read.Status == status.CurrentStatus {
		found = append(found, currentFlaws(ice)...)
	}
	return found
}

// versionOf returns a resource version as a number, or 0 if it is not a number.
func versionOf(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
