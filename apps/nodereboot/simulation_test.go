//go:debug randseednop=0

package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	refused string           // the node that a webhook lets nobody write; empty if there is none
	code    int32            // with which it denies
	spares  bool             // whether the agent may
	relents time.Time        // when the webhook ends, and agents that have stopped begin again; zero if that is not known

	isSettling bool
}

// host is the machine of a node. Its agent decides as the real one does.
type host struct {
	boots    int
	sentinel time.Time     // when the sentinel file was written; zero if there is none
	drained  agent.Drained // how far the agent's process has come
	next     time.Time     // when its agent takes its next step
	seen     string        // the version of the Node at the last one
	downAt   time.Time     // when it goes down; zero if it does not
	backAt   time.Time     // when a Node of that name is made again; zero if there is one
	emptyAt  time.Time     // when the last Pod is no longer waited for; zero if none was evicted

	isStuck   bool // the deletion of evicted Pods hangs
	isKept    bool // a PodDisruptionBudget allows no eviction
	isBlocked bool // a Pod must not be evicted, by the flags
	isUnable  bool // there is no reboot command
	isSilent  bool // the agent has stopped
	staysUp   bool // the reboot command has no effect
	survives  bool // the sentinel file survives a reboot
	returns   bool // another sentinel file is written after each reboot

	isTheirs bool           // a person has cordoned the node
	isAsked  bool           // a person has asked for its reboot
	begun    map[int64]bool // the grants for which work has begun
}

func (h *host) bootID() string { return fmt.Sprint("boot-", h.boots) }

// limits are those of the agents.
var limits = agent.Limits{Drain: 30 * time.Second, Reboot: 30 * time.Second, RetryAfter: 20 * time.Second}

// newWorld returns the world of nodereboot.
func newWorld(h *simulation.History) simulation.World {
	return &reboots{History: h, hosts: map[string]*host{}}
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
	for i := range 3 + w.Draw("begin").IntN(4) {
		w.join(fmt.Sprintf("node-%d", i+1), 1)
	}
}

// join adds a node.
func (w *reboots) join(name string, boots int) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setReady(node, corev1.ConditionTrue)
	h := &host{boots: boots, begun: map[int64]bool{}}
	w.hosts[name] = h
	node.Status.NodeInfo.BootID = h.bootID()
	w.Put(node)
}

// joinAgain makes those Nodes again that were deleted a while ago, and returns when there are others; all of them if
// that is now.
func (w *reboots) joinAgain(all bool) (next time.Time) {
	next = time.Now().Add(time.Minute)
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		switch h := w.hosts[name]; {
		case h.backAt.IsZero():
		case all || !time.Now().Before(h.backAt):
			w.join(name, h.boots+1)
		case h.backAt.Before(next):
			next = h.backAt
		}
	}
	return next
}

func setReady(node *corev1.Node, status corev1.ConditionStatus) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now())}}
}

func (w *reboots) nodes(store apiserver.Store) (nodes []request.Node) {
	for _, node := range simulation.All[corev1.Node](w.History, store) {
		nodes = append(nodes, request.Read(node))
	}
	return nodes
}

