package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// errPolicy is how a policy refuses what an agent must not do.
var errPolicy = errors.New("ValidatingAdmissionPolicy 'nodereboot-agent' with binding 'nodereboot-agent' denied request: the agent may only change its own annotations and the cordon of its Node")

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// scripted is an agent in a scripted cluster, whose steps the test takes.
type scripted struct {
	*script.Cluster
	*Agent
}

// newKube returns a cluster that has what the agent deals with, and a client of it.
func newKube(t *testing.T) (*script.Cluster, kubernetes.Interface) {
	t.Helper()
	cluster := script.New(t, apiserver.Nodes(), apiserver.Pods(), apiserver.Leases(), apiserver.EventObjects())
	kube, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return cluster, kube
}

// inCluster runs a test in a bubble, with the agent of a node that is so.
func inCluster(t *testing.T, n *corev1.Node, test func(*testing.T, *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, kube := newKube(t)
		cluster.Set(n.DeepCopy())
		test(t, &scripted{cluster, &Agent{kube: kube, config: Config{NodeName: n.Name, Limits: limits}}})
	})
}

func (c *scripted) node() *corev1.Node { return script.Get[corev1.Node](c.Cluster, "", "node-1") }

// A command that hangs does not block the agent, nor does a process that it has started.
func TestCommandEnds(t *testing.T) {
	dir := t.TempDir()
	path, started := filepath.Join(dir, "reboot"), filepath.Join(dir, "started")
	script := fmt.Sprintf("#!/bin/sh\nsleep 1000 & echo $! >%s; exec sleep 1000\n", started)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // a program must be executable
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- (Command{path}).Reboot(ctx) }()
	pid := 0
	for ; pid == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(started) // which does not exist yet
		if line, isWhole := strings.CutSuffix(string(text), "\n"); isWhole {
			pid, _ = strconv.Atoi(line)
		}
	}
	cancel()
	err := <-ended
	if pid == 0 || err == nil {
		t.Fatalf("it has started process %d, and ends with %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what it has started does not run any more: %v", err)
	}
}

// byWebhook returns how a webhook denies a request with 409 and some reason.
func byWebhook(reason metav1.StatusReason) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusConflict,
		Reason:  reason,
		Message: `admission webhook "x.example.com" denied the request: not now`,
	}}
}

// A reboot is given up only after an event has said so. An event that the API server refuses does
// not keep the node unavailable for ever.
func TestGivingUpIsReportedFirst(t *testing.T) {
	n := node(map[string]string{request.InProgress: `{"bootID":"old","since":"2026-07-01T12:00:00Z"}`})
	d, err := Decide(Observed{Now: noon.Add(time.Hour), Node: n, BootID: "old", Limits: limits})
	if err != nil || d.Step != GiveUp {
		t.Fatalf("step %s, error %v", d.Step, err)
	}
	for name, tt := range map[string]struct {
		events      error // the response to the event
		wantGivenUp bool
	}{
		"a webhook denies the event": {byWebhook(metav1.StatusReasonConflict), true},
		"the event is not written":   {apierrors.NewInternalError(errors.New("etcd is down")), false},
		"the event is refused":       {apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no permission")), true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, n, func(t *testing.T, c *scripted) {
				c.Fail("create events", tt.events)
				_, err := c.act(t.Context(), c.node(), d)
				if after := c.node(); (err == nil) != tt.wantGivenUp || request.IsGranted(after) == tt.wantGivenUp {
					t.Errorf("annotations %v, error %v", after.Annotations, err)
				}
			})
		})
	}
}

// That the node was drained no longer counts once it may have been schedulable since. A webhook that
// denies a write says nothing about that.
func TestDrainIsForgotten(t *testing.T) {
	n := node(map[string]string{request.InProgress: "x"})
	for name, tt := range map[string]struct {
		step     Step
		response error
		want     string
	}{
		"the agent cordons the node again":  {Cordon, nil, ""},
		"someone else has changed the node": {Reboot, apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("changed")), ""},
		"a webhook denies the write":        {Reboot, byWebhook(metav1.StatusReasonConflict), "x"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, n, func(t *testing.T, c *scripted) {
				c.Fail("patch nodes", tt.response)
				c.drained = "x"
				d := Decision{Step: tt.step, Annotations: map[string]*string{request.InProgress: ptr.To("x")}, Unschedulable: ptr.To(true)}
				if _, err := c.act(t.Context(), c.node(), d); (err == nil) != (tt.response == nil) || c.drained != tt.want {
					t.Errorf("drained for %q, want %q; error %v", c.drained, tt.want, err)
				}
			})
		})
	}
}

