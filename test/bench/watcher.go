package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/test/lab"
)

// A milestone is what an Icecream reaches once.
type milestone string

const (
	deployed  milestone = "a Deployment"
	available milestone = "available Pods"
	reported  milestone = "a correct status"
	changed   milestone = "a Deployment with nextImage"
	updated   milestone = "a correct status after a change"
)

// A watcher notes when Icecreams reach milestones, as any client of the API server sees it.
type watcher struct {
	mu      sync.Mutex
	reached map[milestone]map[string]time.Time // by the Icecream's name
	status  map[string]counts                  // of Icecreams
	present map[string]counts                  // of their Deployments
	since   map[string]time.Time               // when these began to differ
	ages    []float64                          // for how many seconds they differed, each time
}

// counts are what a status says of Pods.
type counts struct{ replicas, ready, available int32 }

// startWatcher starts to watch the Icecreams and Deployments of a cluster, until ctx ends.
func startWatcher(ctx context.Context, l *lab.Lab) (*watcher, error) {
	w := &watcher{
		reached: map[milestone]map[string]time.Time{deployed: {}, available: {}, reported: {}, changed: {}, updated: {}},
		status:  map[string]counts{}, present: map[string]counts{}, since: map[string]time.Time{},
	}
	icecreams := externalversions.NewSharedInformerFactory(l.Icecreams, 0)
	builtin := kubeinformers.NewSharedInformerFactoryWithOptions(l.Kube, 0, kubeinformers.WithNamespace(metav1.NamespaceDefault))
	for informer, see := range map[cache.SharedIndexInformer]func(any){
		icecreams.Samplecontroller().V1alpha1().Icecreams().Informer(): w.seeIcecream,
		builtin.Apps().V1().Deployments().Informer():                   w.seeDeployment,
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}); err != nil {
			return nil, err
		}
	}
	icecreams.Start(ctx.Done())
	builtin.Start(ctx.Done())
	icecreams.WaitForCacheSync(ctx.Done())
	builtin.WaitForCacheSync(ctx.Done())
	return w, ctx.Err()
}

func (w *watcher) seeIcecream(obj any) {
	ice := obj.(*v1alpha1.Icecream)
	want := ptr.Deref(ice.Spec.Replicas, 1)
	var onNodes int32
	for _, node := range ice.Status.Nodes {
		onNodes += node.ReadyPods
	}
	isReady := meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionReady)
	isCurrent := ice.Status.ObservedGeneration == ice.Generation
	isReported := isReady && isCurrent && ice.Status.AvailableReplicas == want && onNodes == want
	w.note(reported, ice.Name, isReported)
	w.note(updated, ice.Name, isReported && ice.Generation > 1)
	w.compare(ice.Name, w.status, counts{ice.Status.Replicas, ice.Status.ReadyReplicas, ice.Status.AvailableReplicas})
}

func (w *watcher) seeDeployment(obj any) {
	d := obj.(*appsv1.Deployment)
	isCurrent := d.Status.ObservedGeneration == d.Generation
	w.note(deployed, d.Name, true)
	w.note(available, d.Name, isCurrent && d.Status.AvailableReplicas == ptr.Deref(d.Spec.Replicas, 1))
	w.note(changed, d.Name, d.Spec.Template.Spec.Containers[0].Image == nextImage)
	w.compare(d.Name, w.present, counts{d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas})
}

// compare notes counts, and for how long those of an Icecream and its Deployment differ.
func (w *watcher) compare(name string, of map[string]counts, are counts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of[name] = are
	since, differed := w.since[name]
	switch differs := w.status[name] != w.present[name]; {
	case differs && !differed:
		w.since[name] = time.Now()
	case !differs && differed:
		w.ages = append(w.ages, time.Since(since).Seconds())
		delete(w.since, name)
	}
}

// takeAges returns for how many seconds counts differed since the last call, in order.
func (w *watcher) takeAges() []float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	ages := w.ages
	w.ages = nil
	slices.Sort(ages)
	return ages
}

// note notes that an Icecream has reached a milestone now, unless it had before.
func (w *watcher) note(m milestone, name string, isReached bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.reached[m][name]; isReached && !ok {
		w.reached[m][name] = time.Now()
	}
}

// timeout is how long the benchmark waits for anything before it fails.
const timeout = 10 * time.Minute

// await waits until all of these Icecreams have reached a milestone, and returns when the
// last of them did.
func (w *watcher) await(ctx context.Context, m milestone, names ...string) (last time.Time, err error) {
	missing := len(names)
	err = wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, timeout, true, func(context.Context) (bool, error) {
		last, missing = w.lastOf(m, names)
		return missing == 0, nil
	})
	if err != nil {
		return last, fmt.Errorf("%d of %d Icecreams do not have %s: %w", missing, len(names), m, err)
	}
	return last, nil
}

// lastOf returns when the last of these Icecreams reached a milestone, and how many have not.
func (w *watcher) lastOf(m milestone, names []string) (last time.Time, missing int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		at, ok := w.reached[m][name]
		if !ok {
			missing++
		}
		if at.After(last) {
			last = at
		}
	}
	return last, missing
}
