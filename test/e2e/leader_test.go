package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
	"nicoleh.io/k8s-controller/pkg/apis/samplecontroller/v1alpha1"
	"nicoleh.io/k8s-controller/test/lab"
)

// lease is the Lease of controllers by default.
const lease = "k8s-controller"

// elect holds the flags for leader election. The lease is long enough that a leader on a
// busy machine keeps it, and a leader that is killed is replaced not much later than by
// default.
var elect = []string{"-leader-elect", "-leader-elect-lease-duration=20s", "-leader-elect-renew-deadline=18s"}

// A rolling update replaces one replica after the other while users are at work. No lease
// expires during the test, so each leader has to release it.
func TestRollingUpdateHandsOver(t *testing.T) {
	t.Parallel()
	const icecreams, edits, updates = 20, 4, 4
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)

	n := NewQuietNamespace(t)
	flags := []string{"-leader-elect", "-leader-elect-lease-duration=600s", "-leader-elect-renew-deadline=500s", "-icecream-stall-after=3s"}
	leader := n.StartController(t, flags...)
	eventuallyLeads(t, n, leader)
	standby := n.StartController(t, flags...)
	eventuallyReadyToLead(t, n, standby)

	wait := startUsers(t, n, icecreams, edits, seed)
	for range updates {
		surge := n.StartController(t, flags...)
		eventuallyReadyToLead(t, n, surge)
		leader.Stop(t)
		leader, standby = standby, surge
		n.Eventually(t, "one of the others leads", func(context.Context) error {
			if leads(t, n, surge) == nil {
				leader, standby = surge, leader
			}
			return leads(t, n, leader)
		})
		n.Controller = leader
	}
	final := wait()
	if t.Failed() {
		return
	}
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	requireAsSpecified(t, n, final)

	terms := termsOf(t, n.Requests(t), lease)
	if len(terms) != updates+1 {
		t.Errorf("there were %d terms, want %d", len(terms), updates+1)
	}
	for _, e := range n.Requests(t).Where(lab.IsWork) {
		for i := range terms[1:] {
			// An event does no harm if it arrives late.
			if lab.AgentOf(e) == terms[i].Agent && e.Resource != "events" && e.StageTimestamp.After(terms[i].Last) {
				t.Errorf("%s released the lease before its %s of %s %s was answered", lab.AgentOf(e), e.Verb, e.Resource, e.Name)
			}
		}
	}
	for i := range terms[1:] {
		free := terms[i+1].Began.Sub(terms[i].Last)
		t.Logf("the lease was free for %s", free.Round(time.Millisecond))
	}
	requireCreatedOnce(t, n)
}

func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	first := n.StartController(t, elect...)
	eventuallyLeads(t, n, first)
	second := n.StartController(t, elect...)
	eventuallyReadyToLead(t, n, second)
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")

	first.Kill(t)
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	killed := time.Now()
	n.EventuallyReady(t, "chocolate")
	t.Logf("an Icecream that was created without a leader was Ready after %s", time.Since(killed).Round(time.Millisecond))
	isCached := func(e *cluster.AuditEvent) bool { return e.Verb == "list" || e.Verb == "watch" }
	read := n.Requests(t).Where(isFrom(second)).Where(isCached)
	if early := read.Until(killed).Where(func(e *cluster.AuditEvent) bool { return !strings.Contains(e.RequestURI, "limit=1") }); len(early) > 0 {
		t.Errorf("on standby, it made %s, want one list of each resource with one object", early)
	}
	first.Start(t) // as the kubelet would; it is a candidate now
	eventuallyReadyToLead(t, n, first)
	n.Steadily(t, "the second controller keeps the lease", 5*time.Second, func(context.Context) error { return leads(t, n, second) })
	if terms := termsOf(t, n.Requests(t), lease); len(terms) != 2 {
		t.Errorf("there were %d terms, want 2", len(terms))
	}
}

// A leader that was frozen for longer than its lease does not know that when it resumes
// in the middle of its work. It must not write anything any more.
func TestLeaderThatWasStoppedIsDeposed(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	flags := append([]string{"-workers=20", "-icecream-status-window=0"}, elect...)
	first := n.StartController(t, flags...)
	eventuallyLeads(t, n, first)
	second := n.StartController(t, flags...)
	eventuallyReadyToLead(t, n, second)

	// The leader is busy when it is frozen, and would have much to do when it resumes.
	const icecreams = 60
	for i := range icecreams {
		n.Create(t, icecreamName(i), v1alpha1.IcecreamSpec{})
	}
	first.Freeze(t)
	n.Controller = second
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	if err := leads(t, n, second); err != nil {
		t.Error(err)
	}
	for i := range icecreams {
		patchIcecream(t, n, icecreamName(i), `{"spec":{"replicas":2}}`)
	}
	thawed := time.Now()
	first.Thaw(t)
	if last := first.Fails(t); !strings.Contains(last, "leadership lost") {
		t.Errorf("the last line of its log is %q", last)
	}
	t.Logf("it ended %s after it resumed", time.Since(thawed).Round(time.Millisecond))
	if made := requestsOf(t, n).Since(thawed).Where(isFrom(first)).Where(lab.IsWork); len(made) > 0 {
		t.Errorf("after it was deposed, it made %s", made)
	}
	n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
	if terms := termsOf(t, n.Requests(t), lease); len(terms) != 2 {
		t.Errorf("there were %d terms, want 2", len(terms))
	}
	first.Start(t) // as the kubelet would
}

