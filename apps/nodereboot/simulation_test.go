//go:debug randseednop=0

package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodereboot "nicoleh.io/k8s-controller/apps/nodereboot"
	"nicoleh.io/k8s-controller/apps/nodereboot/agent"
	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation/program"
)

// reboots is the world of nodereboot: nodes with agents, which reboot when they may, and people who
// cordon nodes, ask for reboots and say no.
type reboots struct {
	*simulation.History
	edits   int
	writes  int
	hosts   map[string]*host // by node
	granted map[string]bool  // nodes to which the program has granted a reboot that is not over
	report  time.Time        // when the agents report next
	refused string           // the node that a policy does not let the program write; empty if there is none
	relents time.Time        // when the policy ends; zero if that is not known
}

// host is the machine of a node. Its agent decides as the real one does.
type host struct {
	boots    int
	sentinel time.Time // when the sentinel file was written; zero if there is none
	drained  string    // the record for which the agent has drained the node
	isStuck  bool      // whether a Pod does not leave
	isSilent bool      // whether the agent has stopped
	staysUp  bool      // whether the reboot command has no effect
	downAt   time.Time // when it goes down; zero if it does not
	next     time.Time // when its agent takes its next step
	seen     string    // the version of the Node at the last one

	isTheirs bool // whether a person has cordoned the node
	isAsked  bool // whether a person has asked for its reboot
}

func (h *host) bootID() string { return fmt.Sprint("boot-", h.boots) }

// limits are those of the agents.
var limits = agent.Limits{Drain: 30 * time.Second, Reboot: 30 * time.Second, RetryAfter: 20 * time.Second}

// agentNamespace is that of the agents' Leases.
const agentNamespace = "nodereboot-agent"

// newWorld returns the world of nodereboot.
func newWorld(h *simulation.History) simulation.World {
	return &reboots{History: h, hosts: map[string]*host{}, granted: map[string]bool{}}
}

// TestSimulation runs the program with this controller in simulated worlds. See package simulation.
func TestSimulation(t *testing.T) {
	simulation.Simulation{
		Run:      program.With(nodereboot.NewDescriptor),
		Kinds:    []apiserver.Kind{apiserver.Nodes(), apiserver.Leases(), apiserver.EventObjects()},
		NewWorld: newWorld,
		Args:     []string{"-max-unavailable=50%", "-settle=5s"},
	}.Test(t)
}

// Begin implements World.
func (w *reboots) Begin() {
	draw := w.Draw("begin")
	for i := range 3 + draw.IntN(3) {
		w.newNode(fmt.Sprintf("node-%d", i+1))
	}
	w.reportAgents()
}

func (w *reboots) newNode(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setReady(node, corev1.ConditionTrue)
	w.hosts[name] = &host{boots: 1}
	node.Status.NodeInfo.BootID = w.hosts[name].bootID()
	w.Put(node)
}

func setReady(node *corev1.Node, status corev1.ConditionStatus) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now())}}
}

func (w *reboots) nodes(store apiserver.Store) []*corev1.Node {
	return simulation.All[corev1.Node](w.History, store)
}

// reportAgents renews the Leases of the agents that run.
func (w *reboots) reportAgents() {
	w.report = time.Now().Add(request.ReportEvery)
	for _, node := range w.nodes(w.Store) {
		if w.hosts[node.Name].isSilent {
			continue
		}
		w.Put(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: node.Name, UID: types.UID("lease-of-" + node.Name)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.Name, RenewTime: &metav1.MicroTime{Time: time.Now()}},
		})
	}
}

