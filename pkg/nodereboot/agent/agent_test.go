package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// errPolicy is how a policy refuses what an agent must not do.
var errPolicy = errors.New("ValidatingAdmissionPolicy 'k8s-controller-reboot-agent' with binding 'k8s-controller-reboot-agent' denied request: the agent may only change its own annotations and the cordon of its Node")

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// Each step's write leaves the annotations of others alone, and those of the agent that it
// does not name.
func TestWritesLeaveOtherAnnotations(t *testing.T) {
	record := func(words string) map[string]string {
		return map[string]string{"example.com/kept": "x", request.InProgress: `{"bootID":"old",` + words + `"since":"2026-07-01T12:00:00Z"}`}
	}
	for step, n := range map[Step]*corev1.Node{
		Begin:  node(map[string]string{"example.com/kept": "x", request.Now: ""}),
		Cordon: node(record("")),
		Disown: node(record(`"cordoned":true,`)),
		Undo:   node(record(`"cordoned":true,`), cordoned),
	} {
		now := noon
		if step == Undo {
			now = noon.Add(time.Hour)
		}
		d, err := Decide(Observed{Now: now, Node: n, BootID: "old", Limits: limits})
		if err != nil || d.Step != step {
			t.Fatalf("step %s, want %s: %v", d.Step, step, err)
		}
		inCluster(t, n, func(t *testing.T, c *scripted) {
			after, err := c.write(t.Context(), c.node(), d)
			if err != nil || after.Annotations["example.com/kept"] != "x" || after.Annotations[request.InProgress] == "" {
				t.Errorf("after %s, the annotations are %v, error %v", step, after.Annotations, err)
			}
		})
	}
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

// A command that hangs, or starts a process that does, does not block the agent.
func TestCommandEnds(t *testing.T) {
	for name, script := range map[string]string{
		"it hangs":                        "echo $$ >%s; exec sleep 1000",
		"so does one that it has started": "sleep 1000 & echo $! >%s; exec sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, started := filepath.Join(dir, "reboot"), filepath.Join(dir, "started")
			if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n"+script+"\n", started), 0o700); err != nil { //nolint:gosec // a program must be executable
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
			if pid == 0 {
				t.Fatalf("it has started nothing within a minute: %v", err)
			}
			// The command itself has been killed, but not what it has started.
			if killed := syscall.Kill(pid, syscall.SIGKILL); killed != nil && !errors.Is(killed, syscall.ESRCH) {
				t.Error(killed)
			}
			if err == nil {
				t.Errorf("%q succeeded", script)
			}
		})
	}
}

// lastWords is a host that notes which events exist when it is told to reboot.
type lastWords struct {
	cluster *script.Cluster
	reasons []string
}

func (l *lastWords) Check() error { return nil }

func (l *lastWords) Reboot(context.Context) error {
	for _, e := range script.All[corev1.Event](l.cluster) {
		l.reasons = append(l.reasons, e.Reason)
	}
	return nil
}

// The event is written before the command is run: the machine may go down at once. It says
// who reports what about which node.
func TestEventIsWrittenBeforeTheReboot(t *testing.T) {
	inCluster(t, node(map[string]string{request.InProgress: `{"bootID":"old","cordoned":true,"since":"2026-07-01T12:00:00Z"}`}, cordoned), func(t *testing.T, c *scripted) {
		host := &lastWords{cluster: c.Cluster}
		c.host, c.config.Drain = host, true
		n := c.node()
		d, err := Decide(Observed{Now: noon, Node: n, BootID: "old", Drained: true, Limits: limits})
		if err != nil || d.Step != Reboot {
			t.Fatalf("step %s, error %v", d.Step, err)
		}
		if _, err := c.act(t.Context(), n, d); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(host.reasons, []string{ReasonRebooting}) {
			t.Errorf("when the command was run, there were the events %q", host.reasons)
		}
		events := script.All[corev1.Event](c.Cluster)
		if len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		e := events[0]
		if want := (corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}); e.InvolvedObject != want || e.ReportingController != Name || e.Type != corev1.EventTypeNormal || e.Message != "The node is drained and is being rebooted" {
			t.Errorf("the event is %+v", e)
		}
	})
}

