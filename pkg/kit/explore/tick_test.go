package explore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/explore"
	"nicoleh.io/k8s-controller/pkg/kit/informer"
	"nicoleh.io/k8s-controller/pkg/kit/manager"
	"nicoleh.io/k8s-controller/pkg/kit/preflight"
	"nicoleh.io/k8s-controller/pkg/kit/worker"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
)

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// expiry is a controller that marks Leases when they have expired.
type expiry struct {
	leases informer.Cache[*coordinationv1.Lease]
	kube   kubernetes.Interface
	now    func() time.Time
	// hasMarked says that this process has marked the Lease, which it does once.
	hasMarked bool
}

const (
	lasts = time.Minute
	mark  = "example.com/expired"
)

func newExpiry(d manager.Dependencies) (made explore.Instance, err error) {
	e := &expiry{now: d.Clock.Now}
	if e.kube, err = kubernetes.NewForConfig(d.Config); err != nil {
		return made, err
	}
	e.leases = informer.NewCache[*coordinationv1.Lease](d.Caches, preflight.Resource{GroupVersionResource: leases}, e.kube.CoordinationV1().Leases(""), &coordinationv1.Lease{}, 0)
	loop := worker.New("expiry", e.sync, worker.WithClock(d.Clock), worker.WithKeys(informer.Keys(e.leases.GetStore())))
	_, err = e.leases.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) { informer.Named(loop.Add)(obj) }})
	return explore.Instance{Loop: loop, Memory: map[string]explore.Memory{
		"hasMarked": explore.MemoryOf(func() bool { return e.hasMarked }, func(has bool) { e.hasMarked = has }),
	}}, err
}

func (e *expiry) sync(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	lease := e.leases.Get(name.Namespace, name.Name)
	if left := lease.Spec.RenewTime.Add(lasts).Sub(e.now()); left > 0 {
		return left, nil
	}
	if e.hasMarked {
		return 0, nil
	}
	_, err := e.kube.CoordinationV1().Leases(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+mark+`":"yes"}}}`), metav1.PatchOptions{})
	e.hasMarked = err == nil
	return 0, err
}

func isMarked(w explore.World) bool {
	return w.Object(leases.GroupResource(), namespace, "bar").GetAnnotations()[mark] != ""
}

// expiring is the controller with one Lease, and somebody who may renew it before it expires.
func expiring() explore.Setup {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bar"}}
	renewed := metav1.NewMicroTime(time.Date(2222, 2, 22, 11, 59, 30, 0, time.UTC)) // 30 s ago
	lease.Spec.RenewTime = &renewed
	age := func(w explore.World) time.Duration {
		return w.Now.Sub(explore.Get[coordinationv1.Lease](w, leases.GroupResource(), namespace, "bar").Spec.RenewTime.Time)
	}
	return explore.Setup{
		Kinds:    []apiserver.Kind{apiserver.Leases()},
		Objects:  []explore.Object{{Manager: "people", Object: lease}},
		Programs: []explore.Program{{Name: "the controller", New: newExpiry}},
		Edits: []explore.Actor{{Name: "somebody", Moves: func(w explore.World) []explore.Move {
			if isMarked(w) {
				return nil
			}
			return []explore.Move{{Did: "renews the Lease", After: explore.Update(w, "people", leases.GroupResource(), namespace, "bar", "", func(l *coordinationv1.Lease) {
				at := metav1.NewMicroTime(w.Now)
				l.Spec.RenewTime = &at
			})}}
		}}},
		Checks: explore.Checks{
			Stored: func(c explore.Change) error {
				if c.Verb != "" && age(c.Before) < lasts {
					return errors.New("the Lease is marked before it has expired")
				}
				return nil
			},
			Rest: func(w explore.World) error {
				if !isMarked(w) || age(w) < lasts {
					return errors.New("the Lease has not expired")
				}
				return nil
			},
		},
		Tick:    10 * time.Second,
		Horizon: 2 * time.Minute,
	}
}

// With a Tick, a program may compare the times of objects with its clock.
func TestTick(t *testing.T) {
	if c := search(t, expiring(), "crashes=1").Counterexample; c != nil {
		t.Error(c)
	}
	// The cache may not have seen it when the time is up.
	c := search(t, expiring(), "edits=1").Counterexample
	if c == nil || c.Wrong != "the Lease is marked before it has expired" {
		t.Errorf("got %v, want a Lease that is marked too early", c)
	}
}

// A move may end a process, which then knows nothing of what it did before.
func TestMoveEndsProcess(t *testing.T) {
	for _, ends := range [][]string{{"the controller"}, nil} {
		s := expiring()
		s.Edits = []explore.Actor{{Name: "somebody", Moves: func(w explore.World) []explore.Move {
			if !isMarked(w) {
				return nil
			}
			return []explore.Move{{Did: "removes the mark", Ends: ends, After: explore.Update(w, "people", leases.GroupResource(), namespace, "bar", "", func(l *coordinationv1.Lease) {
				l.Annotations = nil
			})}}
		}}}
		if c := search(t, s, "edits=1").Counterexample; (c == nil) != (ends != nil) {
			t.Errorf("ends %v: got %v", ends, c)
		}
	}
}
