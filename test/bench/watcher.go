package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	externalversions "nicoleh.io/k8s-controller/pkg/generated/informers/externalversions"
	"nicoleh.io/k8s-controller/test/lab"
)

// A watcher sees what becomes of Icecreams, as any client of the API server would.
type watcher struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	// What every Icecream asks for, and when it was first seen to have got it.
	wanted      map[string]int32 // replicas
	deployments map[string]time.Time
	available   map[string]time.Time // when all Pods of its Deployment were
	statuses    map[string]time.Time
	changes     map[string]time.Time // when its Deployment was first seen to have nextImage
}

// startWatcher starts to watch the Icecreams and Deployments of a cluster, until ctx ends.
func startWatcher(ctx context.Context, l *lab.Lab) (*watcher, error) {
	w := &watcher{changed: make(chan struct{}), wanted: map[string]int32{}, deployments: map[string]time.Time{}, available: map[string]time.Time{}, statuses: map[string]time.Time{}, changes: map[string]time.Time{}}
	icecreams := externalversions.NewSharedInformerFactory(l.Icecreams, 0)
	builtin := kubeinformers.NewSharedInformerFactoryWithOptions(l.Kube, 0, kubeinformers.WithNamespace(metav1.NamespaceDefault))
	for informer, see := range map[cache.SharedIndexInformer]func(any){
		icecreams.Samplecontroller().V1alpha1().Icecreams().Informer(): func(obj any) { w.seeIcecream(obj.(*v1alpha1.Icecream)) },
		builtin.Apps().V1().Deployments().Informer():                   func(obj any) { w.seeDeployment(obj.(*appsv1.Deployment)) },
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

func (w *watcher) seeIcecream(ice *v1alpha1.Icecream) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	want := ptr.Deref(ice.Spec.Replicas, 1)
	w.wanted[ice.Name] = want
	var onNodes int32
	for _, node := range ice.Status.Nodes {
		onNodes += node.ReadyPods
	}
	isCorrect := meta.IsStatusConditionTrue(ice.Status.Conditions, v1alpha1.ConditionReady) &&
		ice.Status.ObservedGeneration == ice.Generation && ice.Status.AvailableReplicas == want && onNodes == want
	if _, ok := w.statuses[ice.Name]; isCorrect && !ok {
		w.statuses[ice.Name] = now
	}
	w.tell()
}

func (w *watcher) seeDeployment(d *appsv1.Deployment) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.deployments[d.Name]; !ok {
		w.deployments[d.Name] = now
	}
	isAvailable := d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == ptr.Deref(d.Spec.Replicas, 1)
	if _, ok := w.available[d.Name]; isAvailable && !ok {
		w.available[d.Name] = now
	}
	if _, ok := w.changes[d.Name]; d.Spec.Template.Spec.Containers[0].Image == nextImage && !ok {
		w.changes[d.Name] = now
	}
	w.tell()
}

func (w *watcher) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// patience is how long the benchmark waits for anything before it fails.
const patience = 10 * time.Minute

// await waits until a number of Icecreams have their Deployments, or their correct status,
// and returns when the last was seen.
func (w *watcher) await(ctx context.Context, what string, seen map[string]time.Time, n int) (last time.Time, err error) {
	err = w.until(ctx, func() error {
		if len(seen) < n {
			return fmt.Errorf("waiting for %s: %d of %d", what, len(seen), n)
		}
		last = slices.MaxFunc(slices.Collect(maps.Values(seen)), time.Time.Compare)
		return nil
	})
	return last, err
}

// awaitOne waits until one Icecream has its Deployment, or its correct status, and returns
// when that was seen.
func (w *watcher) awaitOne(ctx context.Context, seen map[string]time.Time, name string) (at time.Time, err error) {
	err = w.until(ctx, func() (err error) {
		var ok bool
		if at, ok = seen[name]; !ok {
			err = fmt.Errorf("waiting for %s", name)
		}
		return err
	})
	return at, err
}

// until waits until check returns nil. It calls check, which may read what was seen, after
// each change.
func (w *watcher) until(ctx context.Context, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		err, changed := check(), w.changed
		w.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// The images of Icecreams, and those that some change to.
const (
	image     = "registry.nicoleh.io/cone:1.2.3"
	nextImage = "registry.nicoleh.io/cone:1.2.4"
)

// newIcecream returns an Icecream as users write it.
func newIcecream(name string, replicas int32) *v1alpha1.Icecream {
	return &v1alpha1.Icecream{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: v1alpha1.IcecreamSpec{
			Replicas: &replicas,
			Image:    image,
			Resources: v1alpha1.IcecreamResources{
				Requests: corev1.ResourceList{corev1.ResourceCPU: lightly, corev1.ResourceMemory: lightly},
			},
		},
	}
}
