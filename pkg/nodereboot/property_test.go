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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

// world is a cluster as the API server has it, which knows of resource versions,
// and which a controller sees by its cache, a live list, and a patch.
type world struct {
	t       *rapid.T
	max     intstr.IntOrString
	version int
	born    int
	nodes   map[string]*corev1.Node

	leader    int // the others are fenced: nothing that they write arrives
	term      int // a process that has led once does not again: it ends, and so do its syncs
	candidate []*candidate
	between   func() // what happens after the next live list and before the patch

	asked  map[types.UID]int // requests by node
	served map[types.UID]int
}

// candidate is one process of the controller, with a cache of its own.
type candidate struct {
	*Controller
	store  cache.Store
	number int
	term   int // when its sync began
	listed struct {
		budget, unavailable int
		grantsSince         int
		isCalm              bool // since the list nobody has become unavailable but by a grant
	}
}

var errFenced = errors.New("fenced")

func newWorld(t *rapid.T, max intstr.IntOrString) *world {
	w := &world{
		t: t, max: max, nodes: map[string]*corev1.Node{},
		asked: map[types.UID]int{}, served: map[types.UID]int{},
	}
	for i := range 2 {
		w.candidate = append(w.candidate, w.newCandidate(i))
	}
	return w
}

func (w *world) newCandidate(number int) *candidate {
	kube := &fake.Clientset{}
	nodes := kubeinformers.NewSharedInformerFactory(kube, 0).Core().V1().Nodes()
	controller, err := New(Config{MaxUnavailable: w.max}, kube, nodes, &events.FakeRecorder{}, clocktesting.NewFakeClock(noon))
	if err != nil {
		w.t.Fatal(err)
	}
	c := &candidate{Controller: controller, store: nodes.Informer().GetStore(), number: number}
	kube.AddReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &corev1.NodeList{}
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			list.Items = append(list.Items, *w.nodes[name].DeepCopy())
		}
		c.listed.budget, c.listed.unavailable, c.listed.grantsSince, c.listed.isCalm = Budget(w.max, len(w.nodes)), w.unavailable(), 0, true
		if between := w.between; between != nil {
			w.between = nil
			between()
		}
		return true, list, nil
	})
	kube.AddReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		granted, err := w.grant(number, patch.GetName(), patch.GetPatch())
		return true, granted, err
	})
	return c
}

// grant is what the API server does with the controller's patch.
func (w *world) grant(by int, name string, patch []byte) (*corev1.Node, error) {
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		w.t.Fatal(err)
	}
	node := w.nodes[name]
	switch {
	case by != w.leader || w.candidate[by].term != w.term:
		return nil, errFenced
	case node == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	case p.Metadata.UID != node.UID || p.Metadata.ResourceVersion != node.ResourceVersion:
		return nil, apierrors.NewConflict(corev1.Resource("nodes"), name, errors.New("changed"))
	case p.Metadata.Annotations[request.Needed] != nil || p.Metadata.Annotations[request.Now] == nil || len(p.Metadata.Annotations) != 2:
		w.t.Fatalf("patch %s does not turn the request into a permission", patch)
	case !request.IsNeeded(node) || request.IsGranted(node):
		w.t.Fatalf("node %s was granted what it does not ask for, or once more", name)
	}
	listed := &w.candidate[by].listed
	if listed.unavailable >= listed.budget || listed.grantsSince > 0 {
		w.t.Fatalf("granted by a list with %d of %d unavailable, after which %d were granted", listed.unavailable, listed.budget, listed.grantsSince)
	}
	w.change(name, func(n *corev1.Node) {
		delete(n.Annotations, request.Needed)
		n.Annotations[request.Now] = *p.Metadata.Annotations[request.Now]
	})
	for _, c := range w.candidate {
		c.listed.grantsSince++
	}
	if n := w.unavailable(); listed.isCalm && n > listed.budget {
		w.t.Fatalf("%d nodes are unavailable after a grant, of %d that may be", n, listed.budget)
	}
	return w.nodes[name].DeepCopy(), nil
}

