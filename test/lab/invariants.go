package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// An invariantChecker watches every Icecream of a Lab and reads each status as deployment tools
// do, by kstatus. What it reads must agree with the conditions, and what it reads as Current with
// the spec; see violationsIn. The simulation shows that a status was true when it was written.
type invariantChecker struct {
	cancel  context.CancelFunc
	factory dynamicinformer.DynamicSharedInformerFactory

	mu         sync.Mutex
	violations map[string][]error // by namespace
	ending     sets.Set[string]   // namespaces that are about to be deleted
}

// startInvariantChecker starts a checker, which watches until stop is called.
func startInvariantChecker(client dynamic.Interface) (*invariantChecker, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &invariantChecker{cancel: cancel, factory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0), violations: map[string][]error{}, ending: sets.Set[string]{}}
	icecreams := c.factory.ForResource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)).Informer()
	if _, err := icecreams.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.check(nil, obj) },
		UpdateFunc: c.check,
	}); err != nil {
		cancel()
		return nil, err
	}
	c.factory.Start(ctx.Done())
	return c, nil
}

// stop stops the checker. It returns an error for all violations that takeViolations has not
// returned.
func (c *invariantChecker) stop() error {
	c.cancel()
	c.factory.Shutdown()
	c.mu.Lock()
	defer c.mu.Unlock()
	const most = 20
	all := slices.Concat(slices.Collect(maps.Values(c.violations))...)
	return errors.Join(all[:min(len(all), most)]...)
}

// takeViolations removes and returns the violations in a namespace so far, which is about to be deleted. The error
// that stop returns does not include them.
func (c *invariantChecker) takeViolations(namespace string) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer delete(c.violations, namespace)
	c.ending.Insert(namespace)
	return c.violations[namespace]
}

// check checks the status of an Icecream. before is the Icecream with its previous status; nil if there is none.
func (c *invariantChecker) check(before, obj any) {
	object := obj.(*unstructured.Unstructured)
	ice := decoded(object)
	if ice == nil {
		return
	}
	var wasReady bool
	if object, ok := before.(*unstructured.Unstructured); ok {
		previous := decoded(object)
		wasReady = previous != nil && meta.IsStatusConditionTrue(previous.Status.Conditions, v1alpha1.ConditionReady) &&
			previous.Status.ObservedGeneration == ice.Status.ObservedGeneration
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, violation := range violationsIn(object, ice, wasReady, c.ending.Has(ice.Namespace)) {
		c.violations[ice.Namespace] = append(c.violations[ice.Namespace], fmt.Errorf("Icecream %s, resource version %s, generation %d: %s; status %+v",
			cache.MetaObjectToName(ice), ice.ResourceVersion, ice.Generation, violation, ice.Status))
	}
}

// decoded returns an Icecream, without its spec if that cannot be decoded; nil if its status
// cannot be decoded, so that no controller has written it.
func decoded(object *unstructured.Unstructured) *v1alpha1.Icecream {
	ice := &v1alpha1.Icecream{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ice) == nil {
		return ice
	}
	object = object.DeepCopy()
	delete(object.Object, "spec")
	ice = &v1alpha1.Icecream{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, ice) != nil {
		return nil
	}
	return ice
}

// violationsIn returns the inconsistencies within the status of an Icecream, which may have been Ready before. Pods are
// the first objects of a namespace that is ending to be deleted, and the Deployment's status follows.
func violationsIn(object *unstructured.Unstructured, ice *v1alpha1.Icecream, wasReady, isEnding bool) (found []string) {
	violated := func(is bool, format string, args ...any) {
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
		violated(read.Status == status.CurrentStatus, "kstatus reads %s, but there is no status yet", read.Status)
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
	violated(read.Status != want, "kstatus reads %s (%s), want %s", read.Status, read.Message, want)
	violated(reconciling && stalled, "it is both Reconciling and Stalled")
	violated(ready && (reconciling || stalled), "it is both Ready and Reconciling or Stalled")
	violated(!ready && !reconciling && !stalled, "it is neither Ready nor Reconciling nor Stalled")
	violated(s.ObservedGeneration > ice.Generation, "it describes a generation that does not exist yet")
	for _, condition := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		is := meta.FindStatusCondition(s.Conditions, condition)
		if is == nil {
			violated(true, "it has no condition %s", condition)
			continue
		}
		violated(is.ObservedGeneration != s.ObservedGeneration, "condition %s describes generation %d, but the status describes generation %d", condition, is.ObservedGeneration, s.ObservedGeneration)
	}
	if read.Status == status.CurrentStatus && !isEnding {
		found = append(found, violationsOfCurrent(ice, !wasReady)...)
	}
	return found
}
