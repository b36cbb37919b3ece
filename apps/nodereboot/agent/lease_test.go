package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeinformers "k8s.io/client-go/informers"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// reporter is an agent in a scripted cluster, whose policy refuses each patch of its Node.
type reporter struct {
	*script.Cluster
	t *testing.T
}

// refuse has the policy refuse each patch of a Node with this error; nil ends that.
func (r *reporter) refuse(err error) {
	r.Refuse(func(request string) error {
		if request == "patch nodes" {
			return err
		}
		return nil
	})
}

// byPolicy is how the policy refuses to patch a Node.
var byPolicy = apierrors.NewForbidden(corev1.Resource("nodes"), "node-1", errPolicy)

// newReporter starts an agent that is refused each patch of its Node with this error, unless that
// is nil. Its Node is to be rebooted, as somebody has asked.
func newReporter(t *testing.T, host Rebooter, config Config, refusal error) *reporter {
	t.Helper()
	cluster, kube := newKube(t)
	r := &reporter{cluster, t}
	r.refuse(refusal)
	r.Set(node(map[string]string{request.Needed: ""}))
	config.NodeName, config.LeaseNamespace, config.LookEvery, config.Limits = "node-1", "agents", time.Minute, limits
	config.BootIDFile = filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(config.BootIDFile, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := kubeinformers.NewSharedInformerFactory(kube, 0)
	a, err := New(config, kube, nodes, host)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	nodes.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		nodes.Shutdown()
	})
	synctest.Wait()
	return r
}

// reports returns whether the agent has renewed its Lease lately, which is not looked at again.
func (r *reporter) reports() bool {
	synctest.Wait()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: script.Get[corev1.Node](r.Cluster, "", "node-1").UID}
	for _, lease := range script.All[coordinationv1.Lease](r.Cluster) {
		if lease.Namespace == "agents" && lease.Name == "node-1" && slices.Equal(lease.OwnerReferences, []metav1.OwnerReference{owner}) {
			return time.Since(lease.Spec.RenewTime.Time) <= request.ReportEvery
		}
	}
	return false
}

// annotate makes this the only annotation of the Node.
func (r *reporter) annotate(name, value string) {
	script.Edit(r.Cluster, "", "node-1", func(n *corev1.Node) { n.Annotations = map[string]string{name: value} })
}

// says returns the types and messages of the events with that reason.
func (r *reporter) says(reason string) (messages []string) {
	synctest.Wait()
	for _, event := range script.All[corev1.Event](r.Cluster) {
		if event.Reason == reason {
			messages = append(messages, event.Type+" "+event.Message)
		}
	}
	return messages
}

// An agent reports only if it can reboot its host, does not make a dry run, and is kept by a
// policy to its own Node. No other refusal shows that.
func TestReports(t *testing.T) {
	for name, tt := range map[string]struct {
		host    Rebooter
		dryRun  bool
		refusal error
		want    bool
	}{
		"an agent":                    {Command{"true"}, false, byPolicy, true},
		"no way to reboot":            {Command{"/no/such/program"}, false, byPolicy, false},
		"a dry run":                   {Command{"true"}, true, byPolicy, false},
		"no policy":                   {Command{"true"}, false, nil, false},
		"no permission":               {Command{"true"}, false, apierrors.NewForbidden(corev1.Resource("nodes"), "node-1", errors.New("no role allows it")), false},
		"somebody's webhook":          {Command{"true"}, false, apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("admission webhook denied the request")), false},
		"the API server does not say": {Command{"true"}, false, apierrors.NewInternalError(errors.New("etcd is down")), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReporter(t, tt.host, Config{DryRun: tt.dryRun}, tt.refusal)
				script.Edit(r.Cluster, "", "node-1", func(n *corev1.Node) { n.Annotations["example.com/x"] = "" })
				for _, wait := range []time.Duration{time.Second, 10 * time.Minute} {
					time.Sleep(wait)
					if is := r.reports(); is != tt.want {
						t.Errorf("after %s, it reports: %t", wait, is)
					}
				}
				r.refuse(byPolicy)
				time.Sleep(time.Minute)
				if is := r.reports(); is != (tt.want || tt.host.Check() == nil && !tt.dryRun) {
					t.Errorf("with a policy it reports: %t", is)
				}
			})
		})
	}
}

// An agent that nobody waits for reports nothing. Before the first report for a request it finds
// out anew whether a policy restricts it.
func TestReportsWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporter(t, Command{"true"}, Config{}, byPolicy)
		ask := func(value string) {
			script.Edit(r.Cluster, "", "node-1", func(n *corev1.Node) { n.Annotations[request.Needed] = value })
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		if !r.reports() || r.Requests("patch nodes") != 1 {
			t.Errorf("asked, it reports: %t, after it has tried %d times", r.reports(), r.Requests("patch nodes"))
		}
		for what, value := range map[string]string{"nobody waits": "false", "it is for later": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)} {
			ask(value)
			r.ForgetRequests()
			time.Sleep(time.Hour)
			if writes := r.Writes(); len(writes) > 0 {
				t.Errorf("%s: it writes %v", what, writes)
			}
		}
		r.refuse(nil) // the policies are gone
		ask("")
		time.Sleep(time.Hour)
		if r.reports() {
			t.Error("it reports without a policy, because there was one before")
		}
	})
}