// Act implements World.
func (w *reboots) Act() (next time.Time) {
	if !w.relents.IsZero() && !time.Now().Before(w.relents) {
		w.relent()
	}
	next = w.joinAgain(false)
	for _, node := range simulation.All[corev1.Node](w.History, w.Store) {
		h := w.hosts[node.Name]
		if !h.downAt.IsZero() && !time.Now().Before(h.downAt) {
			w.goDown(node)
			continue
		}
		if h.seen != node.ResourceVersion { // it looks soon
			h.seen = node.ResourceVersion
			soon := time.Now().Add(w.Between(100*time.Millisecond, 15*time.Second, "agent", node.Name, node.ResourceVersion))
			if h.next.Before(time.Now()) || soon.Before(h.next) {
				h.next = soon
			}
		}
		if !time.Now().Before(h.next) {
			h.next = time.Now().Add(30 * time.Second)
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

// relent ends what else can be wrong with nodes. Somebody asks again for reboots that have failed.
func (w *reboots) relent() {
	w.checkOthers()
	w.refused, w.relents = "", time.Time{}
	for _, node := range w.nodes(w.Store) {
		h := w.hosts[node.Name]
		if h.isSilent = false; node.Record != nil && node.Record.Failed != nil && !node.IsDeclined() {
			h.isAsked = true
			changed := node.DeepCopy()
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, "")
			w.Put(changed)
		}
	}
}

// goDown reboots a host. Its kubelet says Ready when it is back.
func (w *reboots) goDown(node *corev1.Node) {
	h := w.hosts[node.Name]
	h.boots, h.drained, h.downAt = h.boots+1, agent.Drained{}, time.Time{}
	h.next = time.Now().Add(time.Second)
	switch {
	case h.returns:
		h.sentinel = time.Now()
	case !h.survives:
		h.sentinel = time.Time{}
	}
	changed := node.DeepCopy()
	setReady(changed, corev1.ConditionTrue)
	changed.Status.NodeInfo.BootID = h.bootID()
	w.Put(changed)
}

// step takes the next step of an agent.
func (w *reboots) step(node *corev1.Node) {
	h := w.hosts[node.Name]
	o := agent.Observed{Now: time.Now(), Node: request.Read(node), BootID: h.bootID(), Sentinel: h.sentinel, Drain: h.drained, Limits: limits}
	if h.isUnable {
		o.Unable = "there is no reboot command"
	}
	d := agent.Decide(o)
	if d.Step == agent.Look || d.Step == agent.Drain {
		if o.Blocked = new(""); h.isBlocked {
			o.Blocked = new("a Pod has no controller")
		}
		if d.Step == agent.Drain && !node.Spec.Unschedulable {
			w.Fail("cordon", "%s is drained and not cordoned", node.Name)
		}
		if h.drained = (agent.Drained{}); d.Step == agent.Drain && !h.isBlocked {
			h.drain()
		}
		o.Drain = h.drained
		d = agent.Decide(o)
	}
	if d.Record == nil || node.Name == w.refused && !w.spares {
		return
	}
	w.checkStep(h, o, d)
	changed := node.DeepCopy()
	changed.Annotations = maps.Clone(node.Annotations)
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Agent, *request.Encode(d.Record))
	if d.UsesRequest {
		delete(changed.Annotations, request.Needed)
	}
	if d.Unschedulable != nil {
		changed.Spec.Unschedulable = *d.Unschedulable
	}
	if d.Step == agent.Reboot {
		h.isAsked = h.isAsked && !d.UsesRequest
		if !h.staysUp {
			setReady(changed, corev1.ConditionFalse)
			h.downAt = time.Now().Add(w.Between(time.Second, 10*time.Second, "down", node.Name, node.ResourceVersion))
		}
	}
	w.Put(changed)
	w.checkNode(request.Read(changed))
	if draw := w.Draw("fail", node.Name, node.ResourceVersion); d.Step == agent.Answer && !w.isSettling && draw.IntN(8) == 0 {
		w.Note("%s", w.fail(draw)) // at the worst of times
	}
}

// drain is one attempt of its agent to drain the node. Pods whose deletion hangs are waited for, for longer than a drain
// may take.
func (h *host) drain() {
	switch {
	case h.isKept:
		h.drained.Obstacle = "a Pod is not evicted"
		return
	case h.isStuck && h.emptyAt.IsZero():
		h.emptyAt = time.Now().Add(45 * time.Second)
	}
	if h.isStuck && time.Now().Before(h.emptyAt) {
		h.drained.Obstacle, h.drained.LeavesBy = "a Pod is ending", h.emptyAt.Add(time.Minute) // by the next attempt
		return
	}
	h.drained.IsDone = true
}

// checkStep checks that only nodes reboot that need it, and once for each grant.
func (w *reboots) checkStep(h *host, o agent.Observed, d agent.Decision) {
	switch id := d.Record.ID; d.Step {
	case agent.Begin:
		h.drained, h.emptyAt = agent.Drained{}, time.Time{}
		if !h.isAsked && h.sentinel.IsZero() {
			w.Fail("request", "%s begins a reboot that nobody wants, with %v", o.Node.Name, o.Node.Annotations)
		}
		if h.begun[id] {
			w.Fail("once", "%s begins another reboot for the grant %d", o.Node.Name, id)
		}
		if h.begun[id] = true; o.Node.Grant == nil || o.Node.Grant.ID != id || o.Node.Grant.Until.IsZero() {
			w.Fail("grant", "%s begins a reboot without a grant, with %v", o.Node.Name, o.Node.Annotations)
		}
	case agent.Reboot:
		if o.Node.IsDeclined() {
			w.Fail("request", "%s is rebooted, although somebody has said no", o.Node.Name)
		}
		if !h.downAt.IsZero() {
			w.Fail("once", "%s is rebooted while it goes down", o.Node.Name)
		}
		if !h.drained.IsDone {
			w.Fail("drain", "%s is rebooted, and not drained: %s", o.Node.Name, h.drained.Obstacle)
		}
	default:
	}
}

// checkNode checks that a person's request is there until the reboot command is run, and that a node on which
// nobody works is cordoned if and only if a person has cordoned it.
func (w *reboots) checkNode(node request.Node) {
	h := w.hosts[node.Name]
	if h.isAsked && !node.IsAsked() {
		w.Fail("request", "the request for %s is lost: %v", node.Name, node.Annotations)
	}
	if node.Stage() != request.AtWork && node.Spec.Unschedulable != h.isTheirs {
		w.Fail("cordon", "%s is cordoned: %t, and by a person: %t", node.Name, node.Spec.Unschedulable, h.isTheirs)
	}
}

// Edit implements World.
func (w *reboots) Edit(draw *rand.Rand) string {
	w.checkWrites()
	return w.disturb(draw, simulation.Pick(draw, simulation.All[corev1.Node](w.History, w.Store)))
}

func (w *reboots) disturb(draw *rand.Rand, node *corev1.Node) string {
	w.edits++
	h := w.hosts[node.Name]
	toggle := func(what string, is *bool) string {
		*is = !*is
		return fmt.Sprintf("%s: %s: %t", node.Name, what, *is)
	}
	changed := node.DeepCopy()
	changed.Annotations = maps.Clone(node.Annotations)
	var what string
	switch draw.IntN(30) {
	case 0, 24, 25:
		setReady(changed, simulation.Pick(draw, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown}))
		what = fmt.Sprintf("is Ready: %s", changed.Status.Conditions[0].Status)
	case 1, 2:
		if record := request.Read(node).Record; record != nil && record.Work != nil && record.Work.IsCordoned && !node.Spec.Unschedulable {
			return "" // the agent could not tell this cordon from its own, which somebody has just removed
		}
		changed.Spec.Unschedulable = !changed.Spec.Unschedulable
		h.isTheirs, what = changed.Spec.Unschedulable, fmt.Sprintf("is cordoned: %t", changed.Spec.Unschedulable)
	case 3:
		delete(changed.Annotations, request.Needed)
		h.isAsked, what = false, "needs no reboot"
	case 4:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339))
		h.isAsked, what = true, "needs a reboot in a while"
	case 5, 6:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, "false")
		h.isAsked, what = false, "must not be rebooted"
	case 7:
		for _, h := range w.hosts {
			h.sentinel = time.Now()
		}
		w.edits += len(w.hosts)
		return "all nodes have sentinel files"
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
		h.drained = agent.Drained{}
		return toggle("the agent has stopped", &h.isSilent)
	case 13:
		return toggle("the deletion of Pods hangs", &h.isStuck)
	case 26:
		return toggle("a PodDisruptionBudget allows no eviction", &h.isKept)
	case 27, 28:
		if len(w.nodes(w.Store)) < 3 {
			return ""
		}
		w.DeleteNow(simulation.KeyOf("", "nodes", node.Name))
		h.backAt = time.Now().Add(time.Duration(draw.Int64N(int64(40 * time.Second))))
		return node.Name + " is deleted"
	case 14:
		return toggle("a Pod must not be evicted", &h.isBlocked)
	case 15:
		return toggle("there is no reboot command", &h.isUnable)
	case 16:
		return toggle("the reboot command has no effect", &h.staysUp)
	case 17:
		return toggle("the sentinel file survives", &h.survives)
	case 18:
		return toggle("the sentinel file returns", &h.returns)
	case 19:
		if w.refused == node.Name {
			w.refused = ""
		} else {
			w.refused = node.Name
		}
		w.spares, w.code = draw.IntN(2) == 0, simulation.Pick(draw, []int32{403, 404, 409, 422, 429, 500})
		return fmt.Sprintf("a webhook denies writes of %q with %d, and not those of its agent: %t", w.refused, w.code, w.spares)
	default:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, "")
		h.isAsked, what = true, "needs a reboot"
	}
	w.Put(changed)
	return node.Name + " " + what
}

