package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// Observed is what a decision is based on.
type Observed struct {
	Config
	Now      time.Time
	Nodes    []request.Node        // all nodes of the cluster
	Hold     Hold                  // what else holds reboots back
	Refusals map[types.UID]Refusal // of nodes that could not be written

	// What follows from the above for all nodes: when a reboot was last granted to an existing node, zero if
	// never; how long it takes until a window opens, zero if one is open; and when it closes, zero if it
	// does not.
	lastGrant time.Time
	untilOpen time.Duration
	closes    time.Time
}

// Refusal says that the API server does not let the controller write a node.
type Refusal struct {
	Action Action    // which write was refused
	Note   string    // for people
	Until  time.Time // the node is passed over until then
	Times  int       // how often, since the node was last granted a reboot, or has needed none
}

// lasts reports whether the refusal is worth reporting: from the second time on, even while the node is tried
// again.
func (r Refusal) lasts() bool { return r.Times > 1 }

// Decision is what to do next, and which nodes have to wait.
type Decision struct {
	Nodes        int           // how many there are
	Budget       int           // how many of them may be unavailable
	Unavailable  []Unavailable // the unavailable nodes, by name
	Steps        []Step        // at most one for each node
	Waiting      []Waiting     // the other nodes that need a reboot, in the order of their turns, and the nodes that cannot be written
	RequeueAfter time.Duration // when to decide again even if nothing changes; zero for never
}

// Step is one write to a node.
type Step struct {
	Action Action
	Node   request.Node
	Grant  request.Grant // what the annotation becomes
}

// Action is what a step does.
type Action string

// A reboot takes two steps of the controller, and the agent's answer to the first, so that each decision
// counts all nodes that are on their way.
const (
	Choose   Action = "Choose"   // from now on the node counts as unavailable
	Allow    Action = "Allow"    // the chosen node may reboot
	PassOver Action = "PassOver" // the chosen node is no longer chosen
	TakeBack Action = "TakeBack" // the node may no longer reboot
)

// Unavailable is a node that uses up a part of the budget.
type Unavailable struct {
	Node   request.Node
	Reason string
}

// The reasons why a node is unavailable.
const (
	Chosen    = "Chosen"    // the next reboot is for this node
	Granted   = "Granted"   // the node may reboot and has not begun to
	Rebooting = "Rebooting" // the node's agent is at work
	NotReady  = "NotReady"  // the node's condition Ready is not True
	Cordoned  = "Cordoned"  // someone has cordoned the node
	Settling  = "Settling"  // the node has become available only recently
)

// Waiting is a node that needs a reboot and may not have it yet.
type Waiting struct {
	Node   request.Node
	Reason string
	Note   string // for people
}

// The reasons why a node waits.
const (
	AgentSilent    = "AgentSilent"    // its agent has not written its record, or not answered when the node was chosen
	AgentUnable    = "AgentUnable"    // its agent cannot reboot it
	AlertFires     = "AlertFires"     // an alert is firing that holds reboots back
	AlertsUnknown  = "AlertsUnknown"  // Prometheus does not say whether one is
	AttemptFailed  = "AttemptFailed"  // the last attempt failed or did not help, and the next one comes later
	BadTime        = "BadTime"        // the time for which the reboot was requested cannot be parsed
	BudgetIsZero   = "BudgetIsZero"   // nothing is ever granted
	BudgetIsUsedUp = "BudgetIsUsedUp" // as many nodes are unavailable as may be
	Declined       = "Declined"       // someone has said no; only the metric for a single node has it
	DrainBlocked   = "DrainBlocked"   // a Pod on the node must not be evicted
	NotBefore      = "NotBefore"      // the reboot was requested for a later time
	PodsUnknown    = "PodsUnknown"    // the API server does not say whether such a Pod runs
	PodRuns        = "PodRuns"        // a Pod that must not be disturbed runs on the node
	RebootFailed   = "RebootFailed"   // its last reboot had no effect, and nobody has asked again
	Refused        = "Refused"        // the API server does not let the controller write the node
	TooSoon        = "TooSoon"        // the last grant was only a short time ago
	WindowClosed   = "WindowClosed"   // it is not the time for reboots
)

