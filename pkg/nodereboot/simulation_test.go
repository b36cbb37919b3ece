//go:debug randseednop=0

package nodereboot_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/pkg/kittest/apiserver"
	"nicoleh.io/k8s-controller/pkg/kittest/simulation"
	"nicoleh.io/k8s-controller/pkg/nodereboot"
	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// reboots is the world of nodereboot: nodes with agents, which reboot when they may.
type reboots struct {
	*simulation.History
	edits   int
	writes  int
	silent  map[string]bool         // nodes whose agents have stopped
	next    map[types.UID]time.Time // when an agent takes its next step
	granted map[string]bool         // nodes to which the program has granted a reboot that is not over
	report  time.Time               // when the agents report next
}

// agentNamespace is that of the agents' Leases.
const agentNamespace = "k8s-controller-reboot-agent"

// newWorld returns the world of nodereboot.
func newWorld(h *simulation.History) simulation.World {
	return &reboots{History: h, silent: map[string]bool{}, next: map[types.UID]time.Time{}, granted: map[string]bool{}}
}

// TestSimulation runs the program with this controller in simulated worlds. See package simulation.
func TestSimulation(t *testing.T) {
	simulation.Simulation{
		Run:      simulation.Program(nodereboot.NewDescriptor),
		Kinds:    []apiserver.Kind{apiserver.Nodes(), apiserver.Leases(), apiserver.EventObjects()},
		NewWorld: newWorld,
		Args:     []string{"-nodereboot-max-unavailable=50%"},
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
		if w.silent[node.Name] {
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
	next = w.report
	for _, node := range w.nodes(w.Store) {
		if !request.IsGranted(node) {
			delete(w.next, node.UID)
			delete(w.granted, node.Name)
			continue
		}
		at, ok := w.next[node.UID]
		if !ok {
			at = time.Now().Add(w.Between(100*time.Millisecond, 15*time.Second, "agent", node.Name, node.ResourceVersion))
			w.next[node.UID] = at
		}
		if !time.Now().Before(at) {
			delete(w.next, node.UID)
			w.reboot(node)
			at = time.Now().Add(time.Second)
		}
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// reboot takes the next step of an agent: to begin, to go down, or to be back.
func (w *reboots) reboot(node *corev1.Node) {
	changed := node.DeepCopy()
	changed.Annotations = maps.Clone(node.Annotations)
	_, isAtWork := changed.Annotations[request.InProgress]
	switch {
	case !isAtWork:
		delete(changed.Annotations, request.Now)
		delete(changed.Annotations, request.Needed)
		changed.Annotations[request.InProgress] = "boot"
		changed.Spec.Unschedulable = true
	case request.IsReady(node):
		setReady(changed, corev1.ConditionFalse)
	default:
		delete(changed.Annotations, request.InProgress)
		changed.Spec.Unschedulable = false
		setReady(changed, corev1.ConditionTrue)
	}
	w.Put(changed)
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
	changed := node.DeepCopy()
	changed.Annotations = maps.Clone(node.Annotations)
	var what string
	switch draw.IntN(10) {
	case 0:
		setReady(changed, simulation.Pick(draw, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown}))
		what = fmt.Sprintf("is Ready: %s", changed.Status.Conditions[0].Status)
	case 1:
		changed.Spec.Unschedulable = !changed.Spec.Unschedulable
		what = fmt.Sprintf("is cordoned: %t", changed.Spec.Unschedulable)
	case 2:
		w.silent[node.Name] = !w.silent[node.Name]
		return fmt.Sprintf("the agent of %s is silent: %t", node.Name, w.silent[node.Name])
	case 3:
		delete(changed.Annotations, request.Needed)
		what = "needs no reboot"
	case 4:
		delete(changed.Annotations, request.Next)
		what = "is not the next"
	case 5:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, time.Now().Add(20*time.Second).UTC().Format(time.RFC3339))
		what = "needs a reboot in a while"
	default:
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, request.Needed, "")
		what = "needs a reboot"
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
func (w *reboots) Admit(apiserver.Admission) error { return nil }

// Mutate implements World.
func (w *reboots) Mutate(apiserver.Admission) {}

// Settle implements World. One node after the other reboots.
func (w *reboots) Settle() time.Duration {
	clear(w.silent)
	w.reportAgents()
	for _, node := range w.nodes(w.Store) {
		changed := node.DeepCopy()
		if !request.IsGranted(node) {
			changed.Spec.Unschedulable = false
			setReady(changed, corev1.ConditionTrue)
			w.Put(changed)
		}
	}
	return 10 * time.Minute
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
		if request.IsNeeded(node) || request.IsGranted(node) || request.IsNext(node) {
			w.Fail("end", "%s still has %v", node.Name, node.Annotations)
		}
	}
	w.checkRequests()
}

// checkRequests checks that a history without faults costs two writes for each edit: a node that
// needs a reboot gets its turn, and then may begin.
func (w *reboots) checkRequests() {
	if most := 2 * w.edits; w.writes > most && w.IsCalm() {
		w.Fail("requests", "%d writes after %d edits", w.writes, w.edits)
	}
}
