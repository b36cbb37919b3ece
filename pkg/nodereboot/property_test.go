package nodereboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// world is a cluster as the API server has it. It knows about resource versions, and
// controllers see it through their caches, live lists and patches.
//
// There is no leader election: the budget does not depend on only one process writing.
type world struct {
	t          *rapid.T
	most       intstr.IntOrString
	version    int
	nodes      map[string]*corev1.Node
	candidates []*candidate
	between    func()      // what happens after the next live list and before the patch
	late       []sentPatch // on their way although their senders have given up on them

	lists     int // how many were made so far
	disturbed int // how many lists had been made when a node last failed or was deleted
	granted   map[types.UID]list
	asked     map[types.UID]int // requests by node
	served    map[types.UID]int
}

// list is what the test remembers of a live list.
type list struct{ number, budget, counted int }

// sentPatch is a write of a controller that was decided by that list.
type sentPatch struct {
	node string
	body []byte
	by   list
}

// candidate is one process of the controller, with its own cache.
type candidate struct {
	*Controller
	store cache.Store
	list  list
}

var errLost = errors.New("the connection is lost")

func newWorld(t *rapid.T, most intstr.IntOrString) *world {
	w := &world{
		t: t, most: most, nodes: map[string]*corev1.Node{}, granted: map[types.UID]list{},
		asked: map[types.UID]int{}, served: map[types.UID]int{},
	}
	for range 2 {
		w.candidates = append(w.candidates, w.newCandidate())
	}
	return w
}

func (w *world) newCandidate() *candidate {
	kube := &fake.Clientset{}
	factory := kubeinformers.NewSharedInformerFactory(kube, 0)
	controller, err := NewController(Config{MaxUnavailable: w.most}, kube, &record.FakeRecorder{}, factory, factory)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { stop(controller) })
	for i := range 10 {
		controller.lastReport[fmt.Sprintf("node-%d", i)] = time.Now()
	}
	c := &candidate{Controller: controller, store: factory.Core().V1().Nodes().Informer().GetStore()}
	kube.AddReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		all := &corev1.NodeList{}
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			all.Items = append(all.Items, *w.nodes[name].DeepCopy())
		}
		w.lists++
		c.list = list{w.lists, Budget(w.most, len(w.nodes)), w.count(true)}
		if between := w.between; between != nil {
			w.between = nil
			between()
		}
		return true, all, nil
	})
	kube.AddReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		sent := action.(clienttesting.PatchAction)
		p := sentPatch{sent.GetName(), sent.GetPatch(), c.list}
		switch rapid.IntRange(0, 5).Draw(w.t, "connection") {
		case 0:
			w.late = append(w.late, p)
			return true, nil, errLost
		case 1:
			_, _ = w.write(p) // the answer is lost
			return true, nil, errLost
		}
		after, err := w.write(p)
		return true, after, err
	})
	return c
}

// write is what the API server does with a controller's patch when it arrives.
func (w *world) write(sent sentPatch) (*corev1.Node, error) {
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
	}
	if err := json.Unmarshal(sent.body, &p); err != nil {
		w.t.Fatal(err)
	}
	node := w.nodes[sent.node]
	switch {
	case node == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), sent.node)
	case p.Metadata.UID != node.UID || p.Metadata.ResourceVersion != node.ResourceVersion:
		return nil, apierrors.NewConflict(corev1.Resource("nodes"), sent.node, errors.New("changed"))
	}
	w.change(sent.node, func(n *corev1.Node) {
		for name, value := range p.Metadata.Annotations {
			if value == nil {
				delete(n.Annotations, name)
			} else {
				n.Annotations[name] = *value
			}
		}
	})
	if p.Metadata.Annotations[request.Now] != nil {
		w.audit(node, sent.by)
	}
	return w.nodes[sent.node].DeepCopy(), nil
}