const (
	// answerWithin is how long the agent of a chosen node has to answer. After that another node is
	// chosen, and this one waits, twice as long each time, up to maxPause.
	answerWithin = time.Minute
	// maxPause is the longest time that a node waits, even after a failed drain.
	maxPause = 24 * time.Hour
)

// Decide brings nodes a step closer to their reboots. It chooses nodes in turn while there is room for
// them in the budgets of the whole cluster, of the control plane and of each pool that they belong to.
// It allows a chosen node to reboot when its agent has answered, if there is still room with all chosen
// nodes counted as unavailable. The node whose last grant is the longest ago has the first turn; among
// equals, the first by name.
//
// A grant that is over and was not used, or that nobody wants any more, is taken back: otherwise an agent
// that is down would keep its part of the budget forever.
func Decide(o Observed) Decision {
	for _, node := range o.Nodes {
		if at := o.lastGranted(node); at.After(o.lastGrant) {
			o.lastGrant = at
		}
	}
	o.untilOpen, o.closes = untilOpen(o.Windows, o.Zone, o.Now), closesAt(o.Windows, o.Zone, o.Now)
	budgets := budgetsOf(o)
	d := Decision{Nodes: len(o.Nodes), Budget: budgets[0].max, Unavailable: slices.Clone(budgets[0].unavailable)}
	var turns, chosen []request.Node
	for _, node := range o.Nodes {
		stage, refusal := node.Stage(), o.Refusals[node.UID]
		if stage == request.Chosen || stage == request.MayReboot { // it waits as before while it is tried again
			switch {
			case refusal.lasts():
				d.Waiting = append(d.Waiting, Waiting{node, Refused, refusal.Note})
			case node.Grant.Unanswered > 0:
				d.Waiting = append(d.Waiting, Waiting{node, AgentSilent, "its agent has not answered, or not begun, before"})
			}
		}
		switch stage {
		case request.Chosen:
			chosen = append(chosen, node)
		case request.MayReboot:
			d.takeBack(o, node)
		case request.NoGrant:
			if node.IsNeeded() || cannotReboot(node) {
				turns = append(turns, node)
			}
		case request.AtWork:
		}
	}
	slices.SortFunc(turns, o.byTurn)
	slices.SortFunc(chosen, o.byTurn)
	d.decideChosen(o, budgets, chosen)
	isTurn := slices.ContainsFunc(chosen, func(node request.Node) bool { return !o.Refusals[node.UID].Until.After(o.Now) })
	d.decideTurns(o, budgets, turns, isTurn)
	d.RequeueAfter = pace.Sooner(d.RequeueAfter, o.nextSettled())
	return d
}

// decideChosen passes over nodes that must not reboot now, the last ones by turn if there are too many. It
// allows the others to reboot only if it passes over none: before the write that passes over a node arrives,
// another process may have allowed the node to reboot.
func (d *Decision) decideChosen(o Observed, budgets []budget, chosen []request.Node) {
	isRoom := true
	var rest []request.Node // the last one first
	for _, node := range slices.Backward(chosen) {
		reason, _, _ := o.obstacle(node, budgets)
		if reason == "" {
			rest = append(rest, node)
			continue
		}
		grant := *node.Grant
		if grant.IsOver = true; reason == AgentSilent {
			grant.Unanswered++
		}
		if d.step(o, PassOver, node, grant) {
			o.update(budgets, node, grant)
			isRoom = false
		}
	}
	for _, node := range slices.Backward(rest) {
		grant := *node.Grant
		switch {
		case !isRoom:
		case !node.HasAnswered():
			d.RequeueAfter = pace.Sooner(d.RequeueAfter, grant.Chosen.Add(answerWithin).Sub(o.Now))
		default:
			now := o.Now.UTC().Truncate(time.Second)
			grant.LastGranted = now
			grant.Until, grant.Closes = now.Add(request.GrantFor), o.closes
			if !grant.Closes.IsZero() && grant.Closes.Before(grant.Until) {
				grant.Until = grant.Closes
			}
			d.step(o, Allow, node, grant)
			isRoom = o.MinInterval == 0 // which the next one waits for
		}
	}
}

