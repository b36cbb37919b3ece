package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/config"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest"
)

// An old process is elected by the usual lease alone. A new one has a lease of its own,
// and follows the usual one.
const ownName = "gadgets"

func newer() config.LeaderElectionConfiguration {
	c := usual
	c.ResourceName = ownName
	return c
}

// runNew starts a candidate that has its own lease and follows the usual one.
func runNew(t *testing.T, client *fake.Clientset) *process {
	t.Helper()
	return runNewWith(t, reach(client))
}

func runNewWith(t *testing.T, client Client) *process {
	t.Helper()
	return runWith(t, client, newer(), func(e *Election) { e.Follow(usual.ResourceName, client) })
}

// holders returns who holds the former lease and who holds the new one: "-" means that
// there is no such lease.
func holders(t *testing.T, client *fake.Clientset) [2]string {
	t.Helper()
	var found [2]string
	for i, name := range []string{usual.ResourceName, ownName} {
		lease, err := client.CoordinationV1().Leases(usual.ResourceNamespace).Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			found[i] = "-"
		case err != nil:
			t.Fatal(err)
		default:
			found[i] = ptr.Deref(lease.Spec.HolderIdentity, "")
		}
	}
	return found
}

func requireHolders(t *testing.T, client *fake.Clientset, former, own string) {
	t.Helper()
	if got, want := holders(t, client), [2]string{former, own}; got != want {
		t.Errorf("the leases are held by %q, want %q", got, want)
	}
}

func deleteFormer(t *testing.T, client *fake.Clientset) {
	t.Helper()
	if err := client.CoordinationV1().Leases(usual.ResourceNamespace).Delete(t.Context(), usual.ResourceName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// finish stops a candidate and waits for it to return.
func (c *process) finish(t *testing.T) {
	t.Helper()
	c.stop()
	c.end()
	if err := <-c.ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}

// requireWaits requires that the candidate does not lead for a minute, nor writes.
func (c *process) requireWaits(t *testing.T) {
	t.Helper()
	kittest.Pass(time.Minute)
	if isDone(c.leads) {
		t.Error("two lead")
	}
	if err := c.write(http.MethodPost); !errors.Is(err, errFenced) {
		t.Errorf("one that does not lead may write: %v", err)
	}
}

// requireLeadsWithin requires that the candidate leads after so long at most.
func (c *process) requireLeadsWithin(t *testing.T, most time.Duration) {
	t.Helper()
	start := time.Now()
	<-c.leads
	if took := time.Since(start); took > most {
		t.Errorf("it leads after %s, want %s at most", took, most)
	}
	if err := c.write(http.MethodPost); err != nil {
		t.Errorf("the leader may not write: %v", err)
	}
}

func TestWithoutAFormerLeaseThereIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := runNew(t, client)
		a.requireLeadsWithin(t, 0)
		b := runNew(t, client)
		b.requireWaits(t)
		requireHolders(t, client, "-", a.candidate.identity)
		a.finish(t)
		b.requireLeadsWithin(t, 0)
		b.finish(t)
		requireHolders(t, client, "-", "")
	})
}

// An update from the old version to the new one, and one within the new version. Then
// the way back.
func TestOldAndNewExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		old := run(t, client, usual)
		<-old.leads
		first := runNew(t, client)
		first.requireWaits(t)
		old.finish(t)
		first.requireLeadsWithin(t, 0)
		requireHolders(t, client, first.candidate.identity, first.candidate.identity)

		second := runNew(t, client)
		second.requireWaits(t)
		first.finish(t)
		second.requireLeadsWithin(t, 0)

		old = run(t, client, usual)
		old.requireWaits(t)
		second.finish(t)
		old.requireLeadsWithin(t, 0)
		requireHolders(t, client, old.candidate.identity, "")
		old.finish(t)
	})
}

func TestCrashedOldLeaderIsReplacedWhenItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(lease("somebody-who-crashed", 15))
		a := runNew(t, client)
		start := time.Now()
		a.requireLeadsWithin(t, 25*time.Second)
		if took := time.Since(start); took < 15*time.Second {
			t.Errorf("took over after %s", took)
		}
		a.finish(t)
	})
}

// Deleting the former lease ends the transition: whoever leads starts once more, and
// nobody creates that lease again.
func TestDeletingTheFormerLeaseEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(lease("", 1))
		a := runNew(t, client)
		a.requireLeadsWithin(t, 0)
		standby := runNew(t, client)
		standby.requireWaits(t)

		deleteFormer(t, client)
		if err := <-a.ended; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "somebody has deleted lease gadget-system/gadget-controller") {
			t.Errorf("Run = %v", err)
		}
		if err := a.write(http.MethodPost); !errors.Is(err, errFenced) {
			t.Errorf("it may still write: %v", err)
		}
		standby.requireLeadsWithin(t, 25*time.Second)
		requireHolders(t, client, "-", standby.candidate.identity)
		again := runNew(t, client)
		again.requireWaits(t)
		standby.finish(t)
		again.requireLeadsWithin(t, 0)
		again.finish(t)
		requireHolders(t, client, "-", "")
		a.end()
	})
}

// Somebody goes back to the old version after all, although the former lease is gone.
func TestALeaderEndsWhenTheFormerLeaseAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := runNew(t, client)
		<-a.leads
		synctest.Wait()
		old := run(t, client, usual)
		<-old.leads
		if err := <-a.ended; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "another process has taken lease gadget-system/gadget-controller") {
			t.Errorf("Run = %v", err)
		}
		next := runNew(t, client)
		next.requireWaits(t)
		old.finish(t)
		next.requireLeadsWithin(t, 25*time.Second) // the lease of a process that has lost another expires
		next.finish(t)
		a.end()
	})
}

