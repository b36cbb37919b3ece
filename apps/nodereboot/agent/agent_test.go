package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

func TestMain(m *testing.M) {
	// The default handlers also pace errors by the time since the last one, and a bubble's
	// clock is decades away from the one outside.
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// newKube returns a cluster that has what the agent deals with, and a client of it.
func newKube(t *testing.T) (*script.Cluster, kubernetes.Interface) {
	t.Helper()
	cluster := script.New(t, apiserver.Nodes(), apiserver.Pods(), apiserver.EventObjects())
	kube, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	return cluster, kube
}

// host is a node, whose agent can be killed, and a controller that grants it each reboot that it needs.
type host struct {
	*script.Cluster
	t         *testing.T
	config    Config
	check     error
	reboot    func() error    // what the reboot command does; nil if the host goes down a minute later
	meanwhile func(write int) // what others do after that write of the agent
	closes    time.Time       // when the window closes; zero if it does not

	killAt  int  // the write at which the agent is killed; 0 for none
	isAfter bool // whether that write is carried out

	mu       sync.Mutex
	kill     context.CancelFunc
	isDead   bool // nothing that the agent still does has any effect
	writes   int
	commands map[int64]int // how often the reboot command was run, by grant
}

var errKilled = errors.New("the agent was killed")

// newHost returns a host with a Pod that can be evicted. People request a reboot of it.
func newHost(t *testing.T) *host {
	t.Helper()
	cluster, _ := newKube(t)
	h := &host{Cluster: cluster, t: t, commands: map[int64]int{}}
	h.config = Config{NodeName: "node-1", LookEvery: time.Minute, Limits: limits, BootIDFile: filepath.Join(t.TempDir(), "boot_id"), Drain: true}
	n := newNode("boot-1")
	n.Annotations[request.Needed] = ""
	h.Set(n)
	h.Set(newPod("pod", withGrace(0)))
	h.write(h.config.BootIDFile, "boot-1")
	return h
}

func (h *host) write(file, content string) {
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) node() request.Node {
	return request.Read(script.Get[corev1.Node](h.Cluster, "", "node-1"))
}

func (h *host) annotate(name string, value *string) {
	script.Edit(h.Cluster, "", "node-1", func(n *corev1.Node) {
		if delete(n.Annotations, name); value != nil {
			n.Annotations[name] = *value
		}
	})
}

// says returns the types and messages of the events with that reason.
func (h *host) says(reason string) (messages []string) {
	for _, event := range script.All[corev1.Event](h.Cluster) {
		if event.InvolvedObject.Name == "node-1" && event.ReportingController == Name && event.Reason == reason {
			messages = append(messages, event.Type+" "+event.Message)
		}
	}
	return messages
}

// grants takes the step of the controller that is next.
func (h *host) grants() {
	node, now := h.node(), time.Now().UTC().Truncate(time.Second)
	grant := request.Grant{}
	if node.Grant != nil {
		grant = *node.Grant
	}
	switch stage := node.Stage(); {
	case node.Record == nil || !h.closes.IsZero() && now.After(h.closes):
		return
	case stage == request.NoGrant && node.IsDue(now) && !node.Record.NotBefore.After(now) && node.Record.Unable == "":
		grant = request.Grant{ID: max(grant.ID, node.Record.ID) + 1, BootID: node.Record.BootID, Chosen: now}
	case stage == request.Chosen && node.HasAnswered() && node.Record.Blocked == "":
		grant.Until, grant.Closes = now.Add(request.GrantFor), h.closes
	default:
		return
	}
	h.annotate(request.Granted, request.Encode(grant))
}

// RoundTrip implements http.RoundTripper: it answers a request of the agent, but not once that is dead.
func (h *host) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Millisecond) // so that no two events have one name
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDead {
		return nil, errKilled
	}
	if r.Method == http.MethodGet {
		return h.Cluster.RoundTrip(r)
	}
	if h.writes++; h.writes == h.killAt {
		h.isDead = true
		h.kill()
		if !h.isAfter {
			return nil, errKilled
		}
	}
	response, err := h.Cluster.RoundTrip(r)
	if h.meanwhile != nil {
		h.meanwhile(h.writes)
	}
	if h.isDead {
		return nil, errKilled
	}
	return response, err
}

// Check implements Rebooter.
func (h *host) Check() error { return h.check }

// Reboot implements Rebooter.
func (h *host) Reboot(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDead {
		return errKilled
	}
	h.commands[h.node().Grant.ID]++
	if said := h.says(ReasonRebooting); len(said) == 0 {
		h.t.Error("it goes down, and no event says so")
	}
	if h.reboot != nil {
		return h.reboot()
	}
	time.AfterFunc(time.Minute, h.goDown)
	return nil
}

// goDown ends the agent, and boots the host again.
func (h *host) goDown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isDead = true
	h.kill()
	h.write(h.config.BootIDFile, "boot-2")
	script.Edit(h.Cluster, "", "node-1", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })
}