// Whether the host can be rebooted is found out without trying.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		first string // process 1
		err   error  // of sending it a signal
		want  string // in the error
	}{
		{"systemd", "systemd", nil, ""},
		{"the Pod has no hostPID", "reboot-agent", nil, `process 1 is "reboot-agent"`},
		{"another init", "init", nil, "-reboot-command"},
		{"AppArmor, or another user", "systemd", syscall.EPERM, "does not accept signals"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "1", "comm"), []byte(tt.first+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var sent []syscall.Signal
			s := Systemd{proc: dir, kill: func(pid int, signal syscall.Signal) error {
				if pid != 1 {
					t.Errorf("signal for process %d", pid)
				}
				sent = append(sent, signal)
				return tt.err
			}}
			err := s.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if slices.ContainsFunc(sent, func(signal syscall.Signal) bool { return signal != 0 }) {
				t.Errorf("sent %v", sent)
			}
			if err := s.Reboot(t.Context()); (err == nil) != (tt.want == "") || (err == nil) != slices.Contains(sent, rebootSignal) {
				t.Errorf("sent %v, error %v", sent, err)
			}
		})
	}
}

// idleHost is a host that counts its reboot commands. They end so, and have no effect, as systemctl
// soft-reboot.
type idleHost struct {
	after    time.Duration
	err      error
	commands atomic.Int64
}

func (*idleHost) Check() error { return nil }

func (h *idleHost) Reboot(context.Context) error {
	h.commands.Add(1)
	time.Sleep(h.after)
	return h.err
}

// If the system does not go down, that is a Warning, with what was seen. The node is given
// back, and the sentinel file that is still there does not
// ask again. A person does.
func TestSystemStaysUp(t *testing.T) {
	for name, tt := range map[string]struct {
		host *idleHost
		seen string
	}{
		"although the command succeeds":  {&idleHost{}, "the reboot command ended with success"},
		"because the command fails":      {&idleHost{err: errors.New("broken")}, "the reboot command failed: broken"},
		"because the command fails late": {&idleHost{err: errors.New("BMC does not answer"), after: 3 * time.Minute}, "the reboot command failed: BMC does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSystemStaysUp(t, tt.host, tt.seen) })
		})
	}
}

func testSystemStaysUp(t *testing.T, host *idleHost, seen string) {
	sentinel := filepath.Join(t.TempDir(), "reboot-required")
	if err := os.WriteFile(sentinel, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReporter(t, host, Config{SentinelFile: sentinel, Drain: true}, nil)
	require := func(when string, annotations ...string) {
		t.Helper()
		synctest.Wait()
		n := script.Get[corev1.Node](r.Cluster, "", "node-1")
		got := slices.Sorted(maps.Keys(n.Annotations))
		if isAtWork := slices.Contains(got, request.InProgress); !slices.Equal(got, annotations) || n.Spec.Unschedulable != isAtWork {
			t.Errorf("%s: cordoned: %t, annotations %v", when, n.Spec.Unschedulable, n.Annotations)
		}
	}
	r.annotate(request.Now, "")
	time.Sleep(time.Minute)
	require("the command is run", request.InProgress)
	time.Sleep(time.Hour)
	require("the system is still up", request.Failed)
	if said := r.says(ReasonRebooting); len(said) != 1 {
		t.Errorf("about the reboot, it says %q", said)
	}
	if said := r.says(ReasonFailed); (len(said) == 1) != (host.err != nil) {
		t.Errorf("about the command, it says %q", said)
	}
	if said := r.says(ReasonGivenUp); len(said) != 1 || !strings.HasPrefix(said[0], corev1.EventTypeWarning) || !strings.Contains(said[0], seen) {
		t.Errorf("about giving up, it says %q", said)
	}
	time.Sleep(2 * limits.RetryAfter)
	require("the sentinel file is the same", request.Failed)
	r.annotate(request.Now, "yes")
	time.Sleep(time.Minute)
	require("a person has asked", request.InProgress)
	time.Sleep(time.Hour)
	if err := os.Chtimes(sentinel, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	require("the sentinel file is another one", request.Failed, request.Needed, request.Since)
}

// Wherever an agent is killed, before or after any of its writes, its node is drained, reboots
// exactly once, and stays cordoned only if it was before. The exception is a kill between the
// record that the command is run and the command: then the reboot has failed, as the Node says.
// A node that cannot be drained does not reboot, an event says so, and it asks again.
func TestKilledAtEachWrite(t *testing.T) {
	for _, tt := range []struct {
		wasCordoned, isStuck   bool
		wantWrites, wantFailed int
	}{
		{false, false, 7, 1}, // begin, event, evict, reboot, event, finish, event
		{true, false, 7, 1},
		{false, true, 6, 0}, // begin, event, event, uncordon, event, give up
		{true, true, 5, 0},
	} {
		writes, failures := 0, 0
		for at := 0; at <= writes; at++ { // it is not killed at write 0
			for _, isAfter := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, after %t, cordoned %t, stuck %t", at, isAfter, tt.wasCordoned, tt.isStuck), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newMortalHost(t, at, isAfter, tt.wasCordoned, tt.isStuck)
						if h.requireOneReboot(tt.wasCordoned, tt.isStuck) {
							failures++
						}
						if at == 0 {
							writes = h.writes
						}
					})
				})
			}
		}
		if failures != tt.wantFailed {
			t.Errorf("the reboot has failed %d times", failures)
		}
		if writes != tt.wantWrites {
			t.Errorf("there were %d writes, want %d", writes, tt.wantWrites)
		}
	}
}