// unavailable counts in words of its own.
func (w *world) unavailable() (n int) {
	for _, node := range w.nodes {
		_, now := node.Annotations[request.Now]
		_, isRebooting := node.Annotations[request.InProgress]
		if now || isRebooting || len(node.Status.Conditions) == 0 || node.Status.Conditions[0].Status != corev1.ConditionTrue {
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

// disturb notes that the list which somebody decides by is older than a failure.
func (w *world) disturb() {
	for _, c := range w.candidate {
		c.listed.isCalm = false
	}
}

// agent does the next step of the agent of a node.
func (w *world) agent(name string) {
	w.change(name, func(n *corev1.Node) {
		if _, isRebooting := n.Annotations[request.InProgress]; isRebooting {
			delete(n.Annotations, request.InProgress)
			w.served[n.UID]++
		} else if _, now := n.Annotations[request.Now]; now {
			delete(n.Annotations, request.Now)
			n.Annotations[request.InProgress] = "boot"
		}
	})
}

// happen is anything that may happen at any time.
func (w *world) happen() {
	names := slices.Sorted(maps.Keys(w.nodes))
	kind := rapid.IntRange(0, 6).Draw(w.t, "happens")
	if len(names) == 0 || kind == 0 {
		w.born++
		name := fmt.Sprintf("node-%d", w.born)
		w.nodes[name] = node(name, func(n *corev1.Node) { n.Annotations, n.ResourceVersion = map[string]string{}, "0" })
		w.nodes[name].UID = types.UID(fmt.Sprint(w.born))
		return
	}
	name := rapid.SampledFrom(names).Draw(w.t, "node")
	switch kind {
	case 1:
		w.change(name, ready(rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}).Draw(w.t, "ready")))
		w.disturb()
	case 2, 3:
		if n := w.nodes[name]; !request.IsNeeded(n) {
			w.asked[n.UID]++
			w.change(name, needed)
		}
	case 4:
		delete(w.nodes, name)
		w.disturb() // of fewer nodes fewer may be unavailable
	case 5:
		w.agent(name)
	case 6:
		w.leader, w.term = 1-w.leader, w.term+1
	}
}

// show brings a candidate's cache up to date, or only a part of it.
func (w *world) show(c *candidate, isPart bool) {
	for _, object := range c.store.List() {
		if name := object.(*corev1.Node).Name; w.nodes[name] == nil && !(isPart && rapid.Bool().Draw(w.t, "missed")) {
			_ = c.store.Delete(object)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if !(isPart && rapid.Bool().Draw(w.t, "missed")) {
			_ = c.store.Add(w.nodes[name].DeepCopy())
		}
	}
}

// The budget is never exceeded by what is granted, whatever the nodes do, whoever
// leads and however old the caches are; and in the end all requests are served.
func TestBudgetHoldsAndEverybodyIsServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := rapid.SampledFrom([]intstr.IntOrString{
			intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromInt32(3),
			intstr.FromString("0%"), intstr.FromString("20%"), intstr.FromString("50%"), intstr.FromString("100%"),
		}).Draw(t, "budget")
		w := newWorld(t, max)
		for range rapid.IntRange(1, 6).Draw(t, "nodes") {
			w.born++
			name := fmt.Sprintf("node-%d", w.born)
			w.nodes[name] = node(name, func(n *corev1.Node) { n.Annotations, n.UID = map[string]string{}, types.UID(fmt.Sprint(w.born)) })
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				w.show(rapid.SampledFrom(w.candidate).Draw(t, "seen by"), true)
			case 1:
				w.happen()
			default:
				c := rapid.SampledFrom(w.candidate).Draw(t, "who")
				if rapid.Bool().Draw(t, "interrupted") {
					w.between = func() {
						for range rapid.IntRange(1, 3).Draw(t, "meanwhile") {
							w.happen()
						}
						if other := w.candidate[1-c.number]; rapid.Bool().Draw(t, "by the other, too") {
							w.sync(other)
						}
					}
				}
				w.sync(c)
				w.between = nil
			}
		}
		w.settle()
	})
}

