package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
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

func isControlPlane(node *corev1.Node) bool {
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
	includes    func(*corev1.Node) bool
	nodes       int           // how many there are
	max         int           // how many of them may be unavailable
	unavailable []Unavailable // by name
}

// budgetsOf returns all budgets. The first one is that of all nodes.
func budgetsOf(o Observed) []budget {
	budgets := []budget{{includes: func(*corev1.Node) bool { return true }}, {name: " of the control plane", includes: isControlPlane}}
	limits := []intstr.IntOrString{o.MaxUnavailable, intstr.FromInt32(1)}
	for _, p := range o.Pools {
		budgets = append(budgets, budget{name: " with " + p.Selector.String(), includes: func(node *corev1.Node) bool { return p.Selector.Matches(labels.Set(node.Labels)) }})
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

// usedBy returns why a node uses up a part of the budget, whatever the time; empty if it does
// not.
func usedBy(node *corev1.Node) string {
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
	}
	return ""
}

// unavailability returns why a node uses up a part of the budget; empty if it does not.
func (o Observed) unavailability(node *corev1.Node) string {
	reason := usedBy(node)
	if reason == "" && o.settlesFor(node) > 0 {
		return Settling
	}
	return reason
}

// settlesFor returns how long an available node still counts as unavailable: so that what has
// moved can come to rest, and what a reboot has broken can be noticed. A node that was not away
// since its last grant has no reboot behind it; but there are few of the control plane, and each
// of these settles.
func (o Observed) settlesFor(node *corev1.Node) time.Duration {
	since, isKnown := o.AvailableSince[node.UID]
	granted := o.lastGranted(node)
	switch {
	case o.Settle == 0 || !isControlPlane(node) && (granted.IsZero() || since.Before(granted)):
		return 0
	case !isKnown:
		return o.Settle // the node is new
	}
	return since.Add(o.Settle).Sub(o.Now)
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

// summarize returns the first few of these nodes, other than except, with their reasons.
func summarize(nodes []Unavailable, except *corev1.Node) string {
	var items []string
	more := 0
	for _, n := range nodes {
		switch {
		case n.Node == except:
		case len(items) == maxListed:
			more++
		default:
			items = append(items, fmt.Sprintf("%s (%s)", n.Node.Name, n.Reason))
		}
	}
	if more > 0 {
		items = append(items, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(items, ", ")
}