// mortalHost is a host whose agent is killed at one of its writes, and goes down a minute after
// the reboot command.
type mortalHost struct {
	t       *testing.T
	cluster *script.Cluster
	bootID  string // the file
	killAt  int
	isAfter bool // whether the write is carried out that the agent is killed at

	mu       sync.Mutex
	kill     context.CancelFunc
	isDead   bool // nothing that the agent still does has any effect
	writes   int
	commands int
}

var errKilled = errors.New("the agent was killed")

// newMortalHost returns a host whose reboot was granted, and which has a Pod. If that is stuck, nothing
// may evict it.
func newMortalHost(t *testing.T, killAt int, isAfter, wasCordoned, isStuck bool) *mortalHost {
	t.Helper()
	n := node(map[string]string{request.Now: "", "example.com/kept": "x"}, kubeletOf("boot-1"))
	n.Spec.Unschedulable = wasCordoned
	cluster, _ := newKube(t)
	cluster.Set(n)
	cluster.Set(newPod("pod", func(pod *corev1.Pod) {
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		if isStuck {
			pod.OwnerReferences = nil
		}
	}))
	h := &mortalHost{t: t, cluster: cluster, bootID: filepath.Join(t.TempDir(), "boot_id"), killAt: killAt, isAfter: isAfter}
	h.boot("boot-1")
	return h
}

func (h *mortalHost) boot(id string) {
	if err := os.WriteFile(h.bootID, []byte(id), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// RoundTrip implements http.RoundTripper: it answers a request of the agent, but not once that is
// dead. A policy refuses dry runs.
func (h *mortalHost) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.isDead:
		return nil, errKilled
	case r.Method == http.MethodGet, strings.Contains(r.URL.Path, "/leases"):
		return h.cluster.RoundTrip(r)
	case r.URL.Query().Has("dryRun"):
		return apiserver.Refuse(apierrors.NewForbidden(corev1.Resource("nodes"), "node-1", errPolicy)).HTTP(r), nil
	}
	h.writes++
	if h.writes == h.killAt {
		h.isDead = true
		h.kill()
		if !h.isAfter {
			return nil, errKilled
		}
	}
	response, err := h.cluster.RoundTrip(r)
	if h.isDead {
		return nil, errKilled
	}
	return response, err
}

// Check implements Rebooter.
func (h *mortalHost) Check() error { return nil }

// Reboot implements Rebooter. By then, the node is drained, and an event says so.
func (h *mortalHost) Reboot(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDead {
		return errKilled
	}
	h.commands++
	n := h.node()
	if pods := script.All[corev1.Pod](h.cluster); len(pods) > 0 || !n.Spec.Unschedulable {
		h.t.Errorf("goes down, cordoned: %t, with %d Pods", n.Spec.Unschedulable, len(pods))
	}
	told := slices.ContainsFunc(script.All[corev1.Event](h.cluster), func(e *corev1.Event) bool {
		return e.InvolvedObject == corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID} &&
			e.ReportingController == Name && e.Type == corev1.EventTypeNormal && e.Message == "The node is drained and is being rebooted"
	})
	if !told {
		h.t.Errorf("goes down, and no event says so: %v", script.All[corev1.Event](h.cluster))
	}
	time.AfterFunc(time.Minute, h.goDown)
	return nil
}

// goDown ends the agent, and boots the host again.
func (h *mortalHost) goDown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isDead = true
	h.kill()
	h.boot("boot-2")
	script.Edit(h.cluster, "", "node-1", kubeletOf("boot-2"))
}

func (h *mortalHost) node() *corev1.Node { return script.Get[corev1.Node](h.cluster, "", "node-1") }