// Act implements World.
func (w *reboots) Act() (next time.Time) {
	if !time.Now().Before(w.report) {
		w.reportAgents()
	}
	if !w.relents.IsZero() && !time.Now().Before(w.relents) {
		w.checkOthers()
		w.refused, w.relents = "", time.Time{}
	}
	next = w.report
	for _, node := range w.nodes(w.Store) {
		h := w.hosts[node.Name]
		if !request.IsGranted(node) {
			delete(w.granted, node.Name)
		}
		if !h.downAt.IsZero() && !time.Now().Before(h.downAt) {
			w.goDown(node)
			continue
		}
		if h.seen != node.ResourceVersion { // it looks soon
			h.seen = node.ResourceVersion
			if soon := time.Now().Add(w.Between(100*time.Millisecond, 15*time.Second, "agent", node.Name, node.ResourceVersion)); h.next.IsZero() || soon.Before(h.next) || h.next.Before(time.Now()) {
				h.next = soon
			}
		}
		if !time.Now().Before(h.next) {
			h.next = time.Now().Add(5 * time.Second)
			if !h.isSilent {
				w.step(node)
			}
		}
		for _, at := range []time.Time{h.next, h.downAt} {
			if !at.IsZero() && at.Before(next) {
				next = at
			}
		}
	}
	if soonest := time.Now().Add(100 * time.Millisecond); next.Before(soonest) {
		return soonest
	}
	return next
}

// goDown reboots a host: its sentinel file is gone, and its kubelet says Ready when it is back.
func (w *reboots) goDown(node *corev1.Node) {
	h := w.hosts[node.Name]
	h.boots, h.sentinel, h.drained, h.downAt = h.boots+1, time.Time{}, "", time.Time{}
	h.next = time.Now().Add(time.Second)
	changed := node.DeepCopy()
	setReady(changed, corev1.ConditionTrue)
	changed.Status.NodeInfo.BootID = h.bootID()
	w.Put(changed)
}

// step takes the next step of an agent.
func (w *reboots) step(node *corev1.Node) {
	h := w.hosts[node.Name]
	record := node.Annotations[request.InProgress]
	d, err := agent.Decide(agent.Observed{
		Now: time.Now(), Node: node, BootID: h.bootID(), Sentinel: h.sentinel, Limits: limits,
		Drained: h.drained != "" && h.drained == record,
	})
	if err != nil {
		w.Fail("agent", "the agent of %s cannot decide: %v", node.Name, err)
		return
	}
	switch d.Step {
	case agent.Rest:
		return
	case agent.Drain:
		if !node.Spec.Unschedulable {
			w.Fail("cordon", "%s is drained and not cordoned", node.Name)
		}
		if !h.isStuck {
			h.drained = record
		}
		return
	case agent.Begin:
		if !h.isAsked && h.sentinel.IsZero() {
			w.Fail("request", "%s begins a reboot that nobody wants any more, with %v", node.Name, node.Annotations)
		}
		h.isAsked = false
	case agent.Reboot:
		if request.IsDeclined(node) {
			w.Fail("request", "%s is rebooted, although somebody has said no", node.Name)
		}
		if setReady(node, corev1.ConditionFalse); !h.staysUp {
			h.downAt = time.Now().Add(w.Between(time.Second, 10*time.Second, "down", node.Name, node.ResourceVersion))
		} else {
			setReady(node, corev1.ConditionTrue)
		}
	default:
	}
	changed := node.DeepCopy()
	changed.Annotations = maps.Clone(node.Annotations)
	for name, value := range d.Annotations {
		if value == nil {
			delete(changed.Annotations, name)
		} else {
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, name, *value)
		}
	}
	if d.Unschedulable != nil {
		changed.Spec.Unschedulable = *d.Unschedulable
	}
	if request.IsNeeded(changed) && !request.IsNeeded(node) {
		w.edits++ // the agent asks, or asks again
		h.isAsked = h.isAsked || request.ReasonOf(changed) == nil
	}
	w.Put(changed)
	w.checkCordon(changed)
}

// checkCordon checks that a node on which nobody works is cordoned if and only if a person has
// cordoned it.
func (w *reboots) checkCordon(node *corev1.Node) {
	if _, isAtWork := node.Annotations[request.InProgress]; !isAtWork && node.Spec.Unschedulable != w.hosts[node.Name].isTheirs {
		w.Fail("cordon", "%s is cordoned: %t, and by a person: %t", node.Name, node.Spec.Unschedulable, w.hosts[node.Name].isTheirs)
	}
}