// run runs one agent after the other, until one has run for that long.
func (h *host) run(d time.Duration) {
	h.isDead = true
	for agents := 0; h.isDead; agents++ {
		if agents > 4 {
			h.t.Fatalf("agents end again and again, after the commands %v", h.commands)
		}
		ctx, cancel := context.WithTimeout(h.t.Context(), d)
		h.isDead, h.kill = false, cancel
		kube, err := kubernetes.NewForConfig(&rest.Config{Transport: h, QPS: -1})
		if err != nil {
			h.t.Fatal(err)
		}
		nodes := kubeinformers.NewSharedInformerFactory(kube, 0)
		a, err := New(h.config, kube, nodes, h)
		if err != nil {
			h.t.Fatal(err)
		}
		nodes.StartWithContext(ctx)
		var controller sync.WaitGroup
		controller.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Second) {
				h.grants()
			}
		})
		if err := a.Run(ctx); err != nil {
			h.t.Error(err)
		}
		cancel()
		nodes.Shutdown()
		controller.Wait()
	}
}

// total returns how often the reboot command was run, which is at most once for each grant.
func (h *host) total() (commands int) {
	for id, times := range h.commands {
		if commands += times; times > 1 {
			h.t.Errorf("the reboot command was run %d times for grant %d", times, id)
		}
	}
	return commands
}

// Wherever an agent is killed, before or after any of its writes, its node is drained, reboots once,
// although the grant stays there, and is cordoned afterwards only if it was before. The exception is a
// kill between the record that the command is run and the command: then the reboot has failed, as the
// record says. If the window closes during the drain, the node does not reboot, and still needs to.
func TestKilledAtEachWrite(t *testing.T) {
	for _, tt := range []struct {
		wasCordoned, closes    bool
		wantWrites, wantFailed int
	}{
		{false, false, 9, 1}, // report, answer, begin, event, evict, event, reboot, finish, event
		{true, false, 9, 1},
		{false, true, 9, 0}, // report, answer, begin, event, evict three times, give up, event
		{true, true, 9, 0},
	} {
		failures := 0
		for at := 0; at <= tt.wantWrites; at++ { // it is not killed at write 0
			for _, isAfter := range []bool{false, true} {
				t.Run(fmt.Sprintf("write %d, after %t, cordoned %t, closes %t", at, isAfter, tt.wasCordoned, tt.closes), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := newHost(t)
						h.killAt, h.isAfter = at, isAfter
						if tt.closes {
							h.closes = time.Now().Add(12 * time.Second)
							h.Refuse(refuseEvictions)
						}
						script.Edit(h.Cluster, "", "node-1", func(n *corev1.Node) { n.Spec.Unschedulable = tt.wasCordoned })
						h.run(20 * time.Minute)
						record, pods := h.node().Record, script.All[corev1.Pod](h.Cluster)
						wantCommands := 1
						if record.Failed != nil {
							failures++
						}
						if record.Failed != nil || tt.closes {
							wantCommands = 0
						}
						if h.total() != wantCommands || record.Work != nil || h.node().IsNeeded() != tt.closes || h.node().Spec.Unschedulable != tt.wasCordoned || (len(pods) > 0) != tt.closes {
							t.Errorf("commands %v, %d Pods, cordoned %t, annotations %v", h.commands, len(pods), h.node().Spec.Unschedulable, h.node().Annotations)
						}
						if at == 0 && h.writes != tt.wantWrites {
							t.Errorf("there were %d writes, want %d", h.writes, tt.wantWrites)
						}
					})
				})
			}
		}
		if failures != tt.wantFailed {
			t.Errorf("the reboot has failed %d times, want %d", failures, tt.wantFailed)
		}
	}
}

// Whenever somebody removes the record, the grant that is there is void. The node reboots once for its
// request, and stays cordoned if the record of the cordon was lost.
func TestRecordIsRemoved(t *testing.T) {
	for at := 1; at <= 9; at++ {
		t.Run(fmt.Sprint("after write ", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				h.meanwhile = func(write int) {
					if write == at {
						h.annotate(request.Agent, nil)
					}
				}
				h.run(20 * time.Minute)
				isCordonLost := at >= 3 && at <= 7
				if n := h.node(); h.total() != 1 || n.IsNeeded() || n.Record.Work != nil || n.Spec.Unschedulable != isCordonLost {
					t.Errorf("commands %v, cordoned %t, annotations %v", h.commands, n.Spec.Unschedulable, n.Annotations)
				}
			})
		})
	}
}

