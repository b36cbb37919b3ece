package nodereboot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Config is what an operator can choose.
type Config struct {
	// MaxUnavailable is how many nodes may be unavailable, or which percentage of
	// all. Zero grants nothing.
	MaxUnavailable intstr.IntOrString
	// Pools have budgets of their own, each in addition to all others that a node
	// belongs to.
	Pools []Pool
	// MinInterval is how long it takes from one grant to the next, at least.
	MinInterval time.Duration
	// ControlPlaneSettle is for how long a node of the control plane still counts as
	// unavailable after it has become available.
	ControlPlaneSettle time.Duration
	// AgentNamespace is where the agents' Leases are.
	AgentNamespace string
	// Windows are when nodes may be granted their reboots, by the clocks of Zone (UTC if nil); always
	// if there are none.
	Windows []Window
	Zone    *time.Location
	// PrometheusURL is where to ask for alerts. While one fires whose name matches the
	// regular expression Alerts, nothing is granted.
	PrometheusURL, Alerts string
	// BlockingPods are label selectors. A node on which such a Pod runs is granted nothing.
	BlockingPods []string
}

// Pool is some of the nodes.
type Pool struct {
	Selector labels.Selector
	// MaxUnavailable is how many of them may be unavailable, or which percentage.
	MaxUnavailable intstr.IntOrString
}

// Observed is what there is to know when it has to be decided who may reboot.
type Observed struct {
	Config
	Now   time.Time
	Nodes []*corev1.Node // all of the cluster
	// LastGrant is when this process last granted a reboot; the Nodes have the time of
	// their own last grant, whoever it was by.
	LastGrant time.Time
	// Available has since when each node has been available, as far as this process
	// has seen it.
	Available map[types.UID]time.Time
	// Heard has when each node's agent was heard of last, by the node's name.
	Heard map[string]time.Time
	// Hold is what else is against reboots.
	Hold Hold
}

// Decision is what to write next, and who has to wait.
type Decision struct {
	Nodes       int           // how many there are
	Budget      int           // how many of them may be unavailable
	Unavailable []Unavailable // those that are, by name
	Step        Step
	Node        *corev1.Node       // that the step is about
	Annotations map[string]*string // to write there; nil removes one
	Waiting     []Waiting          // all others that need a reboot, in the order of their turns
	Again       time.Duration      // when to decide again although nothing happens; 0 is never
}

// Step is what the controller does next.
type Step string

// A grant takes two steps, so that whoever decides on one sees all others that are
// on the way. Each step is one write.
const (
	Rest     Step = ""         // nothing
	Choose   Step = "Choose"   // from now on the node counts as unavailable
	Grant    Step = "Grant"    // the node that was chosen may reboot
	PassOver Step = "PassOver" // the node that was chosen is not, after all
)

// Unavailable is a node that uses up a part of the budget.
type Unavailable struct {
	Node   *corev1.Node
	Reason string
}

// Why a node is unavailable.
const (
	Chosen    = "Chosen"    // it is its turn
	Granted   = "Granted"   // it may reboot and has not begun
	Rebooting = "Rebooting" // its agent is at it
	NotReady  = "NotReady"  // its condition Ready is not True
	Cordoned  = "Cordoned"  // somebody has cordoned it
	Settling  = "Settling"  // it is of the control plane, and has not been back for long
)

// Unavailabilities are all of them.
var Unavailabilities = []string{Chosen, Granted, Rebooting, NotReady, Cordoned, Settling}

// Waiting is a node that needs a reboot and must not have it yet.
type Waiting struct {
	Node   *corev1.Node
	Reason string
	Note   string // for people
}

