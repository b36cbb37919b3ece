package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// reboots lets people ask for the reboot of a node with a Pod, in a bubble, and returns the node after 20 minutes. Something
// can happen at each write of its agent.
func reboots(t *testing.T, flags []string, prepare func(*host)) (h *host) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cast{t: t, flags: flags, cluster: script.New(t, apiserver.Nodes(), apiserver.Pods(), apiserver.EventObjects()), hosts: map[string]*host{}}
		c.addNodes([]string{"a"}, "")
		c.addPods("a", []string{"pod"}, map[string]string{"grace": "0"})
		h = c.hosts["a"]
		h.edit(asked)
		prepare(h)
		stop := c.start(t, c.cluster.Config(), &record.FakeRecorder{})
		h.startAgent(nil)
		time.Sleep(20 * time.Minute)
		h.endAgent()
		stop()
	})
	return h
}

// Wherever an agent is killed, before or after any of its writes, its node is drained, reboots once, although the grant
// stays there, and is cordoned afterwards only if it was before. The exception is a kill between the record that the
// command is run and the command: then the reboot has failed, as the record says. If the window closes during the drain,
// the node does not reboot, and still needs to.
func TestKilledAtEachWrite(t *testing.T) {
	for _, tt := range []struct {
		wasCordoned, closes bool
		wantFailed          int
	}{{false, false, 1}, {true, false, 1}, {false, true, 0}, {true, true, 0}} {
		flags, wantCommands := []string(nil), 1
		if tt.closes {
			flags, wantCommands = []string{"-window=Sat 00:00-00:01"}, 0
		}
		failures := 0
		play := func(at int, isAfter bool) (writes int) {
			t.Run(fmt.Sprintf("write %d, after %t, cordoned %t, closes %t", at, isAfter, tt.wasCordoned, tt.closes), func(t *testing.T) {
				h := reboots(t, flags, func(h *host) {
					h.killAt, h.isAfter = at, isAfter
					h.edit(func(n *corev1.Node) { n.Spec.Unschedulable = tt.wasCordoned })
					if tt.closes {
						h.cluster.Refuse(refuseEvictions)
					}
				})
				node, pods, want := h.node(), script.All[corev1.Pod](h.cluster), wantCommands
				if node.Record.Failed != nil {
					failures, want = failures+1, 0
				}
				if len(h.commands) != want || node.Record.Work != nil || node.IsNeeded() != tt.closes || node.Spec.Unschedulable != tt.wasCordoned || (len(pods) > 0) != tt.closes {
					t.Errorf("commands %v, %d Pods, cordoned %t, annotations %v", h.commands, len(pods), node.Spec.Unschedulable, node.Annotations)
				}
				writes = h.writes
			})
			return writes
		}
		for at := range play(0, false) {
			play(at+1, false)
			play(at+1, true)
		}
		if failures != tt.wantFailed {
			t.Errorf("the reboot has failed %d times, want %d", failures, tt.wantFailed)
		}
	}
}

// refuseEvictions is a PodDisruptionBudget that allows none.
func refuseEvictions(request string) error {
	if request == "create pods eviction" {
		return apierrors.NewTooManyRequests("budget", 0)
	}
	return nil
}

// Whenever somebody removes the record, the grant that is there is void. The node reboots once for its
// request, and stays cordoned if the record of the cordon was lost.
func TestRecordIsRemoved(t *testing.T) {
	for at := 1; at <= 9; at++ { // report, answer, begin, event, evict, event, reboot, finish, event
		t.Run(fmt.Sprint("after write ", at), func(t *testing.T) {
			h := reboots(t, nil, func(h *host) {
				h.meanwhile = func(write int) {
					if write == at {
						h.edit(func(n *corev1.Node) { delete(n.Annotations, request.Agent) })
					}
				}
			})
			isCordonLost := at >= 3 && at <= 7
			if node := h.node(); len(h.commands) != 1 || node.IsNeeded() || node.Record.Work != nil || node.Spec.Unschedulable != isCordonLost {
				t.Errorf("commands %v, cordoned %t, annotations %v", h.commands, node.Spec.Unschedulable, node.Annotations)
			}
		})
	}
}