// A connection can break without either side noticing. The next attempt uses a new one.
func TestLeaderWhoseRenewalHangsGoesOn(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	var hangs, hung atomic.Int32 // number of renewals that should get no response, and of those that got none
	c := n.StartControllerBehind(t, func(r *http.Request) http.HandlerFunc {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/leases/"+lease) || hung.Load() == hangs.Load() {
			return nil
		}
		hung.Add(1)
		return func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // the server does not notice that the client is gone before the body has been read
			<-r.Context().Done()
		}
	}, elect...)
	eventuallyLeads(t, n, c)
	for i := range 2 {
		hangs.Add(1)
		n.Eventually(t, "a renewal hangs", func(context.Context) error {
			if int(hung.Load()) <= i {
				return errors.New("none has")
			}
			return nil
		})
		mark := time.Now()
		n.Eventually(t, "a later renewal succeeds", func(context.Context) error {
			if renewals := n.Requests(t).Resource("leases").Writes().Where(isAccepted).Since(mark); len(renewals) == 0 {
				return errors.New("none has")
			}
			return leads(t, n, c)
		})
	}
	n.Steadily(t, "the controller keeps the lease", 21*time.Second, func(context.Context) error { return leads(t, n, c) }) // past the renew deadline
	if terms := termsOf(t, n.Requests(t), lease); len(terms) != 1 {
		t.Errorf("there were %d terms, want 1", len(terms))
	}
}

// If someone deletes the lease, the leader creates it again. If another process takes it, the
// leader ends at its next renewal.
func TestLeaseThatOthersWrite(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, elect...)
	eventuallyLeads(t, n, c)
	leases := n.Lab.Kube.CoordinationV1().Leases(n.Name)
	if err := leases.Delete(t.Context(), lease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyLeads(t, n, c)
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")

	if _, err := leases.Patch(t.Context(), lease, types.MergePatchType, []byte(`{"spec":{"holderIdentity":"somebody"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	taken := time.Now()
	if last := c.Fails(t); !strings.Contains(last, "leadership lost: another process holds the Lease") {
		t.Errorf("the last line of its log is %q", last)
	}
	t.Logf("it ended %s after the lease was taken", time.Since(taken).Round(time.Millisecond))
	c.Start(t) // as the kubelet would
	n.Create(t, "chocolate", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "chocolate")
	if waited := time.Since(taken); waited < 20*time.Second {
		t.Errorf("it led again after %s, while somebody's lease lasted", waited.Round(time.Millisecond))
	}
}

// termsOf returns the terms of all leaders by Leases of these names, and requires that each
// process wrote only during its term and that terms do not overlap.
func termsOf(t *testing.T, made lab.Requests, leases ...string) []lab.Term {
	t.Helper()
	terms, err := made.Terms(leases...)
	if err != nil {
		t.Error(err)
	}
	return terms
}

// isFrom returns a function that reports whether a request is from the current process of
// that controller.
func isFrom(c *lab.Controller) func(*cluster.AuditEvent) bool {
	return func(e *cluster.AuditEvent) bool { return lab.AgentOf(e) == c.Agent }
}

// leads returns nil if that controller holds the lease.
func leads(t *testing.T, n *lab.Namespace, c *lab.Controller) error {
	t.Helper()
	found, err := n.Lab.Kube.CoordinationV1().Leases(n.Name).Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil {
		return err
	}
	writes := n.Requests(t).Resource("leases").Writes().Where(isAccepted)
	if len(writes) == 0 || lab.AgentOf(writes[len(writes)-1]) != c.Agent || isFree(found) {
		return fmt.Errorf("the lease is held by %s", ptr.Deref(found.Spec.HolderIdentity, "nobody"))
	}
	return nil
}

// isFree reports whether a lease has no holder.
func isFree(lease *coordinationv1.Lease) bool { return ptr.Deref(lease.Spec.HolderIdentity, "") == "" }

// eventuallyLeads waits until that controller holds the lease.
func eventuallyLeads(t *testing.T, n *lab.Namespace, c *lab.Controller) {
	t.Helper()
	n.Eventually(t, c.Agent+" leads", func(context.Context) error { return leads(t, n, c) })
}

// eventuallyReadyToLead waits until a controller takes part in the election, or leads.
func eventuallyReadyToLead(t *testing.T, n *lab.Namespace, c *lab.Controller) {
	t.Helper()
	n.Eventually(t, c.Agent+" takes part in the election", func(context.Context) error {
		if log := c.LogSinceStart(); !strings.Contains(log, `"The leader is"`) {
			return fmt.Errorf("its log is:\n%s", log)
		}
		return nil
	})
}

// patchIcecream applies a merge patch to an Icecream.
func patchIcecream(t *testing.T, n *lab.Namespace, name, patch string) {
	t.Helper()
	if _, err := n.Icecreams().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