// Why a node waits.
const (
	AlertFires     = "AlertFires"     // an alert fires that is to hold reboots back
	AlertsUnknown  = "AlertsUnknown"  // Prometheus does not say whether one does
	AgentSilent    = "AgentSilent"    // no agent says that it runs there, and could reboot it
	BadTime        = "BadTime"        // nobody knows for when it was asked
	BudgetIsZero   = "BudgetIsZero"   // nothing is granted at all
	BudgetIsUsedUp = "BudgetIsUsedUp" // as many nodes as may be are unavailable
	InLine         = "InLine"         // one is granted at a time, and it is another's turn
	NotBefore      = "NotBefore"      // it was asked for a later time
	PodRuns        = "PodRuns"        // a Pod that must not be disturbed is on the node
	StillRebooting = "StillRebooting" // an earlier request of the same node is not done with
	TooSoon        = "TooSoon"        // the last grant was a short time ago
	WindowClosed   = "WindowClosed"   // it is not the time for reboots
)

// Reasons are all of them.
var Reasons = []string{AgentSilent, AlertFires, AlertsUnknown, BadTime, BudgetIsZero, BudgetIsUsedUp, InLine, NotBefore, PodRuns, StillRebooting, TooSoon, WindowClosed}

// mostNamed is how many nodes are named in a note.
const mostNamed = 5

// controlPlane are the labels of nodes of which one may be unavailable at a time,
// whatever the budget: if the members of etcd or the API servers are few, two of them
// are too many.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd", "node-role.kubernetes.io/master"}

func isControlPlane(node *corev1.Node) bool {
	return slices.ContainsFunc(controlPlane, func(label string) bool {
		_, ok := node.Labels[label]
		return ok
	})
}

// Decide brings at most one node a step closer to its reboot: the one whose turn it
// is. It is chosen if fewer others are unavailable than may be, in all the cluster, in
// the control plane and in each pool that it belongs to; and it is granted its reboot
// if that is still so when everybody counts it as unavailable. Turns go by the time of
// the last grant, so that the node that had one last goes last, and then by name.
func Decide(o Observed) Decision {
	budgets, last := budgetsOf(o), o.lastGrant()
	d := Decision{Nodes: len(o.Nodes), Budget: budgets[0].most, Unavailable: budgets[0].unavailable}
	var turns, chosen []*corev1.Node
	for _, node := range o.Nodes {
		if request.IsNeeded(node) && node.DeletionTimestamp == nil {
			turns = append(turns, node)
		}
		if request.IsNext(node) {
			chosen = append(chosen, node)
		}
	}
	slices.SortFunc(turns, o.byTurn)
	slices.SortFunc(chosen, o.byTurn)

	for i, node := range chosen {
		isAsking := request.IsNeeded(node) && node.DeletionTimestamp == nil
		// That one is chosen at a time keeps grants apart, too: a grant that is still on
		// its way fails when its node is passed over.
		if reason, _, _ := o.obstacle(node, budgets, last); reason != "" || !isAsking || i > 0 {
			d.take(PassOver, node, o.Now)
		} else {
			d.take(Grant, node, o.Now)
		}
	}
	for _, node := range turns {
		reason, note, again := o.obstacle(node, budgets, last)
		switch {
		case node == d.Node && d.Step == Grant:
			continue
		case reason == "" && d.Step == Rest:
			d.take(Choose, node, o.Now)
			continue
		case reason == "":
			reason, note = InLine, "it is the turn of "+d.Node.Name
		}
		d.Waiting = append(d.Waiting, Waiting{node, reason, note})
		if again > 0 && (d.Again == 0 || again < d.Again) {
			d.Again = again
		}
	}
	d.Again = soonest(d.Again, o.settled())
	return d
}

// take has the step be the next one.
func (d *Decision) take(step Step, node *corev1.Node, at time.Time) {
	now := at.UTC().Format(time.RFC3339)
	d.Step, d.Node = step, node
	switch step {
	case Choose:
		d.Annotations = map[string]*string{request.Next: &now}
	case Grant:
		d.Annotations = map[string]*string{request.Next: nil, request.Needed: nil, request.Now: &now, request.Granted: &now}
	default:
		d.Annotations = map[string]*string{request.Next: nil}
	}
}