// A reboot is given up only after an event has said so, and a repetition makes no second
// event. An event that the API server refuses does not keep the node unavailable for ever.
func TestGivingUpIsReportedFirst(t *testing.T) {
	n := node(map[string]string{request.InProgress: `{"bootID":"old","since":"2026-07-01T12:00:00Z"}`})
	d, err := Decide(Observed{Now: noon.Add(time.Hour), Node: n, BootID: "old", Limits: limits})
	if err != nil || d.Step != GiveUp {
		t.Fatalf("step %s, error %v", d.Step, err)
	}
	for _, tt := range []struct {
		name        string
		events      error // the response to the event
		node        error // the response to the write of the Node
		wantEvents  int
		wantGivenUp bool
	}{
		{"both are written", nil, nil, 1, true},
		{"the event is not written", apierrors.NewInternalError(errors.New("etcd is down")), nil, 0, false},
		{"the event is refused", apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("no permission")), nil, 0, true},
		{"the Node is not written at first", nil, apierrors.NewInternalError(errors.New("etcd is down")), 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, n, func(t *testing.T, c *scripted) {
				c.Refuse(func(request string) error {
					if request == "create events" {
						return tt.events
					}
					return nil
				})
				c.Fail("patch nodes", tt.node)
				for range 2 {
					if after, err := c.act(t.Context(), c.node(), d); err == nil && after != nil {
						break
					}
				}
				if events := script.All[corev1.Event](c.Cluster); len(events) != tt.wantEvents {
					t.Errorf("%d events, want %d", len(events), tt.wantEvents)
				}
				if after := c.node(); request.IsGranted(after) == tt.wantGivenUp {
					t.Errorf("annotations %v", after.Annotations)
				}
			})
		})
	}
}

// That the node was drained no longer counts once it may have been schedulable since.
func TestDrainIsForgotten(t *testing.T) {
	n := node(map[string]string{request.InProgress: "x"})
	for name, response := range map[string]error{
		"the agent cordons the node again":  nil,
		"someone else has changed the node": apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, n, func(t *testing.T, c *scripted) {
				c.Fail("patch nodes", response)
				c.drained = "x"
				if _, err := c.act(t.Context(), c.node(), Decision{Step: Cordon, Unschedulable: ptr.To(true)}); apierrors.IsConflict(err) != (response != nil) {
					t.Error(err)
				}
				if c.drained != "" {
					t.Error("it still counts as drained")
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
	if err := (Command{"/no/such/program"}).Check(); err == nil {
		t.Error("a missing program passes the check")
	}
	if err := (Command{"true"}).Check(); err != nil {
		t.Error(err)
	}
}

// start runs an agent of node-1 until the test ends. The host was booted once.
func start(t *testing.T, kube kubernetes.Interface, host Rebooter, config Config) {
	t.Helper()
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
}

// noEffect is a host whose reboot command ends, with success or not, and has no effect, as
// systemctl soft-reboot.
type noEffect struct {
	err   error
	after time.Duration
}

func (noEffect) Check() error { return nil }

func (n noEffect) Reboot(context.Context) error {
	time.Sleep(n.after)
	return n.err
}

// If the system does not go down, that is a Warning, with what was seen. The node is given
// back, and the sentinel file that is still there does not
// ask again. A person does.
func TestSystemStaysUp(t *testing.T) {
	for name, tt := range map[string]struct {
		host noEffect
		seen string
	}{
		"although the command succeeds":  {noEffect{}, "the reboot command ended with success"},
		"because the command fails":      {noEffect{err: errors.New("broken")}, "the reboot command failed: broken"},
		"because the command fails late": {noEffect{errors.New("BMC does not answer"), 3 * time.Minute}, "the reboot command failed: BMC does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSystemStaysUp(t, tt.host, tt.seen) })
		})
	}
}

func testSystemStaysUp(t *testing.T, host noEffect, seen string) {
	cluster, kube := newKube(t)
	cluster.Set(node(map[string]string{request.Now: ""}))
	sentinel := filepath.Join(t.TempDir(), "reboot-required")
	if err := os.WriteFile(sentinel, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, kube, host, Config{SentinelFile: sentinel, Drain: true})
	get := func() *corev1.Node {
		synctest.Wait()
		return script.Get[corev1.Node](cluster, "", "node-1")
	}
	recorded := func(reason string) (messages []string) {
		for _, e := range script.All[corev1.Event](cluster) {
			if e.Reason == reason && (e.Type == corev1.EventTypeWarning) == (reason != ReasonRebooting) {
				messages = append(messages, e.Message)
			}
		}
		slices.Sort(messages)
		return messages
	}

	time.Sleep(time.Minute)
	if n := get(); !n.Spec.Unschedulable || !request.IsGranted(n) {
		t.Errorf("cordoned: %t, annotations %v", n.Spec.Unschedulable, n.Annotations)
	}
	time.Sleep(time.Hour)
	n := get()
	if _, isFailed := n.Annotations[request.Failed]; n.Spec.Unschedulable || request.IsGranted(n) || !isFailed {
		t.Errorf("cordoned: %t, annotations %v", n.Spec.Unschedulable, n.Annotations)
	}
	if rebooting := recorded(ReasonRebooting); len(rebooting) != 1 {
		t.Errorf("events about the reboot: %q", rebooting)
	}
	if failed := recorded(ReasonFailed); len(failed) != 1 && host.err != nil {
		t.Errorf("failures of the command: %q", failed)
	}
	if givenUp := recorded(ReasonGivenUp); len(givenUp) != 1 || !strings.Contains(givenUp[0], seen) {
		t.Errorf("given up: %q", givenUp)
	}

	time.Sleep(2 * limits.RetryAfter)
	if n := get(); request.IsNeeded(n) {
		t.Errorf("the same sentinel file asks again: %v", n.Annotations)
	}
	script.Edit(cluster, "", "node-1", func(n *corev1.Node) { n.Annotations[request.Now] = "yes" })
	time.Sleep(time.Minute)
	if n := get(); n.Annotations[request.Failed] != "" || n.Annotations[request.InProgress] == "" {
		t.Errorf("does not begin again: %v", n.Annotations)
	}
	time.Sleep(time.Hour)
	if err := os.Chtimes(sentinel, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	if n := get(); !request.IsNeeded(n) {
		t.Errorf("a new sentinel file does not ask: %v", n.Annotations)
	}
}

// Wherever an agent is killed, before or after any of its writes, its node is drained, reboots
// exactly once, and stays cordoned only if it was before. The exception is a kill between the
// record that the command is run and the command: then the reboot has failed, as the Node says.
func TestKilledAtEachWrite(t *testing.T) {
	for _, wasCordoned := range []bool{false, true} {
		writes, failures := 0, 0
		for at := 0; at <= writes; at++ { // it is not killed at write 0
			for _, isAfter := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, after %t, cordoned %t", at, isAfter, wasCordoned), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newMortalHost(t, at, isAfter, wasCordoned)
						if h.requireOneReboot(t, wasCordoned) == 0 {
							failures++
						}
						if at == 0 {
							writes = h.writes
						}
					})
				})
			}
		}
		if failures != 1 {
			t.Errorf("the reboot has failed %d times", failures)
		}
		if want := 7; writes < want { // begin, event, evict, reboot, event, finish, event
			t.Errorf("there were %d writes, want at least %d", writes, want)
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

func newMortalHost(t *testing.T, killAt int, isAfter, wasCordoned bool) *mortalHost {
	t.Helper()
	n := node(map[string]string{request.Now: "", "example.com/kept": "x"}, kubeletOf("boot-1"))
	n.Spec.Unschedulable = wasCordoned
	cluster, _ := newKube(t)
	cluster.Set(n)
	cluster.Set(newPod("pod", func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) }))
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

