package main

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// cluster is three nodes, and the writes of controllers that are on their way.
type cluster struct {
	nodes [3]state
	// sent has, for each node, one bit for each state that a write would leave it in. Writes that the API
	// server would refuse, because the node has changed since the list that decided them, are left out.
	sent [3]uint16
}

// state is what the annotations of a node say: how far a grant has come, and whether a reboot is needed.
type state uint8

const (
	none     state = iota
	chosen         // and the agent has not answered
	answered       // and the agent has
	allowed
	working
	stages          // how many there are
	needed = stages // is added
)

func (s state) stage() state   { return s % stages }
func (s state) isNeeded() bool { return s >= stages }

// at returns the state with another stage.
func (s state) at(stage state) state { return s - s.stage() + stage }

// node returns a Node in this state. Its grant was made at noon.
func (s state) node(name string) request.Node {
	record := request.Record{BootID: "boot"}
	annotations := map[string]string{}
	if s.stage() != none {
		grant := request.Grant{ID: 1, BootID: "boot", Chosen: noon}
		if s.stage() >= allowed {
			grant.Until = noon.Add(request.GrantFor)
		}
		annotations[request.Granted] = *request.Encode(grant)
	}
	if s.stage() >= answered {
		record.ID = 1
	}
	if s.stage() == working {
		record.Work = &request.Work{Since: noon}
	}
	annotations[request.Agent] = *request.Encode(record)
	if s.isNeeded() {
		annotations[request.Needed] = ""
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: annotations}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return request.Read(n)
}

// after returns the state after a step.
func (s state) after(step Step) state {
	n := step.Node.DeepCopy()
	n.Annotations[request.Granted] = *request.Encode(step.Grant)
	after := request.Read(n)
	switch after.Stage() {
	case request.NoGrant:
		return s.at(none)
	case request.Chosen:
		if after.HasAnswered() {
			return s.at(answered)
		}
		return s.at(chosen)
	case request.MayReboot:
		return s.at(allowed)
	default:
		return s.at(working)
	}
}

func (c cluster) String() string {
	var b strings.Builder
	for i, s := range c.nodes {
		stage := []string{"", " chosen", " answered", " allowed", " working"}[s.stage()]
		fmt.Fprintf(&b, "%s:%s, needed: %t (%d writes on their way)  ", nodeName(i), stage, s.isNeeded(), bits.OnesCount16(c.sent[i]))
	}
	return b.String()
}

// with returns the cluster after a node has changed.
func (c cluster) with(i int, after state) cluster {
	c.nodes[i], c.sent[i] = after, 0
	return c
}

// next returns what the cluster can become by one step of anyone.
func (c cluster) next(most int) (all []cluster) {
	for i, s := range c.nodes {
		all = append(all, c.with(i, (s+needed)%(2*stages))) // someone requests a reboot, or withdraws the request
		switch s.stage() {
		case chosen:
			all = append(all, c.with(i, s.at(answered))) // the agent answers
		case allowed:
			all = append(all, c.with(i, s.at(working))) // the agent begins
		case working:
			all = append(all, c.with(i, none), c.with(i, s.at(none))) // the agent finishes, or gives up
		default:
		}
		if s.stage() != none && s.stage() != working {
			all = append(all, c.with(i, s.at(none))) // someone reboots the node, and a grant is nothing under another boot
		}
		for after := range 2 * stages {
			if c.sent[i]&(1<<after) != 0 {
				all = append(all, c.with(i, after)) // a write arrives
			}
		}
	}
	// A controller lists all nodes, and sends its writes. Its clock may say that all grants
	// are over, or that none is. Writes of a node may have been refused.
	for _, now := range []time.Time{noon, noon.Add(time.Hour)} {
		all = append(all, c.decided(now, most, nil))
		for i := range c.nodes {
			for _, action := range []Action{Allow, PassOver, TakeBack} {
				refusal := Refusal{Action: action, Until: now.Add(refusedFor), Times: 2}
				all = append(all, c.decided(now, most, map[types.UID]Refusal{types.UID(nodeName(i)): refusal}))
			}
		}
	}
	return all
}

func nodeName(i int) string { return string(rune('a' + i)) }

// decided returns the cluster after a controller has sent its writes at that time.
func (c cluster) decided(now time.Time, most int, refusals map[types.UID]Refusal) cluster {
	o := Observed{Now: now, Config: Config{MaxUnavailable: intstr.FromInt(most)}, Refusals: refusals}
	for i, s := range c.nodes {
		o.Nodes = append(o.Nodes, s.node(nodeName(i)))
	}
	for _, step := range Decide(o).Steps {
		i := int(step.Node.Name[0] - 'a')
		c.sent[i] |= 1 << c.nodes[i].after(step)
	}
	return c
}

// Any number of controllers list the nodes and write, and any of these writes can arrive
// late. In every order of these steps and of those of people and agents, no more nodes may
// reboot at a time than the budget allows.
func TestBudgetHoldsInEveryOrder(t *testing.T) {
	for _, most := range []int{1, 2} {
		t.Run(fmt.Sprint("budget ", most), func(t *testing.T) {
			before := map[cluster]cluster{{}: {}} // each cluster that was reached, and from which
			for queue := []cluster{{}}; len(queue) > 0; queue = queue[1:] {
				for _, c := range queue[0].next(most) {
					if _, isKnown := before[c]; isKnown {
						continue
					}
					before[c] = queue[0]
					queue = append(queue, c)
					granted := 0
					for _, s := range c.nodes {
						if s.stage() >= allowed {
							granted++
						}
					}
					if granted > most {
						for ; c != (cluster{}); c = before[c] {
							t.Log(c)
						}
						t.Fatalf("%d nodes may reboot, of at most %d; what led to it is above, the last step first", granted, most)
					}
				}
			}
			t.Logf("%d clusters", len(before))
		})
	}
}

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