func (w *world) sync(c *candidate) {
	c.term = w.term
	_, err := c.sync(w.t.Context(), all)
	if err != nil && !errors.Is(err, errFenced) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// settle lets all nodes be well and all agents work until nothing more happens.
func (w *world) settle() {
	leader := w.candidate[w.leader]
	isClosed := Budget(w.max, len(w.nodes)) == 0
	for range 6 * (len(w.nodes) + 1) {
		for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
			w.change(name, ready(corev1.ConditionTrue))
			w.agent(name)
		}
		w.show(leader, false)
		w.sync(leader)
	}
	for name, n := range w.nodes {
		switch {
		case request.IsGranted(n):
			w.t.Fatalf("%s has not done with its reboot", name)
		case isClosed && w.served[n.UID] > 0:
			w.t.Fatalf("%s was rebooted although nothing may be granted", name)
		case !isClosed && (request.IsNeeded(n) || w.served[n.UID] != w.asked[n.UID]):
			w.t.Fatalf("%s has asked %d times and was served %d times", name, w.asked[n.UID], w.served[n.UID])
		}
	}
}

// A node that is deleted while it reboots uses up nothing any more.
func TestDeletedNodeFreesItsSlot(t *testing.T) {
	nodes := []*corev1.Node{node("a", with(request.InProgress, "x")), node("b", needed)}
	o := Observed{Now: noon, MaxUnavailable: intstr.FromInt32(1), Nodes: nodes}
	if d := Decide(o); d.Grant != nil {
		t.Fatalf("granted %s, although a reboots", d.Grant.Name)
	}
	o.Nodes = nodes[1:]
	if d := Decide(o); d.Grant == nil || d.Grant.Name != "b" {
		t.Errorf("granted %v, want b", d.Grant)
	}
}

// Each node is told why it waits, once for each reason.
func TestWaitingIsToldOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	kube := fake.NewClientset(node("a", needed), node("b", with(request.Now, "")))
	nodes := kubeinformers.NewSharedInformerFactory(kube, 0).Core().V1().Nodes()
	c, err := New(Config{MaxUnavailable: intstr.FromInt32(1)}, kube, nodes, recorder, clocktesting.NewFakeClock(noon))
	if err != nil {
		t.Fatal(err)
	}
	show := func(all ...*corev1.Node) {
		for _, n := range all {
			if err := nodes.Informer().GetStore().Add(n); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.sync(t.Context(), cache.ObjectName{Name: "nodes"}); err != nil {
			t.Fatal(err)
		}
	}
	say := func(want ...string) {
		t.Helper()
		for _, event := range want {
			select {
			case got := <-recorder.Events:
				if got != event {
					t.Errorf("told %q, want %q", got, event)
				}
			default:
				t.Errorf("not told: %q", event)
			}
		}
		if len(recorder.Events) > 0 {
			t.Errorf("told more: %q", <-recorder.Events)
		}
	}
	show(node("a", needed), node("b", with(request.Now, "")))
	say("Normal RebootWaiting Waits for its reboot (BudgetIsUsedUp): of 2 nodes at most 1 may be unavailable, and 1 are: b (Granted)")
	show(node("b", with(request.InProgress, "x")))
	say()
	show(node("a", with(request.Needed, noon.Add(time.Hour).Format(time.RFC3339))))
	say("Normal RebootWaiting Waits for its reboot (NotBefore): it was asked for 2026-07-01T13:00:00Z or later")

	live := node("b")
	if _, err := kube.CoreV1().Nodes().Update(t.Context(), live, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	show(node("a", needed), live)
	say("Normal RebootGranted May reboot now: 1 of 2 nodes may be unavailable, and 0 were")
	granted, err := kube.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || granted.Annotations[request.Now] != "2026-07-01T12:00:00Z" || request.IsNeeded(granted) {
		t.Errorf("annotations %v, error %v", granted.Annotations, err)
	}
}