// Edit implements World.
func (w *reboots) Edit(draw *rand.Rand) string {
	w.checkRequests()
	w.edits++
	node := simulation.Pick(draw, w.nodes(w.Store))
	if node == nil {
		return ""
	}
	return w.disturb(draw, node)
}

func (w *reboots) disturb(draw *rand.Rand, node *corev1.Node) string {
	h := w.hosts[node.Name]
	changed := node.DeepCopy()
	changed.Annotations = maps.Clone(node.Annotations)
	var what string
	switch draw.IntN(17) {
	case 0:
		setReady(changed, simulation.Pick(draw, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown}))
		what = fmt.Sprintf("is Ready: %s", changed.Status.Conditions[0].Status)
	case 1, 2:
		record, err := agent.RecordOf(node)
		if err == nil && record != nil && record.Cordoned && !node.Spec.Unschedulable {
			return "" // the agent could not tell this cordon from its own, which somebody has just removed
		}
		changed.Spec.Unschedulable = !changed.Spec.Unschedulable
		h.isTheirs = changed.Spec.Unschedulable
		what = fmt.Sprintf("is cordoned: %t", changed.Spec.Unschedulable)
	case 3:
		h.isSilent = !h.isSilent
		return fmt.Sprintf("the agent of %s is silent: %t", node.Name, h.isSilent)
	case 4:
		delete(changed.Annotations, request.Needed)
		isRequest := request.IsNeeded(node) && !request.IsGranted(node) // what is granted is no request any more
		h.isAsked, what = h.isAsked && !isRequest, "needs no reboot"
	case 5:
		delete(changed.Annotations, request.Next)
		what = "is not the next"
	case 6:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, time.Now().Add(20*time.Second).UTC().Format(time.RFC3339))
		h.isAsked, what = true, "needs a reboot in a while"
	case 7:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, "false")
		h.isAsked, what = h.isAsked && request.IsGranted(node), "must not be rebooted"
	case 8, 9:
		h.sentinel = time.Now()
		return node.Name + " has a sentinel file"
	case 10:
		h.sentinel = time.Time{}
		return node.Name + " has no sentinel file"
	case 11:
		w.goDown(node)
		return node.Name + " is rebooted by hand"
	case 12:
		h.isStuck = !h.isStuck
		return fmt.Sprintf("a Pod does not leave %s: %t", node.Name, h.isStuck)
	case 13:
		h.staysUp = !h.staysUp
		return fmt.Sprintf("%s does not go down: %t", node.Name, h.staysUp)
	case 14:
		if w.refused == node.Name {
			w.refused = ""
		} else {
			w.refused = node.Name
		}
		return fmt.Sprintf("a policy refuses writes of %q", w.refused)
	default:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, "")
		h.isAsked, what = true, "needs a reboot"
	}
	w.Put(changed)
	return node.Name + " " + what
}

// Interfere implements World.
func (w *reboots) Interfere(draw *rand.Rand, _ string, key apiserver.Key) string {
	if node := simulation.Get[corev1.Node](w.History, w.Store, key); node != nil {
		return w.disturb(draw, node)
	}
	return w.Edit(draw)
}

// Admit implements World.
func (w *reboots) Admit(a apiserver.Admission) error {
	if a.Key.Resource.Resource != "nodes" || a.Key.Name != w.refused {
		return nil
	}
	return apierrors.NewForbidden(a.Key.Resource, a.Key.Name, fmt.Errorf("it is protected"))
}

// Mutate implements World.
func (w *reboots) Mutate(apiserver.Admission) {}

// Settle implements World. One node after the other reboots, and one that is refused comes last.
func (w *reboots) Settle() time.Duration {
	for _, h := range w.hosts {
		h.isSilent, h.isStuck, h.staysUp = false, false, false
	}
	w.reportAgents()
	for _, node := range w.nodes(w.Store) {
		changed := node.DeepCopy()
		if h := w.hosts[node.Name]; h.isTheirs {
			changed.Spec.Unschedulable, h.isTheirs = false, false
		}
		setReady(changed, corev1.ConditionTrue)
		w.Put(changed)
	}
	if w.refused == "" {
		return 15 * time.Minute
	}
	w.relents = time.Now().Add(15 * time.Minute)
	return 25 * time.Minute
}