// Interfere implements World. When one node takes a step, another one may fail.
func (w *reboots) Interfere(draw *rand.Rand, _ string, key apiserver.Key) string {
	if node := simulation.Get[corev1.Node](w.History, w.Store, key); node != nil && draw.IntN(2) == 0 {
		return w.disturb(draw, node)
	}
	if key.Resource.Resource == "nodes" && draw.IntN(2) == 0 {
		return w.fail(draw)
	}
	return w.Edit(draw)
}

// fail has the kubelet of any node fall silent.
func (w *reboots) fail(draw *rand.Rand) string {
	w.edits++
	node := simulation.Pick(draw, simulation.All[corev1.Node](w.History, w.Store)).DeepCopy()
	setReady(node, corev1.ConditionUnknown)
	w.Put(node)
	return node.Name + " fails"
}

// Admit implements World.
func (w *reboots) Admit(a apiserver.Admission) error {
	if a.Key.Resource.Resource != "nodes" || a.Key.Name != w.refused {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: w.code, Message: `admission webhook "nodes.example.com" denied the request: hands off`,
		Details: &metav1.StatusDetails{Kind: "nodes", Name: a.Key.Name},
	}}
}

// Mutate implements World.
func (w *reboots) Mutate(apiserver.Admission) {}

// Settle implements World. Most of what can be wrong with a node ends, and one node after the other reboots. Those
// that are refused, or have no agent, come last.
func (w *reboots) Settle() (enough time.Duration) {
	enough, w.isSettling = 15*time.Minute, true
	w.joinAgain(true)
	for _, node := range w.nodes(w.Store) {
		h := w.hosts[node.Name]
		h.isKept, h.isBlocked, h.isUnable, h.staysUp, h.survives, h.returns = false, false, false, false, false, false
		changed := node.DeepCopy()
		if record := node.Record; record != nil {
			enough += max(0, time.Until(record.NotBefore))
			if record.Work != nil && !record.Work.Commanded.IsZero() && record.BootID == h.bootID() {
				h.downAt = time.Now() // after all
			}
		}
		if h.isTheirs {
			changed.Spec.Unschedulable, h.isTheirs = false, false
		}
		setReady(changed, corev1.ConditionTrue)
		w.Put(changed)
	}
	w.relents = time.Now().Add(enough)
	if w.refused != "" {
		return enough + 80*time.Minute
	}
	return enough + 15*time.Minute
}

