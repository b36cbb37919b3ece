package nodereboot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// Observed is what there is to know when it has to be decided who may reboot.
type Observed struct {
	Now            time.Time
	MaxUnavailable intstr.IntOrString
	Nodes          []*corev1.Node // all of the cluster
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
)

// Waiting is a node that needs a reboot and must not have it yet.
type Waiting struct {
	Node   *corev1.Node
	Reason string
	Note   string // for people
}

// Why a node waits.
const (
	BudgetIsZero   = "BudgetIsZero"   // nothing is granted at all
	BudgetIsUsedUp = "BudgetIsUsedUp" // as many nodes as may be are unavailable
	InLine         = "InLine"         // one is granted at a time, and it is another's turn
	NotBefore      = "NotBefore"      // it was asked for a later time
	StillRebooting = "StillRebooting" // an earlier request of the same node is not done with
)

// Reasons are all of them.
var Reasons = []string{BudgetIsZero, BudgetIsUsedUp, InLine, NotBefore, StillRebooting}

// mostNamed is how many nodes are named in a note.
const mostNamed = 5

// Decide brings at most one node a step closer to its reboot: the one whose turn it
// is. It is chosen if fewer nodes are unavailable than may be, and granted its reboot
// if no more are once it counts, too. Turns go by the time before which a node must
// not be rebooted, of which most have none, and then by name.
func Decide(o Observed) Decision {
	d := Decision{Nodes: len(o.Nodes), Budget: Budget(o.MaxUnavailable, len(o.Nodes))}
	var turns, chosen []*corev1.Node
	for _, node := range o.Nodes {
		if reason := unavailability(node); reason != "" {
			d.Unavailable = append(d.Unavailable, Unavailable{node, reason})
		}
		if request.IsNeeded(node) && node.DeletionTimestamp == nil {
			turns = append(turns, node)
		}
		if request.IsNext(node) {
			chosen = append(chosen, node)
		}
	}
	slices.SortFunc(d.Unavailable, func(a, b Unavailable) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	slices.SortFunc(turns, byTurn)
	slices.SortFunc(chosen, byTurn)

	for _, node := range chosen {
		switch {
		case len(d.Unavailable) > d.Budget || !isDue(o, node):
			d.take(PassOver, node, o.Now)
		case d.Step == Rest:
			d.take(Grant, node, o.Now)
		}
	}
	for _, node := range turns {
		reason, note := obstacle(o, d, node)
		switch {
		case node == d.Node && d.Step == Grant:
		case reason == "":
			d.take(Choose, node, o.Now)
		default:
			d.Waiting = append(d.Waiting, Waiting{node, reason, note})
		}
		if wait := request.NotBefore(node).Sub(o.Now); reason == NotBefore && (d.Again == 0 || wait < d.Again) {
			d.Again = wait
		}
	}
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
		d.Annotations = map[string]*string{request.Next: nil, request.Needed: nil, request.Now: &now}
	default:
		d.Annotations = map[string]*string{request.Next: nil}
	}
}

// byTurn orders nodes by whose turn is first.
func byTurn(a, b *corev1.Node) int {
	return cmp.Or(request.NotBefore(a).Compare(request.NotBefore(b)), cmp.Compare(a.Name, b.Name))
}

// isDue tells whether the node still asks for a reboot that it could have now.
func isDue(o Observed, node *corev1.Node) bool {
	return request.IsNeeded(node) && !request.IsGranted(node) && node.DeletionTimestamp == nil && !request.NotBefore(node).After(o.Now)
}

// obstacle is why the node whose turn it is has to wait; empty if it does not.
func obstacle(o Observed, d Decision, node *corev1.Node) (reason, note string) {
	switch notBefore := request.NotBefore(node); {
	case request.IsGranted(node):
		return StillRebooting, "an earlier reboot of this node is not finished"
	case notBefore.After(o.Now):
		return NotBefore, "it was asked for " + notBefore.UTC().Format(time.RFC3339) + " or later"
	case d.Budget == 0:
		return BudgetIsZero, "no node may be unavailable"
	case len(d.Unavailable) >= d.Budget:
		return BudgetIsUsedUp, fmt.Sprintf("of %d nodes at most %d may be unavailable, and %d are: %s", len(o.Nodes), d.Budget, len(d.Unavailable), roster(d.Unavailable))
	case d.Step != Rest:
		return InLine, "it is the turn of " + d.Node.Name
	}
	return "", ""
}

// unavailability is why a node uses up a part of the budget; empty if it does not.
func unavailability(node *corev1.Node) string {
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
	}
	return ""
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

// roster names the first few nodes.
func roster(nodes []Unavailable) string {
	var words []string
	for _, n := range nodes[:min(len(nodes), mostNamed)] {
		words = append(words, fmt.Sprintf("%s (%s)", n.Node.Name, n.Reason))
	}
	if more := len(nodes) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

// Strip takes from a node what is not read, before it is cached.
func Strip(node *corev1.Node) {
	kept := map[string]string{}
	for _, name := range []string{request.Needed, request.Next, request.Now, request.InProgress} {
		if value, ok := node.Annotations[name]; ok {
			kept[name] = value
		}
	}
	node.Annotations, node.Labels, node.ManagedFields = kept, nil, nil
	node.Spec = corev1.NodeSpec{}
	node.Status = corev1.NodeStatus{Conditions: slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type != corev1.NodeReady })}
}