// audit checks a grant that was decided by that list. before is the node before it.
func (w *world) audit(before *corev1.Node, by list) {
	now := w.nodes[before.Name]
	if !request.IsNeeded(before) || request.IsGranted(before) || request.IsNeeded(now) || request.IsNext(now) {
		w.t.Fatalf("the grant changed %v to %v", before.Annotations, now.Annotations)
	}
	if by.counted > by.budget {
		w.t.Fatalf("granted by a list with %d unavailable nodes, of at most %d", by.counted, by.budget)
	}
	w.granted[now.UID] = by
	last, n, controlPlane := list{}, 0, 0
	for _, node := range w.nodes {
		if request.IsGranted(node) {
			n++
			if isControlPlane(node) {
				controlPlane++
			}
			if by := w.granted[node.UID]; by.number > last.number {
				last = by
			}
		}
	}
	if controlPlane > 1 {
		w.t.Fatalf("%d control plane nodes are granted a reboot", controlPlane)
	}
	if n > last.budget {
		w.t.Fatalf("%d nodes are granted a reboot, of at most %d", n, last.budget)
	}
	if n := w.count(false); w.disturbed < by.number && n > by.budget {
		w.t.Fatalf("%d nodes are unavailable after a grant, of at most %d", n, by.budget)
	}
}

// count counts the nodes that are unavailable or will be, independently of the code under
// test.
func (w *world) count(alsoNext bool) (n int) {
	for _, node := range w.nodes {
		_, next := node.Annotations[request.Next]
		_, now := node.Annotations[request.Now]
		_, isRebooting := node.Annotations[request.InProgress]
		if alsoNext && next || now || isRebooting || node.Spec.Unschedulable || len(node.Status.Conditions) == 0 || node.Status.Conditions[0].Status != corev1.ConditionTrue {
			n++
		}
	}
	return n
}

func (w *world) change(name string, change func(*corev1.Node)) {
	node := w.nodes[name].DeepCopy()
	change(node)
	w.version++
	node.ResourceVersion = strconv.Itoa(w.version)
	w.nodes[name] = node
}

// agent takes the next step of a node's agent.
func (w *world) agent(name string) {
	w.change(name, func(n *corev1.Node) {
		if _, isRebooting := n.Annotations[request.InProgress]; isRebooting {
			delete(n.Annotations, request.InProgress)
			w.served[n.UID]++
		} else if _, now := n.Annotations[request.Now]; now {
			if request.IsNeeded(n) {
				w.asked[n.UID]-- // one reboot serves both requests
			}
			delete(n.Annotations, request.Now)
			delete(n.Annotations, request.Needed)
			n.Annotations[request.InProgress] = "boot"
		}
	})
}

// join adds a new node, which may replace one of the same name.
func (w *world) join(name string) {
	w.version++
	if w.nodes[name] != nil {
		w.disturbed = w.lists
	}
	w.nodes[name] = node(name, func(n *corev1.Node) { n.Annotations = map[string]string{} })
	if name <= "node-3" {
		labeled(controlPlane[0], "")(w.nodes[name])
	}
	w.nodes[name].UID, w.nodes[name].ResourceVersion = types.UID(fmt.Sprint(w.version)), strconv.Itoa(w.version)
}

// happen lets something happen that may happen at any time.
func (w *world) happen() {
	names := slices.Sorted(maps.Keys(w.nodes))
	kind := rapid.IntRange(0, 7).Draw(w.t, "happens")
	if len(names) == 0 || kind == 0 {
		w.join(fmt.Sprintf("node-%d", rapid.IntRange(1, 9).Draw(w.t, "joins")))
		return
	}
	name := rapid.SampledFrom(names).Draw(w.t, "node")
	switch kind {
	case 1:
		w.change(name, ready(rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}).Draw(w.t, "ready")))
		w.disturbed = w.lists
	case 2, 3:
		if n := w.nodes[name]; !request.IsNeeded(n) {
			w.asked[n.UID]++
			w.change(name, needed)
		}
	case 4:
		delete(w.nodes, name)
		w.disturbed = w.lists // if there are fewer nodes, fewer may be unavailable
	case 5:
		w.agent(name)
	case 6:
		w.arrive()
	case 7:
		w.change(name, func(n *corev1.Node) { n.Spec.Unschedulable = !n.Spec.Unschedulable })
		w.disturbed = w.lists
	}
}