// Check implements World.
func (w *reboots) Check(x simulation.Exchange) {
	if !x.IsWrite() || x.Key.Resource.Resource == "events" || x.Key.Name == simulation.Lease {
		return
	}
	was, is := simulation.Get[corev1.Node](w.History, x.Before, x.Key), simulation.Get[corev1.Node](w.History, x.After, x.Key)
	if x.Key.Resource.Resource != "nodes" || x.Verb != "patch" || was == nil || is == nil {
		w.Fail("permissions", "%s: %s %s", x.Process.Name, x.Verb, simulation.Describe(x.Key))
		return
	}
	w.writes++
	expected := was.DeepCopy()
	expected.ResourceVersion = is.ResourceVersion
	metav1.SetMetaDataAnnotation(&expected.ObjectMeta, request.Granted, is.Annotations[request.Granted])
	if !equality.Semantic.DeepEqual(expected, is) {
		w.Fail("permissions", "%s changes more of %s than the grant", x.Process.Name, simulation.Describe(x.Key))
	}
	before, after := request.Read(was), request.Read(is)
	if after.Stage() != request.MayReboot {
		return
	}
	if !before.HasAnswered() || !before.IsDue(time.Now()) {
		w.Fail("grant", "%s grants %s a reboot, which has %v", x.Process.Name, simulation.Describe(x.Key), was.Annotations)
	}
	w.checkBudget(x)
}