// Check implements World.
func (w *reboots) Check(x simulation.Exchange) {
	if !x.IsWrite() || x.Key.Resource.Resource == "events" || x.Key.Name == simulation.Lease {
		return
	}
	before, after := simulation.Get[corev1.Node](w.History, x.Before, x.Key), simulation.Get[corev1.Node](w.History, x.After, x.Key)
	if x.Key.Resource.Resource != "nodes" || x.Verb != "patch" || before == nil || after == nil {
		w.Fail("permissions", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
		return
	}
	w.writes++
	expected := before.DeepCopy()
	expected.ResourceVersion, expected.Annotations = after.ResourceVersion, after.Annotations
	if !equality.Semantic.DeepEqual(expected, after) {
		w.Fail("permissions", "%s changes more of %s than annotations", x.Process.Name, simulation.Describe(x.Key))
	}
	_, was := before.Annotations[request.Now]
	if _, is := after.Annotations[request.Now]; was || !is {
		return
	}
	if !request.IsNeeded(before) || !request.IsNext(before) || request.IsGranted(before) {
		w.Fail("grant", "%s grants %s a reboot, which has %v", x.Process.Name, simulation.Describe(x.Key), before.Annotations)
	}
	if at, err := request.NotBefore(before); err != nil || at.After(time.Now()) {
		w.Fail("grant", "%s grants %s a reboot, which is for %s", x.Process.Name, simulation.Describe(x.Key), at)
	}
	w.granted[after.Name] = true
	w.checkBudget(x)
}

// checkBudget checks that no more nodes may reboot than the budget allows, and that the other
// nodes left room for one more when the process last listed them. One can have failed since.
func (w *reboots) checkBudget(x simulation.Exchange) {
	listed := w.Since(x.Checked(apiserver.Key{Resource: x.Key.Resource}))[0]
	nodes := w.nodes(listed)
	budget := max(1, len(nodes)/2)
	var unavailable []string
	for _, node := range nodes {
		isReserved := request.IsNext(node) || request.IsGranted(node)
		if node.Name != x.Key.Name && (isReserved || !request.IsReady(node) || node.Spec.Unschedulable) {
			unavailable = append(unavailable, node.Name)
		}
	}
	if len(unavailable) >= budget || len(w.granted) > budget {
		w.Fail("budget", "%s grants %s a reboot, when %v were unavailable; %d nodes may reboot at once, of %d that may be unavailable",
			x.Process.Name, x.Key.Name, unavailable, len(w.granted), budget)
	}
}

// CheckEnd implements World.
func (w *reboots) CheckEnd() {
	for _, node := range w.nodes(w.Store) {
		if isOpen(node) {
			w.Fail("end", "%s still has %v", node.Name, node.Annotations)
		}
		w.checkCordon(node)
	}
	w.checkRequests()
}

// isOpen reports whether a node has a reboot before it.
func isOpen(node *corev1.Node) bool {
	return request.IsNeeded(node) || request.IsGranted(node) || request.IsNext(node)
}

// checkOthers checks that a node that cannot be written has held up nobody, unless it uses up a part
// of the budget.
func (w *reboots) checkOthers() {
	nodes := w.nodes(w.Store)
	if slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		return node.Name == w.refused && (request.IsGranted(node) || request.IsNext(node))
	}) {
		return
	}
	for _, node := range nodes {
		if node.Name != w.refused && isOpen(node) {
			w.Fail("others", "%s still has %v, because nobody may write %s", node.Name, node.Annotations, w.refused)
		}
	}
}

// checkRequests checks that a history without faults costs two writes for each edit: a node that
// needs a reboot gets its turn, and then may begin.
func (w *reboots) checkRequests() {
	if most := 2 * w.edits; w.writes > most && w.IsCalm() {
		w.Fail("requests", "%d writes after %d edits", w.writes, w.edits)
	}
}
