package agent

import (
	"context"
	"errors"
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// errPolicy is how a policy refuses what an agent must not do.
var errPolicy = errors.New("ValidatingAdmissionPolicy 'k8s-controller-reboot-agent' with binding 'k8s-controller-reboot-agent' denied request: the agent changes nothing of its Node but its own annotations and the cordon")

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
		a := &Agent{kube: fake.NewClientset(n)}
		if _, err := a.write(t.Context(), n, d); err != nil {
			t.Fatal(err)
		}
		after, err := a.kube.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if after.Annotations["example.com/kept"] != "x" || after.Annotations[request.InProgress] == "" {
			t.Errorf("after %s, the annotations are %v", step, after.Annotations)
		}
	}
}

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
	kube    *fake.Clientset
	reasons []string
}

func (l *lastWords) Check() error { return nil }

func (l *lastWords) Reboot(ctx context.Context) error {
	events, err := l.kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	for _, e := range events.Items {
		l.reasons = append(l.reasons, e.Reason)
	}
	return err
}

// The event is written before the command is run: the machine may go down at once. It says
// who reports what about which node.
func TestEventIsWrittenBeforeTheReboot(t *testing.T) {
	n := node(map[string]string{request.InProgress: `{"bootID":"old","cordoned":true,"since":"2026-07-01T12:00:00Z"}`}, cordoned)
	n.UID = "uid-1"
	host := &lastWords{kube: fake.NewClientset(n)}
	a := &Agent{kube: host.kube, host: host, config: Config{NodeName: n.Name, Limits: limits, Drain: true}}
	d, err := Decide(Observed{Now: noon, Node: n, BootID: "old", Drained: true, Limits: limits})
	if err != nil || d.Step != Reboot {
		t.Fatalf("step %s, error %v", d.Step, err)
	}
	if _, err := a.act(t.Context(), n, d); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(host.reasons, []string{ReasonRebooting}) {
		t.Errorf("when the command was run, there were the events %q", host.reasons)
	}
	events, err := host.kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatalf("%d events, error %v", len(events.Items), err)
	}
	e := events.Items[0]
	if want := (corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}); e.InvolvedObject != want || e.ReportingController != Name || e.Type != corev1.EventTypeNormal || e.Message != "The node is drained and is being rebooted" {
		t.Errorf("the event is %+v", e)
	}
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
			kube := fake.NewClientset(n.DeepCopy())
			kube.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) { return tt.events != nil, nil, tt.events })
			failure := tt.node
			kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
				err := failure
				failure = nil
				return err != nil, nil, err
			})
			a := &Agent{kube: kube, config: Config{NodeName: n.Name, Limits: limits}}
			for range 2 {
				if after, err := a.act(t.Context(), n, d); err == nil && after != nil {
					break
				}
			}
			events, err := kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(events.Items) != tt.wantEvents {
				t.Errorf("%d events, want %d; error %v", len(events.Items), tt.wantEvents, err)
			}
			after, err := kube.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
			if err != nil || request.IsGranted(after) == tt.wantGivenUp {
				t.Errorf("annotations %v, error %v", after.Annotations, err)
			}
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
			kube := fake.NewClientset(n.DeepCopy())
			kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return response != nil, nil, response })
			a := &Agent{kube: kube, drained: "x"}
			if _, err := a.act(t.Context(), n, Decision{Step: Cordon, Unschedulable: ptr.To(true)}); !errors.Is(err, response) {
				t.Error(err)
			}
			if a.drained != "" {
				t.Error("it still counts as drained")
			}
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
	kube := fake.NewClientset(node(map[string]string{request.Now: ""}))
	kube.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		isDryRun := len(action.(clienttesting.PatchActionImpl).PatchOptions.DryRun) > 0
		return isDryRun, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node-1", errPolicy)
	})
	ctx, sentinel := t.Context(), filepath.Join(t.TempDir(), "reboot-required")
	if err := os.WriteFile(sentinel, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, kube, host, Config{SentinelFile: sentinel, Drain: true})
	get := func() *corev1.Node {
		t.Helper()
		synctest.Wait()
		n, err := kube.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	recorded := func(reason string) (messages []string) {
		t.Helper()
		events, err := kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
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
	n.Annotations[request.Now] = "yes"
	if _, err := kube.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
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
	kube    *fake.Clientset
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
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}, Spec: corev1.PodSpec{NodeName: n.Name}}
	h := &mortalHost{t: t, kube: fake.NewClientset(n, pod), bootID: filepath.Join(t.TempDir(), "boot_id"), killAt: killAt, isAfter: isAfter}
	h.boot("boot-1")
	h.kube.PrependReactor("*", "*", h.react)
	return h
}