// arrive lets one of the late writes arrive.
func (w *world) arrive() {
	if len(w.late) > 0 {
		i := rapid.IntRange(0, len(w.late)-1).Draw(w.t, "arrives")
		p := w.late[i]
		w.late = slices.Delete(w.late, i, i+1)
		_, _ = w.write(p)
	}
}

// show updates a candidate's cache, or a part of it.
func (w *world) show(c *candidate, isPart bool) {
	isSeen := func() bool { return !isPart || rapid.Bool().Draw(w.t, "seen") }
	for _, object := range c.store.List() {
		if name := object.(*corev1.Node).Name; w.nodes[name] == nil && isSeen() {
			_ = c.store.Delete(object)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if isSeen() {
			_ = c.store.Add(w.nodes[name].DeepCopy())
		}
	}
}

// Grants never exceed the budget, whatever the nodes do, however stale the caches are,
// whoever writes, and whenever the writes arrive; and in the end all requests are served.
func TestBudgetHoldsAndEveryoneIsServed(t *testing.T) {
	rapid.Check(t, testBudgetHoldsAndEveryoneIsServed)
}

func testBudgetHoldsAndEveryoneIsServed(t *rapid.T) {
	most := rapid.SampledFrom([]intstr.IntOrString{
		intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromInt32(3),
		intstr.FromString("0%"), intstr.FromString("20%"), intstr.FromString("50%"), intstr.FromString("100%"),
	}).Draw(t, "budget")
	w := newWorld(t, most)
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		w.join(fmt.Sprintf("node-%d", i+1))
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			w.show(rapid.SampledFrom(w.candidates).Draw(t, "seen by"), true)
		case 1:
			w.happen()
		default:
			if rapid.Bool().Draw(t, "interrupted") {
				w.between = func() {
					for range rapid.IntRange(1, 3).Draw(t, "meanwhile") {
						w.happen()
					}
					if rapid.Bool().Draw(t, "by the other, too") {
						w.sync(w.candidates[1])
					}
				}
			}
			w.sync(w.candidates[0])
			w.between = nil
			if rapid.Bool().Draw(t, "another leads") {
				slices.Reverse(w.candidates)
			}
		}
	}
	w.settle()
}

func (w *world) sync(c *candidate) {
	_, err := c.sync(w.t.Context(), allNodes)
	if err != nil && !errors.Is(err, errLost) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// settle makes all nodes healthy and lets all agents work until nothing more happens.
func (w *world) settle() {
	for len(w.late) > 0 {
		w.arrive()
	}
	isClosed := Budget(w.most, len(w.nodes)) == 0
	for range 20 * (len(w.nodes) + 1) {
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			w.change(name, ready(corev1.ConditionTrue))
			w.change(name, func(n *corev1.Node) { n.Spec.Unschedulable = false })
			w.agent(name)
		}
		w.show(w.candidates[0], false)
		w.sync(w.candidates[0])
	}
	for name, n := range w.nodes {
		switch {
		case request.IsGranted(n) || request.IsNext(n):
			w.t.Fatalf("%s has not finished its reboot", name)
		case isClosed && w.served[n.UID] > 0:
			w.t.Fatalf("%s was rebooted although nothing may be granted", name)
		case !isClosed && (request.IsNeeded(n) || w.served[n.UID] != w.asked[n.UID]):
			w.t.Fatalf("%s asked %d times and was served %d times", name, w.asked[n.UID], w.served[n.UID])
		}
	}
}