// checkBudget checks that no more nodes may reboot than the budget allows, and that the other
// nodes left room for one more when the process last listed them. One can have failed since.
func (w *reboots) checkBudget(x simulation.Exchange) {
	var unavailable, granted []string
	listed := w.nodes(w.Since(x.Checked(apiserver.Key{Resource: x.Key.Resource}))[0])
	for _, node := range listed {
		if node.Name != x.Key.Name && (node.Stage() != request.NoGrant || !node.IsReady() || node.Spec.Unschedulable) {
			unavailable = append(unavailable, node.Name)
		}
	}
	for _, node := range w.nodes(x.After) {
		if node.Stage() >= request.MayReboot {
			granted = append(granted, node.Name)
		}
	}
	if budget := max(1, len(listed)/2); len(unavailable) >= budget || len(granted) > budget {
		w.Fail("budget", "%s grants %s a reboot, when %v were unavailable; %v may reboot at once, of %d that may be unavailable",
			x.Process.Name, x.Key.Name, unavailable, granted, budget)
	}
}

// CheckEnd implements World.
func (w *reboots) CheckEnd() {
	for _, node := range w.nodes(w.Store) {
		if isOpen(node) || w.hosts[node.Name].isAsked {
			w.Fail("end", "%s has not been rebooted; asked: %t, and it has %v", node.Name, w.hosts[node.Name].isAsked, node.Annotations)
		}
		w.checkNode(node)
	}
	w.checkWrites()
}

// isOpen reports whether a node has a reboot before it.
func isOpen(node request.Node) bool { return node.IsNeeded() || node.Stage() != request.NoGrant }

// checkOthers checks that a node that cannot be written, or whose agent has stopped, has held up nobody, unless it
// uses up a part of the budget. A grant is not such a part for ever.
func (w *reboots) checkOthers() {
	nodes := w.nodes(w.Store)
	isAway := func(node request.Node) bool { return node.Name == w.refused || w.hosts[node.Name].isSilent }
	for _, node := range nodes {
		if node.Name != w.refused && node.Stage() == request.MayReboot && time.Since(node.Grant.Until) > 2*request.ClockSkew {
			w.Fail("others", "%s still has a grant that is over: %v", node.Name, node.Annotations)
		}
	}
	if slices.ContainsFunc(nodes, func(node request.Node) bool { return isAway(node) && node.Stage() != request.NoGrant }) {
		return
	}
	for _, node := range nodes {
		if !isAway(node) && isOpen(node) {
			w.Fail("others", "%s still has %v, because nobody may write %q, or agents have stopped", node.Name, node.Annotations, w.refused)
		}
	}
}

// checkWrites checks that a history without faults costs few writes: a node that needs a reboot gets its turn, and
// then may begin, or is passed over.
func (w *reboots) checkWrites() {
	if most := 4*w.edits + 10; w.writes > most && w.IsCalm() {
		w.Fail("writes", "%d writes after %d edits", w.writes, w.edits)
	}
}