// If the system does not go down, the record says what was seen. The node is given back, and the
// sentinel file that is still there does not request another reboot. A person does.
func TestSystemStaysUp(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		takes  time.Duration
		seen   string
		isLost bool // the response to the record that the command is run
	}{
		"although the command succeeds":   {nil, 0, "the reboot command ended with success", false},
		"because the command fails":       {errors.New("broken"), 0, "the reboot command failed: broken", false},
		"because the command fails late":  {errors.New("no answer"), 3 * time.Minute, "the reboot command failed: no answer", false},
		"because the command was not run": {nil, 0, "how the reboot command ended is not known", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				h.config.SentinelFile = filepath.Join(t.TempDir(), "reboot-required")
				h.write(h.config.SentinelFile, "")
				h.annotate(request.Needed, nil)
				h.reboot = func() error { time.Sleep(tt.takes); return tt.err }
				want := 1
				if tt.isLost {
					want = 0
					h.Fail("patch nodes", nil, nil, nil, script.ErrLost) // to report, to answer, and to begin
				}
				h.run(3 * time.Hour)
				n := h.node()
				if h.total() != want || n.Record.Failed == nil || !strings.Contains(n.Record.Failed.Why, tt.seen) || n.IsNeeded() || n.Spec.Unschedulable {
					t.Fatalf("commands %v, annotations %v", h.commands, n.Annotations)
				}
				if said := h.says(ReasonGivenUp); len(said) != 1 || !strings.HasPrefix(said[0], corev1.EventTypeWarning) || !strings.Contains(said[0], tt.seen) {
					t.Errorf("about giving up, it says %q", said)
				}
				if said := h.says(ReasonFailed); (len(said) == 1) != (tt.err != nil) {
					t.Errorf("about the command, it says %q", said)
				}
				h.annotate(request.Needed, new(""))
				if h.run(time.Hour); h.total() != want+1 {
					t.Errorf("a person asks: commands %v", h.commands)
				}
			})
		})
	}
}

// An agent that cannot reboot its host, or cannot tell whether it should, says so in its record, and
// needs a reboot all the same: this is how the controller knows.
func TestUnable(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*host)
		after time.Duration
		want  string
	}{
		"no way to reboot":       {func(h *host) { h.check = Command{"/no/such/program"}.Check() }, 0, "-reboot-command cannot be run"},
		"no boot ID":             {func(h *host) { h.write(h.config.BootIDFile, "") }, 0, "boot_id is empty"},
		"the watcher is missing": {func(h *host) { h.config.SentinelState = "/no/such/file" }, patience, errSentinelUnknown.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				tt.spoil(h)
				if tt.after > 0 {
					if h.run(tt.after - time.Second); h.node().Record != nil {
						t.Errorf("too early: %+v", h.node().Record)
					}
				}
				h.run(3 * time.Minute)
				if record := h.node().Record; record == nil || !strings.Contains(record.Unable, tt.want) || record.Since.IsZero() || h.total() > 0 {
					t.Errorf("the record is %+v, want %q; commands %v", record, tt.want, h.commands)
				}
			})
		})
	}
}

// Without a drain, the node reboots with its Pods and volumes, whatever they are.
func TestWithoutDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.config.Drain = false
		h.Set(newPod("bare", bare))
		script.Edit(h.Cluster, "", "node-1", attach("disk"))
		h.run(20 * time.Minute)
		if pods := script.All[corev1.Pod](h.Cluster); h.total() != 1 || len(pods) != 2 || h.Requests("list pods") > 0 {
			t.Errorf("commands %v, %d Pods, %d lists of Pods", h.commands, len(pods), h.Requests("list pods"))
		}
	})
}

// A Pod that blocks the drain delays the reboot until it is gone. Nothing is written meanwhile.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.Set(newPod("bare", bare))
		time.AfterFunc(time.Hour, func() {
			if n := h.node(); !strings.Contains(n.Record.Blocked, "default/bare") || h.writes != 2 || n.Spec.Unschedulable {
				t.Errorf("%d writes, annotations %v", h.writes, n.Annotations)
			}
			script.Delete[corev1.Pod](h.Cluster, "default", "bare", metav1.DeletePropagationBackground)
		})
		if h.run(2 * time.Hour); h.total() != 1 {
			t.Errorf("commands %v, annotations %v", h.commands, h.node().Annotations)
		}
	})
}

// The next attempt to drain begins anew, in the same process, also with Pods that have come since.
func TestSecondAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.Refuse(refuseEvictions)
		time.AfterFunc(30*time.Minute, func() {
			h.Refuse(nil)
			h.Set(newPod("second", withGrace(0)))
		})
		h.run(3 * time.Hour)
		if pods := script.All[corev1.Pod](h.Cluster); h.total() != 1 || len(pods) > 0 || len(h.says(ReasonGivenUp)) != 1 {
			t.Errorf("commands %v, %d Pods, given up: %q", h.commands, len(pods), h.says(ReasonGivenUp))
		}
	})
}

// A sentinel file that is still there after the reboot requests no other, and an event says so.
func TestSentinelStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		h.config.SentinelFile = filepath.Join(t.TempDir(), "reboot-required")
		h.write(h.config.SentinelFile, "")
		h.run(3 * time.Hour)
		if said := h.says(ReasonFinished); h.total() != 1 || len(said) != 1 || !strings.HasPrefix(said[0], corev1.EventTypeWarning) || h.node().IsNeeded() {
			t.Errorf("commands %v, it says %q, annotations %v", h.commands, said, h.node().Annotations)
		}
	})
}