// decideTurns chooses nodes, and says why the others wait. With an interval, it is the turn of one node at a
// time.
func (d *Decision) decideTurns(o Observed, budgets []budget, turns []request.Node, isTurn bool) {
	for _, node := range turns {
		reason, note, requeueAfter := o.obstacle(node, budgets)
		if reason == "" && o.MinInterval > 0 && isTurn {
			reason, note = TooSoon, "it is the turn of another node"
		}
		if reason == "" {
			record, id := node.Record, int64(0)
			next := request.Grant{BootID: record.BootID, Chosen: o.Now.UTC().Truncate(time.Second)}
			if last := node.Grant; last != nil {
				id, next.LastGranted = last.ID, last.LastGranted
				if !node.HasAnswered() || node.IsUnused() {
					next.Unanswered = last.Unanswered
				}
			}
			next.ID = max(id, record.ID) + 1
			d.step(o, Choose, node, next)
			o.update(budgets, node, next)
			isTurn = true
		}
		if refusal := o.Refusals[node.UID]; refusal.lasts() {
			reason, note = Refused, refusal.Note
		}
		if reason != "" {
			d.Waiting = append(d.Waiting, Waiting{node, reason, note})
			d.RequeueAfter = pace.Sooner(d.RequeueAfter, requeueAfter)
		}
	}
}

// cannotReboot reports whether people have to look into a node: its agent is unable, or its last reboot had no
// effect.
func cannotReboot(node request.Node) bool {
	record := node.Record
	return record != nil && (record.Unable != "" || record.Failed != nil) && !node.IsDeclined() && node.DeletionTimestamp == nil
}

// takeBack takes back a grant that is over, that the agent cannot use, or that nobody wants any more.
func (d *Decision) takeBack(o Observed, node request.Node) {
	grant := *node.Grant
	left := o.until(grant.Until.Add(request.ClockSkew), request.GrantFor+request.ClockSkew)
	reason, _, _ := o.ownObstacle(node)
	switch {
	case left == 0:
		grant.Unanswered++
	case reason == AgentUnable, reason == DrainBlocked, !node.IsDue(o.Now.Add(request.ClockSkew)):
	default:
		d.RequeueAfter = pace.Sooner(d.RequeueAfter, left)
		return
	}
	grant.IsOver = true
	d.step(o, TakeBack, node, grant)
}

// step adds a step, unless it was refused a short time ago.
func (d *Decision) step(o Observed, action Action, node request.Node, grant request.Grant) bool {
	refusal := o.Refusals[node.UID]
	if left := refusal.Until.Sub(o.Now); left > 0 && refusal.Action == action {
		d.RequeueAfter = pace.Sooner(d.RequeueAfter, left)
		return false
	}
	d.Steps = append(d.Steps, Step{action, node, grant})
	return true
}

// byTurn compares nodes by their turns. Nodes whose agent did not answer or begin come last.
func (o Observed) byTurn(a, b request.Node) int {
	unanswered := func(node request.Node) uint {
		if node.Grant != nil && (!node.HasAnswered() || node.IsUnused()) {
			return node.Grant.Unanswered
		}
		return 0
	}
	return cmp.Or(cmp.Compare(unanswered(a), unanswered(b)), o.lastGranted(a).Compare(o.lastGranted(b)), cmp.Compare(a.Name, b.Name))
}

// obstacle returns why a node that needs a reboot has to wait; empty if it does not. The obstacle may be gone
// after requeueAfter, unless that is zero.
func (o Observed) obstacle(node request.Node, budgets []budget) (reason, note string, requeueAfter time.Duration) {
	if reason, note, requeueAfter = o.ownObstacle(node); reason != "" {
		return reason, note, requeueAfter
	}
	for _, b := range budgets {
		if b.includes(node) && b.max == 0 {
			return BudgetIsZero, "no node" + b.name + " may be unavailable", 0
		}
	}
	if o.untilOpen > 0 {
		return WindowClosed, "the next window for reboots opens at " + o.Now.Add(o.untilOpen).UTC().Format(time.RFC3339), o.untilOpen
	}
	if wait := o.Hold.Until.Sub(o.Now); wait > 0 {
		if o.Hold.Reason != "" {
			return o.Hold.Reason, o.Hold.Note, wait
		}
		if pod, runs := o.Hold.Pods[node.Name]; runs {
			return PodRuns, "the Pod " + pod + " runs on the node and must not be disturbed", wait
		}
	}
	if wait := o.lastGrant.Add(o.MinInterval).Sub(o.Now); wait > 0 && o.MinInterval > 0 {
		return TooSoon, fmt.Sprintf("the last grant was at %s, and the next one follows after %s at the earliest", o.lastGrant.UTC().Format(time.RFC3339), o.MinInterval), wait
	}
	for _, b := range budgets {
		if others := b.others(node); b.includes(node) && others >= b.max {
			return BudgetIsUsedUp, fmt.Sprintf("of %d nodes%s at most %d may be unavailable, and %s", b.nodes, b.name, b.max, b.summarize(node)), 0
		}
	}
	return "", "", 0
}