// byTurn orders nodes by whose turn is first. Of times that have passed none is earlier
// than another.
func (o Observed) byTurn(a, b *corev1.Node) int {
	due := func(node *corev1.Node) time.Time {
		at, err := request.NotBefore(node)
		if err != nil || !at.After(o.Now) {
			return o.Now
		}
		return at
	}
	return cmp.Or(due(a).Compare(due(b)), request.LastGranted(a).Compare(request.LastGranted(b)), cmp.Compare(a.Name, b.Name))
}

// obstacle is why the node that asks for a reboot has to wait, however many others ask;
// empty if it does not. It may be gone after some time, unless that is 0.
func (o Observed) obstacle(node *corev1.Node, budgets []budget, lastGrant time.Time) (reason, note string, again time.Duration) {
	notBefore, err := request.NotBefore(node)
	switch wait := notBefore.Sub(o.Now); {
	case request.IsGranted(node):
		return StillRebooting, "an earlier reboot of this node is not finished", 0
	case err != nil:
		return BadTime, err.Error(), 0
	case wait > 0:
		return NotBefore, "it was asked for " + notBefore.UTC().Format(time.RFC3339) + " or later", wait
	}
	if heard, isKnown := o.Heard[node.Name]; !isKnown {
		return AgentSilent, "no agent has reported from this node that it runs and could reboot it", 0
	} else if ago := o.Now.Sub(heard); ago > request.ReportedWithin {
		return AgentSilent, "its agent has not reported since " + heard.UTC().Format(time.RFC3339), 0
	}
	for _, b := range budgets {
		if b.has(node) && b.most == 0 {
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
			return PodRuns, "the Pod " + pod + " runs there, which is not to be disturbed", wait
		}
	}
	if wait := lastGrant.Add(o.MinInterval).Sub(o.Now); wait > 0 {
		return TooSoon, fmt.Sprintf("the last grant was at %s, and the next comes %s later", lastGrant.UTC().Format(time.RFC3339), o.MinInterval), wait
	}
	for _, b := range budgets {
		others := len(b.unavailable)
		if o.unavailability(node) != "" {
			others-- // to reboot what is unavailable anyway costs nothing
		}
		if b.has(node) && others >= b.most {
			return BudgetIsUsedUp, fmt.Sprintf("of %d nodes%s at most %d may be unavailable, and %d others are: %s", b.nodes, b.name, b.most, others, roster(b.unavailable, node)), 0
		}
	}
	return "", "", 0
}

// lastGrant is when a reboot was granted to any node that there still is, or by this
// process; zero if that was never.
func (o Observed) lastGrant() time.Time {
	last := o.LastGrant
	for _, node := range o.Nodes {
		if at := request.LastGranted(node); at.After(last) {
			last = at
		}
	}
	return last
}

// unavailability is why a node uses up a part of the budget; empty if it does not.
func (o Observed) unavailability(node *corev1.Node) string {
	_, isRebooting := node.Annotations[request.InProgress]
	switch {
	case isRebooting:
		return Rebooting
	case request.IsGranted(node):
		return Granted
	case request.IsNext(node):
		return Chosen
	case !request.IsReady(node):
		return NotReady
	case node.Spec.Unschedulable:
		return Cordoned
	case o.settlesFor(node) > 0:
		return Settling
	}
	return ""
}

// settlesFor is for how long a node that is available still counts as if it were not.
func (o Observed) settlesFor(node *corev1.Node) time.Duration {
	if o.ControlPlaneSettle == 0 || !isControlPlane(node) {
		return 0
	}
	since, isKnown := o.Available[node.UID]
	if !isKnown {
		return o.ControlPlaneSettle // it has just come
	}
	return since.Add(o.ControlPlaneSettle).Sub(o.Now)
}

// settled is when the first of those that are settling will have settled; 0 if there
// are none.
func (o Observed) settled() (first time.Duration) {
	for _, node := range o.Nodes {
		if o.unavailability(node) == Settling {
			first = soonest(first, o.settlesFor(node))
		}
	}
	return first
}