// A process that has got one of the two leases, but not the other, tries on; meanwhile
// nobody leads.
func TestOneLeaseIsNotEnough(t *testing.T) {
	for _, verb := range []string{"create", "update"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []runtime.Object{lease("", 1)}
				if verb == "update" {
					own := lease("", 1)
					own.Name = ownName
					objects = append(objects, own)
				}
				client := fake.NewClientset(objects...)
				var broken atomic.Bool
				broken.Store(true)
				client.PrependReactor(verb, "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					object := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease)
					return broken.Load() && object.Name == ownName, nil, apierrors.NewInternalError(errors.New("not now"))
				})
				a := runNew(t, client)
				a.requireWaits(t)
				if got := holders(t, client)[0]; got != a.candidate.identity {
					t.Fatalf("the former lease is held by %q: the test shows nothing", got)
				}
				broken.Store(false)
				a.requireLeadsWithin(t, 5*time.Second)
				a.finish(t)
				requireHolders(t, client, "", "")
			})
		})
	}
}

// Processes of both versions come and go in any order, by a clean stop or by losing
// their connection; never may two of them write.
func TestOldAndNewInAnyOrder(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			client := fake.NewClientset(lease("", 1)) // an old version has run here
			detectConflicts(client)
			type connected struct {
				*process
				isCut *atomic.Bool
			}
			var running []connected
			terms := 0
			for range 40 {
				running = slices.DeleteFunc(running, func(c connected) bool {
					select {
					case err := <-c.ended:
						if !errors.Is(err, ErrLost) {
							t.Errorf("seed %d: Run = %v", seed, err)
						}
						return true
					default:
						return false
					}
				})
				switch action := random.IntN(5); {
				case action <= 1 && len(running) < 4:
					isCut := new(atomic.Bool)
					connection := Client{Leases: func(namespace string) Leases { return flaky{client.CoordinationV1().Leases(namespace), isCut} }}
					if action == 0 {
						running = append(running, connected{runWith(t, connection, usual), isCut})
					} else {
						running = append(running, connected{runNewWith(t, connection), isCut})
					}
				case action == 2 && len(running) > 0:
					i := random.IntN(len(running))
					running[i].finish(t)
					running = slices.Delete(running, i, i+1)
				case action == 3 && len(running) > 0:
					isCut := running[random.IntN(len(running))].isCut
					isCut.Store(!isCut.Load())
				}
				for range random.IntN(20) {
					kittest.Pass(time.Second)
					var writers int
					for _, c := range running {
						if c.write(http.MethodPost) == nil {
							writers++
						}
					}
					terms += writers
					if writers > 1 {
						t.Fatalf("seed %d: %d may write", seed, writers)
					}
				}
			}
			if terms == 0 {
				t.Errorf("seed %d: nobody ever led", seed)
			}
			for _, c := range running {
				c.stop()
				c.end()
				<-c.ended
			}
		})
	}
}

// detectConflicts makes the fake client reject the update of a lease that has changed
// since it was read, as the API server does.
func detectConflicts(client *fake.Clientset) {
	leases, version := coordinationv1.SchemeGroupVersion.WithResource("leases"), 0
	client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() != "create" && action.GetVerb() != "update" {
			return false, nil, nil
		}
		lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
		read := lease.ResourceVersion
		version++
		lease.ResourceVersion = strconv.Itoa(version)
		if action.GetVerb() == "create" {
			return true, lease, client.Tracker().Create(leases, lease, lease.Namespace)
		}
		stored, err := client.Tracker().Get(leases, lease.Namespace, lease.Name)
		if err != nil {
			return true, nil, err
		}
		if stored.(*coordinationv1.Lease).ResourceVersion != read {
			return true, nil, apierrors.NewConflict(leases.GroupResource(), lease.Name, errors.New("it has changed"))
		}
		return true, lease, client.Tracker().Update(leases, lease, lease.Namespace)
	})
}

// flaky is a connection to the API server that a test can cut.
type flaky struct {
	Leases
	isCut *atomic.Bool
}

var errCut = errors.New("connection refused")

func (f flaky) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if f.isCut.Load() {
		return nil, errCut
	}
	return f.Leases.Get(ctx, name, o)
}

func (f flaky) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if f.isCut.Load() {
		return nil, errCut
	}
	return f.Leases.Create(ctx, lease, o)
}

func (f flaky) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if f.isCut.Load() {
		return nil, errCut
	}
	return f.Leases.Update(ctx, lease, o)
}

func (f flaky) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if f.isCut.Load() {
		return nil, errCut
	}
	return f.Leases.Watch(ctx, o)
}

// A watch may show late that the former lease was deleted before this process led.
func TestFormerLeaseThatWasDeletedBeforeTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		former := watch.NewFake()
		client.PrependWatchReactor("leases", func(action clienttesting.Action) (bool, watch.Interface, error) {
			name, _ := action.(clienttesting.WatchAction).GetWatchRestrictions().Fields.RequiresExactMatch(metav1.ObjectNameField)
			return name == usual.ResourceName, former, nil
		})
		a := runNew(t, client)
		<-a.leads
		former.Delete(lease("its-predecessor", 15))
		synctest.Wait()
		a.requireLeadsWithin(t, 0)
		a.finish(t)
	})
}
