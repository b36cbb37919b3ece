package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// Observed is what a decision is based on.
type Observed struct {
	Config
	Now   time.Time
	Nodes []*corev1.Node // all nodes of the cluster
	// LastGrant is when this process last granted a reboot. The Nodes say when they were
	// last granted one, by whichever process.
	LastGrant time.Time
	// AvailableSince says since when each node has been available, as far as this process
	// knows.
	AvailableSince map[types.UID]time.Time
	// NeededSince says since when each node has needed a reboot, as far as this process knows.
	NeededSince map[types.UID]time.Time
	// LastReport says when each node's agent last reported, by the name of the node.
	LastReport map[string]time.Time
	// Hold is what else holds reboots back.
	Hold Hold
	// Refusals says which nodes cannot be written, as far as this process knows.
	Refusals map[types.UID]Refusal
}

// Refusal is that the API server does not let the controller write a node.
type Refusal struct {
	Step      Step      // the last one that was refused; empty if none was
	Note      string    // for people
	Until     time.Time // until when the node is passed over
	Times     int       // how often that was so since the last grant
	conflicts int       // how many there were since the last grant; a few are normal
}

// Decision is the next step, and which nodes have to wait.
type Decision struct {
	Nodes        int           // how many there are
	Budget       int           // how many of them may be unavailable
	Unavailable  []Unavailable // those that are, by name
	Step         Step
	Node         *corev1.Node       // the node that the step is about
	Annotations  map[string]*string // what the step writes to the node; nil removes one
	Waiting      []Waiting          // all other nodes that need a reboot, in the order of their turns
	RequeueAfter time.Duration      // when to decide again even if nothing changes; zero for never
}

// Step is what the controller does next.
type Step string

// A grant takes two steps, so that each decision counts all others that are on their way.
// Each step is one write.
const (
	Rest     Step = ""         // do nothing
	Choose   Step = "Choose"   // from now on the node counts as unavailable
	Grant    Step = "Grant"    // the chosen node may reboot
	PassOver Step = "PassOver" // the chosen node is no longer chosen
	TakeBack Step = "TakeBack" // the node may no longer reboot, because its agent has not begun in time
)