// ownObstacle returns why a node has to wait, regardless of other nodes.
func (o Observed) ownObstacle(node request.Node) (reason, note string, requeueAfter time.Duration) {
	record := node.Record
	notBefore, err := node.NotBefore()
	refusal := o.Refusals[node.UID]
	switch {
	case record != nil && record.Unable != "":
		return AgentUnable, "the agent cannot reboot the node: " + record.Unable, 0
	case record != nil && record.Failed != nil && !node.IsNeeded():
		return RebootFailed, fmt.Sprintf("%s; to try again, annotate the node with %s=", record.Failed.Why, request.Needed), 0
	case !node.IsNeeded(): // a chosen node
		return Declined, "nobody requests a reboot any more", 0
	case err != nil:
		return BadTime, err.Error(), 0
	case notBefore.After(o.Now):
		return NotBefore, "the reboot was requested for " + notBefore.UTC().Format(time.RFC3339) + " or later", notBefore.Sub(o.Now)
	case refusal.Until.After(o.Now):
		return Refused, refusal.Note, refusal.Until.Sub(o.Now)
	case record == nil || record.BootID == "":
		return AgentSilent, "no agent has written its record on this node", 0
	case !node.HasAnswered() && (o.untilSilent(node) > 0) == node.Grant.IsOver:
		return AgentSilent, "its agent has not answered since " + node.Grant.Chosen.UTC().Format(time.RFC3339), o.untilSilent(node)
	case node.IsUnused() && node.Grant.Unanswered > 0 && o.untilSilent(node) > 0:
		return AgentSilent, "its agent has not begun the reboot that was granted at " + node.Grant.LastGranted.UTC().Format(time.RFC3339), o.untilSilent(node)
	case node.Grant != nil && node.Grant.ID == record.ID && !record.IsDone && record.Blocked != "":
		return DrainBlocked, record.Blocked, 0
	case o.until(record.NotBefore, maxPause) > 0:
		return AttemptFailed, fmt.Sprintf("%s; the next attempt is not before %s", record.Why, record.NotBefore.UTC().Format(time.RFC3339)), o.until(record.NotBefore, maxPause)
	}
	return "", "", 0
}

// untilSilent returns how much longer the agent has to answer. After that, it returns how much longer the node waits
// because the agent did not answer or begin.
func (o Observed) untilSilent(node request.Node) time.Duration {
	grant, wait := node.Grant, answerWithin
	from := grant.Chosen
	if grant.IsOver {
		wait = min(answerWithin<<min(grant.Unanswered, 16), maxPause)
	}
	if node.IsUnused() {
		from = grant.Until
	}
	return o.until(from.Add(wait), wait)
}

// until returns the time left until at. It is zero if at has passed, or is further away than most: then a clock was
// wrong.
func (o Observed) until(at time.Time, most time.Duration) time.Duration {
	if left := at.Sub(o.Now); left > 0 && left <= most+request.ClockSkew {
		return left
	}
	return 0
}

// lastGranted returns when a node was last granted a reboot; zero if never. A time in the
// future does not count: a clock was wrong.
func (o Observed) lastGranted(node request.Node) time.Time {
	if grant := node.Grant; grant != nil && !grant.LastGranted.After(o.Now.Add(request.ClockSkew)) {
		return grant.LastGranted
	}
	return time.Time{}
}