// Reboot implements Rebooter.
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

// requireOneReboot runs one agent after the other, until none has anything to do. It returns how
// often the reboot command was run: once, or not at all if the Node says that the reboot has failed.
func (h *mortalHost) requireOneReboot(t *testing.T, wasCordoned bool) (commands int) {
	t.Helper()
	for h.runs() {
	}
	n := h.node()
	if request.IsGranted(n) || request.IsNeeded(n) || n.Annotations["example.com/kept"] != "x" {
		t.Errorf("the annotations are %v", n.Annotations)
	}
	want := 1
	if _, hasFailed := n.Annotations[request.Failed]; hasFailed {
		want = 0
	}
	if h.commands != want || n.Spec.Unschedulable != wasCordoned {
		t.Errorf("rebooted %d times, cordoned: %t, and before: %t", h.commands, n.Spec.Unschedulable, wasCordoned)
	}
	if h.killAt > h.writes {
		t.Errorf("there is no write %d", h.killAt)
	}
	return h.commands
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
		a := &Agent{config: Config{SentinelFile: sentinel, SentinelState: state}}
		if at, err := a.sentinel(); !at.IsZero() || !errors.Is(err, errSentinelUnknown) {
			t.Errorf("before the first look: %s, %v", at, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- WatchSentinel(ctx, sentinel, state, time.Minute) }()
		require := func(want time.Time) {
			t.Helper()
			synctest.Wait()
			itself := &Agent{config: Config{SentinelFile: sentinel}}
			for _, a := range []*Agent{a, itself} {
				if at, err := a.sentinel(); !at.Equal(want) || err != nil {
					t.Errorf("the sentinel file was modified at %s, want %s; %v", at, want, err)
				}
			}
		}
		require(time.Time{})
		modified := time.Now().Add(-time.Hour + time.Nanosecond)
		touch := func() {
			t.Helper()
			if err := os.Chtimes(sentinel, modified, modified); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(sentinel, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		touch()
		time.Sleep(time.Minute)
		require(modified)
		modified = modified.Add(time.Nanosecond)
		touch()
		time.Sleep(time.Minute)
		require(modified)
		if err := os.Remove(sentinel); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		require(time.Time{})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(state, []byte("maybe"), 0o600); err != nil {
			t.Fatal(err)
		}
		if at, err := a.sentinel(); !at.IsZero() || err == nil {
			t.Errorf("an invalid state was read as %s", at)
		}
	})
}
