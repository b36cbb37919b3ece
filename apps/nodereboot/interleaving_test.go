package main

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// cluster is three nodes, and the writes of controllers that are on their way.
type cluster struct {
	nodes [3]annotations
	// sent has, for each node, one bit for each of the annotations that a write would leave
	// it with. Writes that the API server would refuse, because the node has changed since
	// the list that decided them, are left out.
	sent [3]uint16
}

// annotations has one bit for each of a node's annotations.
type annotations uint8

var written = []string{request.Needed, request.Next, request.Now, request.InProgress}

const (
	isNeeded annotations = 1 << iota
	isNext
	isNow
	isInProgress
)

func (c cluster) String() string {
	var b strings.Builder
	for i, a := range c.nodes {
		fmt.Fprintf(&b, "%c:", 'a'+i)
		for bit, name := range written {
			if a&(1<<bit) != 0 {
				b.WriteString(" " + strings.TrimPrefix(name, "controller.nicoleh.io/reboot-"))
			}
		}
		fmt.Fprintf(&b, " (%d writes on their way)  ", bits.OnesCount16(c.sent[i]))
	}
	return b.String()
}

// with returns the cluster after a node has changed.
func (c cluster) with(i int, after annotations) cluster {
	c.nodes[i], c.sent[i] = after, 0
	return c
}

// next returns what the cluster can become by one step of anyone.
func (c cluster) next(most int) (all []cluster) {
	for i, now := range c.nodes {
		all = append(all, c.with(i, now^isNeeded)) // someone requests a reboot, or withdraws the request
		if now&isNow != 0 {
			all = append(all,
				c.with(i, now&^(isNow|isNeeded)|isInProgress), // the agent begins
				c.with(i, now&^isNow|isNeeded),                // the agent gives the grant back
				c.with(i, now&^(isNow|isNeeded)),              // the agent withdraws what has led to it
			)
		}
		if now&isInProgress != 0 {
			all = append(all, c.with(i, now&^isInProgress)) // the agent finishes
		}
		for after := range annotations(16) {
			if c.sent[i]&(1<<after) != 0 {
				all = append(all, c.with(i, after)) // a write arrives
			}
		}
	}
	// A controller lists all nodes, and sends its write. Its clock may say that all grants
	// are over, or that none is. One of its writes may have been refused.
	for _, now := range []time.Time{noon, noon.Add(time.Hour)} {
		all = append(all, c.decided(now, most, nil)...)
		for i := range c.nodes {
			for _, step := range []Step{Choose, Grant, PassOver, TakeBack} {
				refusal := Refusal{Step: step, Until: now.Add(refusedFor), Times: 2}
				all = append(all, c.decided(now, most, map[types.UID]Refusal{types.UID(nodeName(i)): refusal})...)
			}
		}
	}
	return all
}

func nodeName(i int) string { return string(rune('a' + i)) }

// decided returns the cluster after a controller has sent its write at that time; nothing if
// it has none to send.
func (c cluster) decided(now time.Time, most int, refusals map[types.UID]Refusal) (all []cluster) {
	o := Observed{Now: now, Config: Config{MaxUnavailable: intstr.FromInt(most)}, Refusals: refusals}
	for i, a := range c.nodes {
		n := node(nodeName(i))
		for bit, name := range written {
			if a&(1<<bit) != 0 {
				with(name, "")(n)
			}
		}
		if a&isNow != 0 {
			with(request.Now, noon.Format(time.RFC3339))(n)
		}
		o.Nodes = append(o.Nodes, n)
	}
	if d := Decide(reporting(o)); d.Step != Rest {
		i := slices.Index(o.Nodes, d.Node)
		after := c.nodes[i]
		for bit, name := range written {
			if value, isWritten := d.Annotations[name]; isWritten && value == nil {
				after &^= 1 << bit
			} else if isWritten {
				after |= 1 << bit
			}
		}
		c.sent[i] |= 1 << after
		all = append(all, c)
	}
	return all
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
					for _, a := range c.nodes {
						if a&(isNow|isInProgress) != 0 {
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