// Unavailable is a node that uses up a part of the budget.
type Unavailable struct {
	Node   *corev1.Node
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

// Unavailabilities lists all of them.
var Unavailabilities = []string{Chosen, Granted, Rebooting, NotReady, Cordoned, Settling}

// Waiting is a node that needs a reboot and may not have it yet.
type Waiting struct {
	Node   *corev1.Node
	Reason string
	Note   string // for people
	// IsEarly is whether that will probably be over soon.
	IsEarly bool
}

// The reasons why a node waits.
const (
	AlertFires     = "AlertFires"     // an alert is firing that holds reboots back
	AlertsUnknown  = "AlertsUnknown"  // Prometheus does not say whether one is
	AgentSilent    = "AgentSilent"    // no agent reports that it runs there and can reboot the node
	BadTime        = "BadTime"        // the time for which the reboot was requested cannot be parsed
	Declined       = "Declined"       // someone has said no; only the metric for a single node has it
	BudgetIsZero   = "BudgetIsZero"   // nothing is ever granted
	BudgetIsUsedUp = "BudgetIsUsedUp" // as many nodes are unavailable as may be
	InLine         = "InLine"         // reboots are granted one at a time, and it is another node's turn
	NotBefore      = "NotBefore"      // the reboot was requested for a later time
	PodsUnknown    = "PodsUnknown"    // the API server does not say whether such a Pod runs
	PodRuns        = "PodRuns"        // a Pod that must not be disturbed runs on the node
	RebootFailed   = "RebootFailed"   // its last reboot had no effect, and nobody has asked again
	Refused        = "Refused"        // the API server does not let the controller write the node
	StillRebooting = "StillRebooting" // an earlier reboot of the same node is not finished
	TooSoon        = "TooSoon"        // the last grant was only a short time ago
	WindowClosed   = "WindowClosed"   // it is not the time for reboots
)

// Reasons lists all of them.
var Reasons = []string{
	AgentSilent, AlertFires, AlertsUnknown, BadTime, BudgetIsZero, BudgetIsUsedUp, InLine, NotBefore, PodRuns, PodsUnknown, RebootFailed,
	Refused, StillRebooting, TooSoon, WindowClosed,
}

// Decide brings at most one node a step closer to its reboot: the one whose turn it is. It
// chooses the node if fewer others are unavailable than may be, in the whole cluster, in
// the control plane and in each pool that the node belongs to. It grants the reboot if
// that is still so when everyone counts the node as unavailable. The node whose last grant
// is the longest ago has the first turn; among equals, the first by name.
//
// A grant that is over and was not used is taken back: an agent that is down would keep its
// part of the budget for ever. The agent gives it back, too, but only once it runs.
//
// A node that cannot be written counts as it did, and does not hold up the others: for a while, no
// step is tried but that it is no longer chosen. From the second time on it has the last turn, and
// that is the reason why it waits until it is granted its reboot.
func Decide(o Observed) Decision {
	budgets, last := budgetsOf(o), o.lastGrant()
	d := Decision{Nodes: len(o.Nodes), Budget: budgets[0].max, Unavailable: budgets[0].unavailable}
	var turns, chosen []*corev1.Node
	for _, node := range o.Nodes {
		refusal := o.Refusals[node.UID]
		left := max(0, refusal.Until.Sub(o.Now))
		switch used := usedBy(node); {
		case isAsking(node):
			turns = append(turns, node)
		case refusal.Times > 0 && (used == Chosen || used == Granted):
			d.Waiting = append(d.Waiting, Waiting{Node: node, Reason: Refused, Note: refusal.Note})
		}
		d.RequeueAfter = pace.Sooner(d.RequeueAfter, left)
		if request.IsNext(node) && (refusal.Step != PassOver || left == 0) {
			chosen = append(chosen, node)
		}
		if hasFailed(node) {
			d.Waiting = append(d.Waiting, Waiting{Node: node, Reason: RebootFailed, Note: "the last reboot had no effect (see the agent's events); to retry, annotate the node with " + request.Needed + "="})
		}
	}
	slices.SortFunc(turns, o.byTurn)
	slices.SortFunc(chosen, o.byTurn)

	for i, node := range chosen {
		// At most one node stays chosen. That also keeps grants apart: a grant that is still
		// on its way fails when its node is passed over.
		if reason, _, _ := o.obstacle(node, budgets, last); reason != "" || !isAsking(node) || i > 0 {
			d.setStep(o, PassOver, node)
		} else {
			d.setStep(o, Grant, node)
		}
	}
	d.takeBack(o)
	for _, node := range turns {
		reason, note, requeueAfter := o.obstacle(node, budgets, last)
		isTurn := reason == "" && d.Step == Rest
		if isTurn {
			d.setStep(o, Choose, node)
		}
		switch refusal := o.Refusals[node.UID]; {
		case refusal.Times > 1 && reason != NotBefore:
			reason, note = Refused, refusal.Note
		case isTurn, node == d.Node && d.Step == Grant:
			continue
		case reason == "":
			reason, note = InLine, "it is the turn of "+d.Node.Name
		}
		isEarly := reason == AgentSilent && requeueAfter > 0
		d.Waiting = append(d.Waiting, Waiting{node, reason, note, isEarly})
		d.RequeueAfter = pace.Sooner(d.RequeueAfter, requeueAfter)
	}
	d.RequeueAfter = pace.Sooner(d.RequeueAfter, o.nextSettled())
	return d
}

// isAsking reports whether a node needs a reboot and is not being deleted.
func isAsking(node *corev1.Node) bool { return request.IsNeeded(node) && node.DeletionTimestamp == nil }

// hasFailed reports whether a node's reboot had no effect and nobody has asked for another.
func hasFailed(node *corev1.Node) bool {
	_, isFailed := node.Annotations[request.Failed]
	return isFailed && !isAsking(node) && !request.IsGranted(node) && node.DeletionTimestamp == nil
}

// takeBack makes it the next step, unless there is one, to take back a grant that is over.
func (d *Decision) takeBack(o Observed) {
	for _, node := range o.Nodes {
		overAt := request.OverAt(node)
		if overAt.IsZero() {
			continue
		}
		left := overAt.Sub(o.Now)
		if left > 0 {
			d.RequeueAfter = pace.Sooner(d.RequeueAfter, left)
		} else if d.Step == Rest && !o.Now.Before(o.Refusals[node.UID].Until) {
			d.setStep(o, TakeBack, node)
		}
	}
}

// setStep makes step the next one.
func (d *Decision) setStep(o Observed, step Step, node *corev1.Node) {
	now := o.Now.UTC().Format(time.RFC3339)
	d.Step, d.Node = step, node
	switch step {
	case Choose:
		d.Annotations = map[string]*string{request.Next: &now}
	case Grant:
		until := openUntil(o.Windows, o.Zone, o.Now, request.GrantFor).UTC().Format(time.RFC3339)
		d.Annotations = map[string]*string{request.Next: nil, request.Needed: nil, request.Now: &until, request.Granted: &now}
	case TakeBack:
		d.Annotations = map[string]*string{request.Now: nil}
		if _, isAsked := node.Annotations[request.Needed]; !isAsked {
			d.Annotations[request.Needed] = new(string) // a time that it had was in the past
		}
	default:
		d.Annotations = map[string]*string{request.Next: nil}
	}
}

// byTurn compares nodes by their turns. A requested time that has passed is no earlier
// than another.
func (o Observed) byTurn(a, b *corev1.Node) int {
	due := func(node *corev1.Node) time.Time {
		at, err := request.NotBefore(node)
		if err != nil || !at.After(o.Now) {
			return o.Now
		}
		return at
	}
	refused := func(node *corev1.Node) int { return max(1, o.Refusals[node.UID].Times) }
	return cmp.Or(
		due(a).Compare(due(b)),
		cmp.Compare(refused(a), refused(b)),
		o.lastGranted(a).Compare(o.lastGranted(b)),
		cmp.Compare(a.Name, b.Name),
	)
}

// obstacle returns why a node that asks for a reboot has to wait, regardless of how many
// others ask; empty if it does not. The obstacle may be gone after requeueAfter, unless
// that is zero.
func (o Observed) obstacle(node *corev1.Node, budgets []budget, lastGrant time.Time) (reason, note string, requeueAfter time.Duration) {
	notBefore, err := request.NotBefore(node)
	switch wait := notBefore.Sub(o.Now); {
	case request.IsGranted(node):
		return StillRebooting, "an earlier reboot of this node is not finished", 0
	case err != nil:
		return BadTime, err.Error(), 0
	case wait > 0:
		return NotBefore, "the reboot was requested for " + notBefore.UTC().Format(time.RFC3339) + " or later", wait
	}
	if refusal := o.Refusals[node.UID]; o.Now.Before(refusal.Until) {
		return Refused, refusal.Note, 0
	}
	if reported, isKnown := o.LastReport[node.Name]; !isKnown {
		return AgentSilent, "no agent has reported that it runs on this node and can reboot it", o.untilReport(node)
	} else if ago := o.Now.Sub(reported); ago > request.ReportedWithin {
		return AgentSilent, "its agent has not reported since " + reported.UTC().Format(time.RFC3339), o.untilReport(node)
	}
	for _, b := range budgets {
		if b.includes(node) && b.max == 0 {
			return BudgetIsZero, "no node" + b.name + " may be unavailable", 0
		}
	}
	if wait := untilOpen(o.Windows, o.Zone, o.Now); wait > 0 {
		return WindowClosed, "the next window for reboots opens at " + o.Now.Add(wait).UTC().Format(time.RFC3339), wait
	}
	if wait := o.Hold.Until.Sub(o.Now); wait > 0 {
		if o.Hold.Reason != "" {
			return o.Hold.Reason, o.Hold.Note, wait
		}
		if pod, runs := o.Hold.Pods[node.Name]; runs {
			return PodRuns, "the Pod " + pod + " runs on the node and must not be disturbed", wait
		}
	}
	if wait := lastGrant.Add(o.MinInterval).Sub(o.Now); wait > 0 {
		return TooSoon, fmt.Sprintf("the last grant was at %s, and the next one follows after %s at the earliest", lastGrant.UTC().Format(time.RFC3339), o.MinInterval), wait
	}
	for _, b := range budgets {
		others := len(b.unavailable)
		if o.unavailability(node) != "" {
			others-- // rebooting a node that is unavailable anyway costs nothing
		}
		if b.includes(node) && others >= b.max {
			return BudgetIsUsedUp, fmt.Sprintf("of %d nodes%s at most %d may be unavailable, and %s: %s", b.nodes, b.name, b.max, othersAre(others), summarize(b.unavailable, node)), 0
		}
	}
	return "", "", 0
}

// untilReport returns how much longer the agent of a node that asks for a reboot has for its
// first report: it reports only while one is asked for.
func (o Observed) untilReport(node *corev1.Node) time.Duration {
	since, isKnown := o.NeededSince[node.UID]
	if !isKnown {
		return 0
	}
	return max(0, since.Add(request.ReportEvery).Sub(o.Now))
}

// othersAre says how many other nodes are unavailable.
func othersAre(n int) string {
	if n == 1 {
		return "1 other is"
	}
	return fmt.Sprintf("%d others are", n)
}

// lastGranted returns when a node was last granted a reboot; zero if never. A time in the
// future is nobody's: a clock was wrong.
func (o Observed) lastGranted(node *corev1.Node) time.Time {
	if at := request.LastGranted(node); !at.After(o.Now.Add(request.ClockSkew)) {
		return at
	}
	return time.Time{}
}

// lastGrant returns when a reboot was last granted to an existing node or by this process;
// zero if never.
func (o Observed) lastGrant() time.Time {
	last := o.LastGrant
	for _, node := range o.Nodes {
		if at := o.lastGranted(node); at.After(last) {
			last = at
		}
	}
	return last
}