func (h *mortalHost) boot(id string) {
	if err := os.WriteFile(h.bootID, []byte(id), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// react answers a request of the agent: not at all once it is dead.
func (h *mortalHost) react(action clienttesting.Action) (bool, runtime.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	patch, isPatch := action.(clienttesting.PatchActionImpl)
	switch {
	case h.isDead:
		return true, nil, errKilled
	case slices.Contains([]string{"get", "list"}, action.GetVerb()), action.GetResource().Resource == "leases":
		return false, nil, nil
	case isPatch && len(patch.PatchOptions.DryRun) > 0:
		return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node-1", errPolicy)
	}
	h.writes++
	if h.writes == h.killAt {
		h.isDead = true
		h.kill()
		if !h.isAfter {
			return true, nil, errKilled
		}
	}
	if action.GetSubresource() == "eviction" {
		return true, nil, h.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "pod")
	}
	_, after, err := clienttesting.ObjectReaction(h.kube.Tracker())(action)
	if h.isDead {
		return true, nil, errKilled
	}
	return true, after, err
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
	pods, err := h.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "default")
	if err != nil || len(pods.(*corev1.PodList).Items) > 0 || !n.Spec.Unschedulable {
		h.t.Errorf("goes down, cordoned: %t, with the Pods %v (%v)", n.Spec.Unschedulable, pods, err)
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
	n := h.node()
	n.Status.NodeInfo.BootID = "boot-2"
	if err := h.kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, ""); err != nil {
		h.t.Error(err)
	}
}

func (h *mortalHost) node() *corev1.Node {
	n, err := h.kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node-1")
	if err != nil {
		h.t.Fatal(err)
	}
	return n.(*corev1.Node)
}

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
	nodes := kubeinformers.NewSharedInformerFactory(h.kube, 0)
	a, err := New(Config{NodeName: "node-1", LeaseNamespace: "agents", LookEvery: 5 * time.Minute, Limits: limits, BootIDFile: h.bootID, Drain: true, Force: true}, h.kube, nodes, h)
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
		"its end is long ago": {"2000-01-01T00:00:00Z", "Reboot not started: the node might reboot until 2000-01-01T00:00:00Z, and by its clock it is ", true},
		"it is unclear":       {"4am", `Reboot not started: annotation controller.nicoleh.io/reboot-now is "4am", which is neither`, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := node(map[string]string{request.Now: tt.value})
			kube := fake.NewClientset(n)
			a := &Agent{kube: kube, config: Config{NodeName: n.Name, Limits: limits}}
			d, err := Decide(Observed{Now: noon, Node: n, BootID: "old", Limits: limits})
			if err != nil || d.Step != GiveBack {
				t.Fatalf("step %s, error %v", d.Step, err)
			}
			after, err := a.act(t.Context(), n, d)
			if err != nil || request.IsGranted(after) || request.IsNeeded(after) != tt.isNeeded {
				t.Errorf("annotations %v, error %v", after.Annotations, err)
			}
			events, err := kube.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(events.Items) != 1 || events.Items[0].Type != corev1.EventTypeWarning || !strings.HasPrefix(events.Items[0].Message, tt.want) {
				t.Errorf("events %v, error %v", events.Items, err)
			}
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