// An agent that cannot decide, or reboot its host, does not report that it can, and says why
// within a minute, once.
func TestUndecided(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("unknown: looking for the sentinel file: permission denied"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		host   Command
		config Config
		change func(*corev1.Node)
		want   string
	}{
		"the host cannot be rebooted":             {Command{"/no/such/program"}, Config{}, nil, "The agent cannot reboot this node and requests no reboot: -reboot-command cannot be run"},
		"nobody has looked for the sentinel file": {Command{"true"}, Config{SentinelFile: "/x", SentinelState: filepath.Join(dir, "state")}, nil, "it is not known yet whether the sentinel file exists"},
		"it cannot be looked for":                 {Command{"true"}, Config{SentinelFile: filepath.Join(file, "reboot-required")}, nil, "not a directory"},
		"the other container cannot look for it":  {Command{"true"}, Config{SentinelFile: "/x", SentinelState: file}, nil, "permission denied"},
		"the record is not its own":               {Command{"true"}, Config{}, func(n *corev1.Node) { n.Annotations[request.InProgress] = "x" }, "was not written by the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReporter(t, tt.host, tt.config, byPolicy)
				if tt.change != nil {
					script.Edit(r.Cluster, "", "node-1", tt.change)
				}
				time.Sleep(time.Minute)
				if said := r.says(ReasonUnable); len(said) != 1 || !strings.Contains(said[0], tt.want) {
					t.Errorf("after a minute it says %q, want %q", said, tt.want)
				}
				time.Sleep(time.Hour)
				if said := r.says(ReasonUnable); len(said) != 1 || r.reports() {
					t.Errorf("it reports: %t, and has said %q", r.reports(), said)
				}
			})
		})
	}
}

// An agent creates its Lease if there is none, which a webhook cannot say.
func TestLeaseIsCreated(t *testing.T) {
	inCluster(t, node(nil), func(t *testing.T, c *scripted) {
		c.config.LeaseNamespace = "agents"
		c.Fail("patch leases", byWebhook(metav1.StatusReasonNotFound))
		if err := c.renewLease(t.Context(), c.node()); err == nil || c.Requests("create leases") > 0 {
			t.Errorf("denied with %v, and %d Leases were created", err, c.Requests("create leases"))
		}
		if err := c.renewLease(t.Context(), c.node()); err != nil || len(script.All[coordinationv1.Lease](c.Cluster)) != 1 {
			t.Errorf("there is no Lease: %v", err)
		}
	})
}

// Nor does one that may not write to its Node at all.
func TestRefusedAgentDoesNotReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReporter(t, Command{"true"}, Config{}, byPolicy)
		r.annotate(request.Now, "")
		time.Sleep(time.Hour)
		if r.reports() {
			t.Error("it reports, although it cannot begin")
		}
	})
}

// If the response to the record is lost, the same process runs the command, once.
func TestLostResponseBeforeTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &idleHost{}
		r := newReporter(t, host, Config{Drain: true}, nil)
		r.Fail("patch nodes", nil, script.ErrLost) // to begin, and to record that the command is run
		r.annotate(request.Now, "")
		for _, wait := range []time.Duration{time.Minute, time.Hour} {
			time.Sleep(wait)
			if commands := host.commands.Load(); commands != 1 {
				t.Errorf("after %s, the command was run %d times", wait, commands)
			}
		}
	})
}

// In a cluster of one node, evicted Pods can go nowhere, and a drain can fail forever: an event says
// what it waits for. Without a drain, the node reboots with its Pods.
func TestWithoutDrain(t *testing.T) {
	for _, drains := range []bool{true, false} {
		t.Run(fmt.Sprint("drain ", drains), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := &idleHost{}
				r := newReporter(t, host, Config{Drain: drains}, nil)
				r.Set(newPod("bare", func(pod *corev1.Pod) { pod.OwnerReferences = nil }))
				r.annotate(request.Now, "")
				time.Sleep(2 * time.Minute)
				commands, said := host.commands.Load(), r.says(ReasonDrainWaits)
				if drains && (commands > 0 || len(said) != 1 || !strings.Contains(said[0], "default/bare has no controller")) || !drains && (commands != 1 || len(said) > 0) {
					t.Errorf("the command was run %d times, and it says %q", commands, said)
				}
				if evictions := r.Requests("create pods eviction"); evictions > 0 {
					t.Errorf("%d evictions", evictions)
				}
			})
		})
	}
}

// A dry run asks the API server about each step, once, and changes nothing.
func TestDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &idleHost{}
		r := newReporter(t, host, Config{DryRun: true, Drain: true}, nil)
		r.Set(newPod("a"))
		r.ForgetRequests()
		r.annotate(request.Now, "")
		before := r.Store().Version
		time.Sleep(time.Hour)
		want := map[string]int{"patch nodes": 2, "create pods eviction": 1} // to begin, and to reboot
		if diff := cmp.Diff(want, r.Writes()); diff != "" || host.commands.Load() > 0 {
			t.Errorf("the command was run %d times, requests (-want +got):\n%s", host.commands.Load(), diff)
		}
		if r.Store().Version != before {
			t.Error("it has changed the cluster")
		}
	})
}