// requireOneReboot runs one agent after the other, until none has anything to do. It reports whether
// the Node says that the reboot has failed. Otherwise the reboot command was run once, unless a Pod
// is stuck.
func (h *mortalHost) requireOneReboot(wasCordoned, isStuck bool) (hasFailed bool) {
	for h.runs() {
	}
	n := h.node()
	if request.IsGranted(n) || request.IsNeeded(n) != isStuck || n.Annotations["example.com/kept"] != "x" {
		h.t.Errorf("the annotations are %v", n.Annotations)
	}
	_, hasFailed = n.Annotations[request.Failed]
	wantCommands, wantGivenUp := 1, 0
	if hasFailed || isStuck {
		wantCommands, wantGivenUp = 0, 1
	}
	if h.commands != wantCommands || n.Spec.Unschedulable != wasCordoned {
		h.t.Errorf("rebooted %d times, cordoned: %t, and before: %t", h.commands, n.Spec.Unschedulable, wasCordoned)
	}
	if said := (&reporter{h.cluster, h.t}).says(ReasonGivenUp); len(said) != wantGivenUp {
		h.t.Errorf("about giving up, it says %q", said)
	}
	if h.killAt > h.writes {
		h.t.Errorf("there is no write %d", h.killAt)
	}
	return hasFailed
}

// runs runs an agent for 20 minutes, and reports whether it was killed by then.
func (h *mortalHost) runs() bool {
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Minute)
	defer cancel()
	h.isDead, h.kill = false, cancel
	kube, err := kubernetes.NewForConfig(&rest.Config{Transport: h, QPS: -1})
	if err != nil {
		h.t.Fatal(err)
	}
	nodes := kubeinformers.NewSharedInformerFactory(kube, 0)
	a, err := New(Config{NodeName: "node-1", LeaseNamespace: "agents", LookEvery: 5 * time.Minute, Limits: limits, BootIDFile: h.bootID, Drain: true}, kube, nodes, h)
	if err != nil {
		h.t.Fatal(err)
	}
	nodes.StartWithContext(ctx)
	if err := a.Run(ctx); err != nil {
		h.t.Error(err)
	}
	nodes.Shutdown()
	return h.isDead
}

// An agent that wakes up long after its grant has ended gives it back.
func TestLateGrantIsGivenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		value, want string
		isNeeded    bool
	}{
		"its end is long ago": {"2000-01-01T00:00:00Z", "Reboot not started: the grant expired at 2000-01-01T00:00:00Z (node clock: ", true},
		"it is unclear":       {"4am", `Reboot not started: annotation controller.nicoleh.io/reboot-now is "4am", which is neither`, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, node(map[string]string{request.Now: tt.value}), func(t *testing.T, c *scripted) {
				d, err := Decide(Observed{Now: noon, Node: c.node(), BootID: "old", Limits: limits})
				if err != nil || d.Step != GiveBack {
					t.Fatalf("step %s, error %v", d.Step, err)
				}
				after, err := c.act(t.Context(), c.node(), d)
				if err != nil || request.IsGranted(after) || request.IsNeeded(after) != tt.isNeeded {
					t.Errorf("annotations %v, error %v", after.Annotations, err)
				}
				if events := script.All[corev1.Event](c.Cluster); len(events) != 1 || events[0].Type != corev1.EventTypeWarning || !strings.HasPrefix(events[0].Message, tt.want) {
					t.Errorf("events %v", events)
				}
			})
		})
	}
}

// A process without privileges looks for the sentinel file on the agent's behalf. Before it
// has looked for the first time, nothing is decided: a sentinel file that still exists after
// a reboot would be mistaken for a new one.
func TestSentinelIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		sentinel, state := filepath.Join(dir, "reboot-required"), filepath.Join(dir, "state")
		looks, reads := &Agent{config: Config{SentinelFile: sentinel}}, &Agent{config: Config{SentinelFile: sentinel, SentinelState: state}}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		if at, err := reads.sentinel(); !at.IsZero() || !errors.Is(err, errSentinelUnknown) {
			t.Errorf("before the first look: %s, %v", at, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- WatchSentinel(ctx, sentinel, state, time.Minute) }()
		require := func(want time.Time) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, a := range []*Agent{looks, reads} {
				if at, err := a.sentinel(); !at.Equal(want) || err != nil {
					t.Errorf("the sentinel file was modified at %s, want %s; %v", at, want, err)
				}
			}
		}
		require(time.Time{})
		must(os.WriteFile(sentinel, nil, 0o600))
		first := time.Now().Add(-time.Hour + time.Nanosecond)
		for _, at := range []time.Time{first, first.Add(time.Nanosecond)} {
			must(os.Chtimes(sentinel, at, at))
			require(at)
		}
		must(os.Remove(sentinel))
		require(time.Time{})
		cancel()
		must(<-ended)
		must(os.WriteFile(state, []byte("maybe"), 0o600))
		if at, err := reads.sentinel(); !at.IsZero() || err == nil {
			t.Errorf("an invalid state was read as %s", at)
		}
	})
}
