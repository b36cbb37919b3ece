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
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
)

// A witness watches every Icecream of a Lab and reads each status as deployment tools do, by
// kstatus. What it reads must agree with the conditions, and what it reads as Current with the
// spec; see flaws. The simulation shows that a status was true when it was written.
type witness struct {
	cancel  context.CancelFunc
	factory dynamicinformer.DynamicSharedInformerFactory

	mu       sync.Mutex
	findings map[string][]error // by namespace
}

// startWitness starts a witness, which watches until stop is called.
func startWitness(client dynamic.Interface) (*witness, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{cancel: cancel, factory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0), findings: map[string][]error{}}
	icecreams := w.factory.ForResource(v1alpha1.Resource("icecreams").WithVersion(v1alpha1.GroupVersion.Version)).Informer()
	if _, err := icecreams.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.see,
		UpdateFunc: func(_, obj any) { w.see(obj) },
	}); err != nil {
		cancel()
		return nil, err
	}
	w.factory.Start(ctx.Done())
	return w, nil
}

// stop stops the witness. It returns an error for all findings that takeFindings has not
// returned.
func (w *witness) stop() error {
	w.cancel()
	w.factory.Shutdown()
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 20
	all := slices.Concat(slices.Collect(maps.Values(w.findings))...)
	return errors.Join(all[:min(len(all), most)]...)
}

// takeFindings removes and returns the findings in a namespace so far. The error that stop
// returns does not include them.
func (w *witness) takeFindings(namespace string) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer delete(w.findings, namespace)
	return w.findings[namespace]
}

// see checks the status of an Icecream.
func (w *witness) see(obj any) {
	object := obj.(*unstructured.Unstructured)
	ice := decoded(object)
	if ice == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, flaw := range flaws(object, ice) {
		w.findings[ice.Namespace] = append(w.findings[ice.Namespace], fmt.Errorf("Icecream %s, resource version %s, generation %d: %s; status %+v",
			cache.MetaObjectToName(ice), ice.ResourceVersion, ice.Generation, flaw, ice.Status))
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

// flaws returns the inconsistencies within the status of an Icecream.
func flaws(object *unstructured.Unstructured, ice *v1alpha1.Icecream) (found []string) {
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
	}
	if read.Status == status.CurrentStatus {
		found = append(found, currentFlaws(ice)...)
	}
	return found
}
