package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kit/pace"
)

// maxListed is how many nodes, or alerts, a note lists.
const maxListed = 5

// controlPlane lists the labels of control plane nodes. One of these nodes may be
// unavailable at a time, whatever the budget: there may be so few members of etcd or API
// servers that two are too many.
var controlPlane = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd", "node-role.kubernetes.io/master"}

func isControlPlane(node request.Node) bool {
	return slices.ContainsFunc(controlPlane, func(label string) bool {
		_, ok := node.Labels[label]
		return ok
	})
}

// Pool is a set of nodes with a budget of its own.
type Pool struct {
	Selector labels.Selector
	// MaxUnavailable is how many of these nodes may be unavailable: a number, or a
	// percentage of them.
	MaxUnavailable intstr.IntOrString
}

// budget is how many of a set of nodes may be unavailable, and which are.
type budget struct {
	name        string // of the set, after "node" or "nodes"; empty for all nodes
	includes    func(request.Node) bool
	nodes       int           // how many there are
	max         int           // how many of them may be unavailable
	unavailable []Unavailable // by name
}

// budgetsOf returns all budgets. The first one is for all nodes.
func budgetsOf(o Observed) []budget {
	budgets := []budget{{includes: func(request.Node) bool { return true }}, {name: " of the control plane", includes: isControlPlane}}
	limits := []intstr.IntOrString{o.MaxUnavailable, intstr.FromInt32(1)}
	for _, p := range o.Pools {
		budgets = append(budgets, budget{name: " with " + p.Selector.String(), includes: func(node request.Node) bool { return p.Selector.Matches(labels.Set(node.Labels)) }})
		limits = append(limits, p.MaxUnavailable)
	}
	for _, node := range o.Nodes {
		reason := o.unavailability(node)
		for i := range budgets {
			if b := &budgets[i]; b.includes(node) {
				b.nodes++
				if reason != "" {
					b.unavailable = append(b.unavailable, Unavailable{node, reason})
				}
			}
		}
	}
	for i := range budgets {
		b := &budgets[i]
		b.max = Budget(limits[i], b.nodes)
		slices.SortFunc(b.unavailable, func(a, b Unavailable) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	}
	return budgets
}

// Budget returns how many nodes may be unavailable, of the given number. A percentage is
// rounded down, but to no less than 1 unless it is zero.
func Budget(limit intstr.IntOrString, nodes int) int {
	if limit.Type == intstr.Int {
		return limit.IntValue()
	}
	percent, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false)
	if err != nil || percent == 0 {
		return 0
	}
	return max(1, percent*nodes/100)
}

// ParseMaxUnavailable parses a number of nodes, or a percentage.
func ParseMaxUnavailable(text string) (intstr.IntOrString, error) {
	limit := intstr.Parse(text)
	value, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false)
	if err != nil || value < 0 || limit.Type == intstr.String && value > 100 {
		return limit, fmt.Errorf("%q is neither a number of nodes nor a percentage of them, such as 1 or 10%%", text)
	}
	return limit, nil
}

// ParsePool parses a label selector and the number or percentage of the selected nodes
// that may be unavailable, such as pool=db=1, or "zone in (a, b)=10%".
func ParsePool(text string) (Pool, error) {
	i := strings.LastIndex(text, "=")
	if i <= 0 {
		return Pool{}, fmt.Errorf("%q is not a label selector, '=', and a number or percentage of nodes, such as pool=db=1", text)
	}
	selector, err := labels.Parse(text[:i])
	if err != nil {
		return Pool{}, fmt.Errorf("%q does not begin with a label selector: %w", text, err)
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		if r.Values().Has("") { // such as pool==1
			return Pool{}, fmt.Errorf("%q selects nodes by an empty value of the label %s", text, r.Key())
		}
	}
	limit, err := ParseMaxUnavailable(text[i+1:])
	if err != nil {
		return Pool{}, err
	}
	return Pool{selector, limit}, nil
}

// find returns where a node is among the unavailable ones, or would be.
func (b budget) find(node request.Node) (i int, isThere bool) {
	return slices.BinarySearchFunc(b.unavailable, node.Name, func(u Unavailable, name string) int { return cmp.Compare(u.Node.Name, name) })
}

// others returns how many other nodes are unavailable: rebooting a node that is unavailable anyway costs
// nothing.
func (b budget) others(node request.Node) int {
	if _, isThere := b.find(node); isThere {
		return len(b.unavailable) - 1
	}
	return len(b.unavailable)
}

// update counts a node as if it had this grant.
func (o Observed) update(budgets []budget, node request.Node, grant request.Grant) {
	node.Grant = &grant
	reason := o.unavailability(node)
	for i := range budgets {
		b := &budgets[i]
		if !b.includes(node) {
			continue
		}
		at, isThere := b.find(node)
		if isThere {
			b.unavailable = slices.Delete(b.unavailable, at, at+1)
		}
		if reason != "" {
			b.unavailable = slices.Insert(b.unavailable, at, Unavailable{node, reason})
		}
	}
}

// unavailability returns why a node uses up a part of the budget; empty if it does not.
func (o Observed) unavailability(node request.Node) string {
	switch stage := node.Stage(); {
	case stage == request.AtWork:
		return Rebooting
	case stage == request.MayReboot:
		return Granted
	case stage == request.Chosen:
		return Chosen
	case !node.IsReady():
		return NotReady
	case node.Spec.Unschedulable:
		return Cordoned
	case o.settlesFor(node) > 0:
		return Settling
	}
	return ""
}

// settlesFor returns how long an available node still counts as unavailable after a reboot, so that what has
// moved can come to rest, and what the reboot has broken can be noticed. There are few nodes of the control
// plane, and each of these settles whenever it becomes Ready.
func (o Observed) settlesFor(node request.Node) time.Duration {
	var left time.Duration
	if node.Record != nil {
		left = o.until(node.Record.Finished.Add(o.Settle), o.Settle)
	}
	if isControlPlane(node) {
		left = max(left, o.until(node.ReadySince().Add(o.Settle), o.Settle))
	}
	return left
}

// nextSettled returns how long it takes until the first settling node has settled; zero if
// there is none.
func (o Observed) nextSettled() (first time.Duration) {
	for _, node := range o.Nodes {
		if o.unavailability(node) == Settling {
			first = pace.Sooner(first, o.settlesFor(node))
		}
	}
	return first
}

// summarize says how many other nodes are unavailable, which are the first few, and why.
func (b budget) summarize(node request.Node) string {
	var items []string
	for _, u := range b.unavailable[:min(len(b.unavailable), maxListed+1)] {
		if u.Node.Name != node.Name && len(items) < maxListed {
			items = append(items, u.Node.Name+" ("+u.Reason+")")
		}
	}
	others := b.others(node)
	if more := others - maxListed; more > 0 {
		items = append(items, fmt.Sprintf("and %d more", more))
	}
	if others == 1 {
		return "1 other is: " + items[0]
	}
	return fmt.Sprintf("%d others are: %s", others, strings.Join(items, ", "))
}
