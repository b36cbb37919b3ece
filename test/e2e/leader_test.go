package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A leader that is frozen, or cut off, for longer than its lease is deposed in the middle of its work. It must not
// write anything any more.
func TestLeaderThatIsDeposed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name       string
		stop       func(t *testing.T, leader *lab.Controller, link *lab.Link)
		resume     func(t *testing.T, leader *lab.Controller, link *lab.Link)
		endsBefore bool // whether it notices before it resumes
	}{
		{
			name:   "frozen",
			stop:   func(t *testing.T, leader *lab.Controller, _ *lab.Link) { signal(t, leader, syscall.SIGSTOP) },
			resume: func(t *testing.T, leader *lab.Controller, _ *lab.Link) { signal(t, leader, syscall.SIGCONT) },
		},
		{
			name:       "cut off",
			stop:       func(_ *testing.T, _ *lab.Controller, link *lab.Link) { link.Cut() },
			resume:     func(_ *testing.T, _ *lab.Controller, link *lab.Link) { link.Mend() },
			endsBefore: true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			n, link := NewQuietNamespace(t), &lab.Link{}
			flags := append([]string{"-workers=20"}, elect...)
			first := n.StartControllerOver(t, link, flags...)
			eventuallyLeads(t, n, first)
			second := n.StartController(t, flags...)
			eventuallyReadyToLead(t, n, second)

			// The leader is busy when it is stopped, and would have much to do when it resumes.
			const icecreams = 60
			for i := range icecreams {
				n.Create(t, icecreamName(i), v1alpha1.IcecreamSpec{})
			}
			row.stop(t, first, link)
			n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
			if err := leads(t, n, second); err != nil {
				t.Error(err)
			}
			for i := range icecreams {
				patchIcecream(t, n, icecreamName(i), `{"spec":{"replicas":2}}`)
			}
			requireEnded := func() {
				if last := first.Fails(t); !strings.Contains(last, "leadership lost") {
					t.Errorf("the last line of its log is %q", last)
				}
			}
			if row.endsBefore {
				requireEnded()
			}
			resumed := time.Now()
			row.resume(t, first, link)
			if !row.endsBefore {
				requireEnded()
			}
			n.Eventually(t, "all are Ready", func(ctx context.Context) error { return allReady(ctx, n, icecreams) })
			if made := requestsOf(t, n).Since(resumed).Where(isFrom(first)).Where(lab.IsWork); len(made) > 0 {
				t.Errorf("after it was deposed, it made %s", made)
			}
			if terms := termsOf(t, n.Requests(t), lease); len(terms) != 2 {
				t.Errorf("there were %d terms, want 2", len(terms))
			}
			requireCreatedOnce(t, n)
			first.Start(t) // as the kubelet would
		})
	}
}

// If someone deletes the lease, the leader creates it again.
func TestLeaseThatIsDeleted(t *testing.T) {
	t.Parallel()
	n := NewQuietNamespace(t)
	c := n.StartController(t, elect...)
	eventuallyLeads(t, n, c)
	if err := n.Lab.Kube.CoordinationV1().Leases(n.Name).Delete(t.Context(), lease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyLeads(t, n, c)
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})
	n.EventuallyReady(t, "vanilla")
}

// When other service accounts fill the priority level that they share with the controllers,
// work waits, but the leader keeps its Lease: the FlowSchema of artifacts/ puts the requests for
// the Lease into another level.
func TestLoadOfOthersDeposesNobody(t *testing.T) {
	t.Parallel()
	l := NewLab(t, lab.Options{Nodes: -1})
	n, system := l.NewNamespace(t), &lab.Namespace{Name: lab.SystemNamespace, Lab: l}
	flags := append([]string{"-leader-elect-resource-namespace=" + system.Name}, elect...)
	first := l.StartController(t, flags...)
	eventuallyLeads(t, system, first)
	second := l.StartController(t, flags...)
	eventuallyReadyToLead(t, system, second)
	n.Controller, system.Controller = first, first
	if err := l.LearnPrivileges(); err != nil { // requests that get no turn would count as forbidden
		t.Fatal(err)
	}

	// A level without seats is like one whose seats others hold.
	limit := func(shares, lendable, borrowed string) {
		t.Helper()
		lab.Kubectl(t, l, "patch", "prioritylevelconfiguration", "workload-low", "--type=merge", "-p", `{
			"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
			"spec": {"limited": {"nominalConcurrencyShares": `+shares+`, "lendablePercent": `+lendable+`, "borrowingLimitPercent": `+borrowed+`}}}`)
	}
	limit("0", "0", "0")
	account := l.Impersonate(t, first.User)
	lab.Eventually(t, "work gets no turn", func() error {
		err := account.AppsV1().RESTClient().Get().Resource("deployments").Timeout(time.Second).MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("a list returned %w", err)
		}
		return nil
	})
	n.Create(t, "vanilla", v1alpha1.IcecreamSpec{})

	// This is longer than the lease and the deadline of a renewal together.
	system.Consistently(t, "the leader renews its Lease", 40*time.Second, func(ctx context.Context) error {
		found, err := l.Kube.CoordinationV1().Leases(system.Name).Get(ctx, lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if age := time.Since(found.Spec.RenewTime.Time); age > time.Duration(*found.Spec.LeaseDurationSeconds)*time.Second {
			return fmt.Errorf("it did so %s ago", age.Round(time.Millisecond))
		}
		return leads(t, system, first)
	})
	if found := n.AllDeployments(t); len(found) > 0 {
		t.Error("there is a Deployment, although work got no turn")
	}

	limit("100", "90", "null") // as by default
	eventuallyHasDeployment(t, n, "vanilla")
	if terms := termsOf(t, l.Requests(t), lease); len(terms) != 1 {
		t.Errorf("there were %d terms, want 1", len(terms))
	}
}

// signal sends a signal to a controller.
func signal(t *testing.T, c *lab.Controller, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(c.PID(), signal); err != nil {
		t.Fatal(err)
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
		if log := c.LogSinceStart(); !strings.Contains(log, `"New leader"`) {
			return fmt.Errorf("its log is:\n%s", log)
		}
		return nil
	})
}