// soonest is the shorter one of two times, of which 0 is never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// budget says how many of some nodes may be unavailable.
type budget struct {
	name        string // of the nodes, after "node" or "nodes"; empty if they are all
	has         func(*corev1.Node) bool
	nodes       int           // how many there are
	most        int           // of them may be unavailable
	unavailable []Unavailable // by name
}

// budgetsOf are all budgets; the first one is that of all nodes.
func budgetsOf(o Observed) []budget {
	budgets := []budget{{has: func(*corev1.Node) bool { return true }}, {name: " of the control plane", has: isControlPlane}}
	most := []intstr.IntOrString{o.MaxUnavailable, intstr.FromInt32(1)}
	for _, p := range o.Pools {
		budgets = append(budgets, budget{name: " with " + p.Selector.String(), has: func(node *corev1.Node) bool { return p.Selector.Matches(labels.Set(node.Labels)) }})
		most = append(most, p.MaxUnavailable)
	}
	for _, node := range o.Nodes {
		reason := o.unavailability(node)
		for i := range budgets {
			if b := &budgets[i]; b.has(node) {
				b.nodes++
				if reason != "" {
					b.unavailable = append(b.unavailable, Unavailable{node, reason})
				}
			}
		}
	}
	for i := range budgets {
		b := &budgets[i]
		b.most = Budget(most[i], b.nodes)
		slices.SortFunc(b.unavailable, func(a, b Unavailable) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	}
	return budgets
}

// Budget is how many of so many nodes may be unavailable. A percentage is rounded
// down, but allows one at least, unless it is zero.
func Budget(most intstr.IntOrString, nodes int) int {
	if most.Type == intstr.Int {
		return most.IntValue()
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&most, 100, false)
	if err != nil || percent == 0 {
		return 0
	}
	return max(1, percent*nodes/100)
}

// ParseMaxUnavailable reads a number of nodes, or a percentage of all.
func ParseMaxUnavailable(text string) (intstr.IntOrString, error) {
	most := intstr.Parse(text)
	value, err := intstr.GetScaledValueFromIntOrPercent(&most, 100, false)
	if err != nil || value < 0 || most.Type == intstr.String && value > 100 {
		return most, fmt.Errorf("%q is neither a number of nodes nor a percentage of them, such as 1 or 10%%", text)
	}
	return most, nil
}

// ParsePool reads a label selector and a number or percentage of the nodes that it
// selects, such as pool=db=1, or "zone in (a, b)=10%".
func ParsePool(text string) (Pool, error) {
	i := strings.LastIndex(text, "=")
	if i <= 0 {
		return Pool{}, fmt.Errorf("%q is no label selector, =, and a number or percentage of nodes, such as pool=db=1", text)
	}
	selector, err := labels.Parse(text[:i])
	if err != nil {
		return Pool{}, fmt.Errorf("%q does not begin with a label selector: %w", text, err)
	}
	most, err := ParseMaxUnavailable(text[i+1:])
	if err != nil {
		return Pool{}, err
	}
	return Pool{selector, most}, nil
}

// roster names the first few of the nodes without that one.
func roster(nodes []Unavailable, without *corev1.Node) string {
	var words []string
	more := 0
	for _, n := range nodes {
		switch {
		case n.Node == without:
		case len(words) == mostNamed:
			more++
		default:
			words = append(words, fmt.Sprintf("%s (%s)", n.Node.Name, n.Reason))
		}
	}
	if more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

// Strip takes from a node what is not read, before it is kept.
func Strip(node *corev1.Node) {
	kept := map[string]string{}
	for _, name := range []string{request.Needed, request.Next, request.Now, request.Granted, request.InProgress} {
		if value, ok := node.Annotations[name]; ok {
			kept[name] = value
		}
	}
	node.Annotations, node.ManagedFields = kept, nil
	node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	node.Status = corev1.NodeStatus{Conditions: slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })}
}
