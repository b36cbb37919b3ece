package nodereboot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// node makes a node that is Ready, and changes it.
func node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	ready(corev1.ConditionTrue)(n)
	for _, change := range changes {
		change(n)
	}
	return n
}

func ready(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
}

func with(annotation, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, annotation, value) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func labeled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

var (
	needed = with(request.Needed, "")
	next   = with(request.Next, "")
)

func TestDecide(t *testing.T) {
	type waits map[string]string
	ending := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: noon} }
	mute := func(n *corev1.Node) { n.Status.Conditions = nil }
	tests := []struct {
		name        string
		max         string
		nodes       []*corev1.Node
		wantStep    string
		wantWaiting waits
		wantAgain   time.Duration
	}{
		{"nobody asks", "1", []*corev1.Node{node("a"), node("b")}, "", nil, 0},
		{"one asks", "1", []*corev1.Node{node("a"), node("b", needed)}, "Choose b", nil, 0},
		{"the first by name goes first", "2", []*corev1.Node{node("b", needed), node("a", needed)}, "Choose a", waits{"b": InLine}, 0},
		{"no budget", "0", []*corev1.Node{node("a", needed)}, "", waits{"a": BudgetIsZero}, 0},
		{"no percentage", "0%", []*corev1.Node{node("a", needed)}, "", waits{"a": BudgetIsZero}, 0},
		{"another may reboot", "1", []*corev1.Node{node("a", needed), node("b", with(request.Now, ""))}, "", waits{"a": BudgetIsUsedUp}, 0},
		{"another reboots", "1", []*corev1.Node{node("a", needed), node("b", with(request.InProgress, "x"))}, "", waits{"a": BudgetIsUsedUp}, 0},
		{"another is not ready", "1", []*corev1.Node{node("a", needed), node("b", ready(corev1.ConditionFalse))}, "", waits{"a": BudgetIsUsedUp}, 0},
		{"another is silent", "1", []*corev1.Node{node("a", needed), node("b", ready(corev1.ConditionUnknown))}, "", waits{"a": BudgetIsUsedUp}, 0},
		{"another has never said anything", "1", []*corev1.Node{node("a", needed), node("b", mute)}, "", waits{"a": BudgetIsUsedUp}, 0},
		{"a node that is both counts once", "2", []*corev1.Node{node("a", needed), node("b", with(request.Now, ""), ready(corev1.ConditionUnknown))}, "Choose a", nil, 0},
		{"there is room for another", "2", []*corev1.Node{node("a", needed), node("b", with(request.Now, ""))}, "Choose a", nil, 0},
		{"a node that goes away asks for nothing", "1", []*corev1.Node{node("a", needed, ending)}, "", nil, 0},
		{"asked again while it reboots", "2", []*corev1.Node{node("a", needed, with(request.InProgress, "x"))}, "", waits{"a": StillRebooting}, 0},
		{"asked for later", "2", []*corev1.Node{node("a", with(request.Needed, "2026-07-01T12:30:00Z")), node("b", with(request.Needed, "2026-07-01T14:30:00+02:30"))}, "Choose b", waits{"a": NotBefore}, 30 * time.Minute},
		{"a time that has passed is no earlier than none", "1", []*corev1.Node{node("a", with(request.Needed, "2026-07-01T11:00:00Z")), node("b", needed)}, "Choose a", waits{"b": InLine}, 0},
		{"nor is a year before all others", "1", []*corev1.Node{node("a", needed), node("b", with(request.Needed, "0000-01-01T00:00:00Z"))}, "Choose a", waits{"b": InLine}, 0},
		{"who had a turn last goes last", "1", []*corev1.Node{node("a", needed, with(request.Granted, "2026-07-01T11:00:00Z")), node("b", needed, with(request.Granted, "2026-07-01T10:00:00Z")), node("c", needed)}, "Choose c", waits{"a": InLine, "b": InLine}, 0},
		{"a day is no time", "1", []*corev1.Node{node("a", with(request.Needed, "2099-01-01"))}, "", waits{"a": BadTime}, 0},
		{"nor is one without a zone", "1", []*corev1.Node{node("a", with(request.Needed, "2099-01-01T03:00:00"))}, "", waits{"a": BadTime}, 0},
		{"nor is a word", "1", []*corev1.Node{node("a", with(request.Needed, "tomorrow")), node("b", needed)}, "Choose b", waits{"a": BadTime}, 0},
		{"but true is one", "1", []*corev1.Node{node("a", with(request.Needed, "true"))}, "Choose a", nil, 0},
		{"chosen, and nobody knows for when by now", "1", []*corev1.Node{node("a", next, with(request.Needed, "tomorrow"))}, "PassOver a", waits{"a": BadTime}, 0},
		{"another was cordoned", "1", []*corev1.Node{node("a", needed), node("b", cordoned)}, "", waits{"a": BudgetIsUsedUp}, 0},
		{"it was cordoned itself", "1", []*corev1.Node{node("a", needed, cordoned)}, "Choose a", nil, 0},
		{"it is not ready itself", "1", []*corev1.Node{node("a", needed, ready(corev1.ConditionFalse))}, "Choose a", nil, 0},
		{"chosen, and another was cordoned since", "1", []*corev1.Node{node("a", needed, next), node("b", cordoned)}, "PassOver a", waits{"a": BudgetIsUsedUp}, 0},
		{"two are chosen, and there is room for both", "2", []*corev1.Node{node("a", needed, next), node("b", needed, next)}, "PassOver b", waits{"a": InLine, "b": InLine}, 0},
		{"chosen, and counted", "1", []*corev1.Node{node("a", needed, next)}, "Grant a", nil, 0},
		{"who is chosen goes first", "1", []*corev1.Node{node("a", needed), node("b", needed, next)}, "Grant b", waits{"a": BudgetIsUsedUp}, 0},
		{"one after the other", "2", []*corev1.Node{node("a", needed), node("b", needed, next)}, "Grant b", waits{"a": InLine}, 0},
		{"chosen, and another has failed since", "1", []*corev1.Node{node("a", needed, next), node("b", ready(corev1.ConditionFalse))}, "PassOver a", waits{"a": BudgetIsUsedUp}, 0},
		{"two are chosen for one turn", "1", []*corev1.Node{node("a", needed, next), node("b", needed, next)}, "PassOver b", waits{"a": BudgetIsUsedUp, "b": BudgetIsUsedUp}, 0},
		{"chosen, and the budget is none by now", "0", []*corev1.Node{node("a", needed, next)}, "PassOver a", waits{"a": BudgetIsZero}, 0},
		{"chosen, and asks no longer", "1", []*corev1.Node{node("a", next)}, "PassOver a", nil, 0},
		{"chosen, and asks for later by now", "1", []*corev1.Node{node("a", next, with(request.Needed, "2026-07-01T12:30:00Z"))}, "PassOver a", waits{"a": NotBefore}, 30 * time.Minute},
		{"chosen, and reboots already", "1", []*corev1.Node{node("a", needed, next, with(request.Now, ""))}, "PassOver a", waits{"a": StillRebooting}, 0},
		{"chosen, and goes away", "1", []*corev1.Node{node("a", needed, next, ending), node("b", needed)}, "PassOver a", waits{"b": BudgetIsUsedUp}, 0},
		{"half of four, and one is away", "50%", []*corev1.Node{node("a", needed), node("b", ready(corev1.ConditionFalse)), node("c"), node("d")}, "Choose a", nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			most, err := ParseMaxUnavailable(tt.max)
			if err != nil {
				t.Fatal(err)
			}
			d := Decide(heard(Observed{Now: noon, Config: Config{MaxUnavailable: most}, Nodes: tt.nodes}))
			step, waiting := "", waits(nil)
			if d.Step != Rest {
				step = string(d.Step) + " " + d.Node.Name
			}
			for _, w := range d.Waiting {
				if waiting == nil {
					waiting = waits{}
				}
				waiting[w.Node.Name] = w.Reason
				if w.Note == "" {
					t.Errorf("%s is not told why it waits", w.Node.Name)
				}
			}
			if diff := cmp.Diff(tt.wantStep, step); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantWaiting, waiting); diff != "" {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
			if d.Again != tt.wantAgain {
				t.Errorf("again in %s, want %s", d.Again, tt.wantAgain)
			}
		})
	}
}

func TestWhoUsesUpTheBudgetIsNamed(t *testing.T) {
	nodes := []*corev1.Node{node("z", needed)}
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		nodes = append(nodes, node(name, with(request.Now, "")))
	}
	d := Decide(heard(Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(2)}, Nodes: nodes}))
	want := "of 7 nodes at most 2 may be unavailable, and 6 others are: a (Granted), b (Granted), c (Granted), d (Granted), e (Granted), and 1 more"
	if diff := cmp.Diff(want, d.Waiting[0].Note); diff != "" {
		t.Errorf("note (-want +got):\n%s", diff)
	}
}

func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		max   string
		nodes int
		want  int
	}{
		{"0", 10, 0},
		{"0%", 10, 0},
		{"3", 10, 3},
		{"3", 1, 3},
		{"10%", 9, 1},
		{"10%", 10, 1},
		{"10%", 19, 1},
		{"10%", 20, 2},
		{"1%", 3, 1},
		{"100%", 7, 7},
		{"33%", 3, 1},
		{"34%", 3, 1},
		{"67%", 3, 2},
	} {
		most, err := ParseMaxUnavailable(tt.max)
		if err != nil {
			t.Error(err)
		}
		if got := Budget(most, tt.nodes); got != tt.want {
			t.Errorf("%s of %d nodes is %d, want %d", tt.max, tt.nodes, got, tt.want)
		}
	}
	for _, text := range []string{"", "-1", "-1%", "101%", "few", "1.5", "%", "10 %", "99999999999"} {
		if most, err := ParseMaxUnavailable(text); err == nil {
			t.Errorf("%q is taken for %v", text, most)
		}
	}
}

// What is stripped from a cached node changes no decision.
func TestStripKeepsWhatIsRead(t *testing.T) {
	full := []*corev1.Node{
		node("a", with(request.Needed, "2026-07-01T12:30:00Z"), with("other", "x")),
		node("b", with(request.Now, ""), func(n *corev1.Node) { n.Spec.ProviderID = "x" }),
		node("c", with(request.InProgress, "x")), node("d", ready(corev1.ConditionUnknown)), node("e", needed), node("f", next),
		node("g", cordoned), node("h", needed, labeled("pool", "db")), node("i", needed, with(request.Granted, "2026-07-01T11:30:00Z")),
	}
	var stripped []*corev1.Node
	for _, n := range full {
		n = n.DeepCopy()
		Strip(n)
		stripped = append(stripped, n)
	}
	names := cmp.Comparer(func(a, b *corev1.Node) bool { return (a == nil) == (b == nil) && (a == nil || a.Name == b.Name) })
	for _, most := range []int32{1, 5, 9} {
		o := Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(most), Pools: pools(t, "pool=db=0")}, Nodes: full}
		want := Decide(heard(o))
		o.Nodes = stripped
		if diff := cmp.Diff(want, Decide(heard(o)), names); diff != "" {
			t.Errorf("decision (-full +stripped):\n%s", diff)
		}
	}
	if stripped[0].Annotations["other"] != "" || stripped[1].Spec.ProviderID != "" {
		t.Error("more is kept than is read")
	}
}

// A node that is deleted while it reboots uses up nothing any more.
func TestDeletedNodeFreesItsSlot(t *testing.T) {
	nodes := []*corev1.Node{node("a", with(request.InProgress, "x")), node("b", needed)}
	o := Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(1)}, Nodes: nodes}
	if d := Decide(heard(o)); d.Step != Rest {
		t.Fatalf("%s %s, although a reboots", d.Step, d.Node.Name)
	}
	o.Nodes = nodes[1:]
	if d := Decide(heard(o)); d.Step != Choose || d.Node.Name != "b" {
		t.Errorf("%s %v, want b to be chosen", d.Step, d.Node)
	}
}

// heard has all nodes' agents have reported just now.
func heard(o Observed) Observed {
	o.Heard = map[string]time.Time{}
	for _, n := range o.Nodes {
		o.Heard[n.Name] = o.Now
	}
	return o
}

func pools(t *testing.T, texts ...string) (pools []Pool) {
	t.Helper()
	for _, text := range texts {
		p, err := ParsePool(text)
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, p)
	}
	return pools
}

// run takes step after step, and has no agent ever come to an end, until nobody may
// reboot any more. It returns who may.
func run(t *testing.T, o Observed) (granted []string) {
	t.Helper()
	for range 10 * len(o.Nodes) {
		d := Decide(heard(o))
		if d.Step == Rest {
			return granted
		}
		for name, value := range d.Annotations {
			if value == nil {
				delete(d.Node.Annotations, name)
			} else {
				d.Node.Annotations[name] = *value
			}
		}
		if d.Step == Grant {
			granted = append(granted, d.Node.Name)
		}
	}
	t.Fatal("it never comes to rest")
	return nil
}

// A tenth of thirty nodes is three, but not three of the control plane.
func TestOneNodeOfTheControlPlaneAtATime(t *testing.T) {
	var nodes []*corev1.Node
	for i, label := range controlPlane {
		nodes = append(nodes, node(fmt.Sprint("a-control-plane-", i), needed, labeled(label, "")))
	}
	for i := range 27 {
		nodes = append(nodes, node(fmt.Sprintf("worker-%02d", i), needed))
	}
	got := run(t, Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromString("10%")}, Nodes: nodes})
	if diff := cmp.Diff([]string{"a-control-plane-0", "worker-00", "worker-01"}, got); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
}

// A node of the control plane that is back counts as unavailable until its etcd and API
// server have had time to catch up.
func TestTheControlPlaneSettles(t *testing.T) {
	back, waiting := node("a", labeled(controlPlane[0], "")), node("b", needed, labeled(controlPlane[0], ""))
	o := Observed{
		Now: noon, Nodes: []*corev1.Node{back, waiting, node("worker")},
		Config:    Config{MaxUnavailable: intstr.FromInt32(2), ControlPlaneSettle: 5 * time.Minute},
		Available: map[types.UID]time.Time{"a": noon.Add(-4 * time.Minute), "b": noon.Add(-time.Hour)},
	}
	d := Decide(heard(o))
	if d.Step != Rest || d.Again != time.Minute || d.Waiting[0].Note != "of 2 nodes of the control plane at most 1 may be unavailable, and 1 others are: a (Settling)" {
		t.Errorf("after four minutes: step %q, again in %s, %+v", d.Step, d.Again, d.Waiting)
	}
	o.Now = noon.Add(time.Minute)
	if d := Decide(heard(o)); d.Step != Choose || d.Node.Name != "b" {
		t.Errorf("after five minutes: step %q, %+v", d.Step, d.Waiting)
	}
	delete(o.Available, "a")
	if d := Decide(heard(o)); d.Step != Rest {
		t.Errorf("with a node that has just come: step %q", d.Step)
	}
}

func TestPoolsHaveBudgetsOfTheirOwn(t *testing.T) {
	var nodes []*corev1.Node
	for i := range 4 {
		nodes = append(nodes, node(fmt.Sprint("db-", i), needed, labeled("pool", "db"), labeled("zone", "a")),
			node(fmt.Sprint("web-", i), needed, labeled("pool", "web"), labeled("zone", []string{"a", "b"}[i%2])))
	}
	for _, tt := range []struct {
		pools []string
		want  []string
	}{
		{nil, []string{"db-0", "db-1", "db-2", "db-3", "web-0", "web-1"}},
		{[]string{"pool=db=1"}, []string{"db-0", "web-0", "web-1", "web-2", "web-3"}},
		{[]string{"pool=db=50%", "pool in (web)=1"}, []string{"db-0", "db-1", "web-0"}},
		{[]string{"pool=db=0", "zone=a=1"}, []string{"web-0", "web-1", "web-3"}},
	} {
		o := Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(6), Pools: pools(t, tt.pools...)}}
		for _, n := range nodes {
			o.Nodes = append(o.Nodes, n.DeepCopy())
		}
		got := run(t, o)
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q: granted (-want +got):\n%s", tt.pools, diff)
		}
	}
	for _, text := range []string{"", "=1", "pool=db", "pool=db=few", "pool=db=-1", "pool in (=1", "1"} {
		if p, err := ParsePool(text); err == nil {
			t.Errorf("%q is taken for %v", text, p)
		}
	}
}

// However many leaders there have been, the nodes know when the last grant was.
func TestGrantsAreApart(t *testing.T) {
	o := Observed{
		Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(3), MinInterval: 10 * time.Minute},
		Nodes: []*corev1.Node{node("a", needed), node("b", needed), node("c", with(request.Granted, "2026-07-01T11:53:00Z"))},
	}
	if d := Decide(heard(o)); d.Step != Rest || d.Again != 3*time.Minute || d.Waiting[0].Reason != TooSoon {
		t.Errorf("seven minutes after: step %q, again in %s, %+v", d.Step, d.Again, d.Waiting)
	}
	o.Nodes = o.Nodes[:2] // the other one was deleted
	o.LastGrant = noon.Add(-9 * time.Minute)
	if d := Decide(heard(o)); d.Step != Rest || d.Again != time.Minute {
		t.Errorf("nine minutes after: step %q, again in %s", d.Step, d.Again)
	}
	o.LastGrant = noon.Add(-10 * time.Minute)
	if diff := cmp.Diff([]string{"a"}, run(t, o)); diff != "" {
		t.Errorf("granted ten minutes after (-want +got):\n%s", diff)
	}
}

// A node that asks again and again does not keep the others from their turns.
func TestTurnsAreFair(t *testing.T) {
	nodes := []*corev1.Node{node("a"), node("b"), node("c")}
	var granted []string
	for i := range 6 {
		for _, n := range nodes { // all are back, and ask again
			delete(n.Annotations, request.Now)
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, request.Needed, "2026-07-01T11:00:00Z")
		}
		granted = append(granted, run(t, Observed{Now: noon.Add(time.Duration(i) * time.Minute), Config: Config{MaxUnavailable: intstr.FromInt32(1)}, Nodes: nodes})...)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "a", "b", "c"}, granted); diff != "" {
		t.Errorf("granted (-want +got):\n%s", diff)
	}
}

// A reboot is granted to no node whose agent does not run, as it would use up the budget
// and never happen. The others have their turns.
func TestSilentAgentsAreGrantedNothing(t *testing.T) {
	o := heard(Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(1)}, Nodes: []*corev1.Node{node("a", needed), node("b", needed), node("c", needed)}})
	delete(o.Heard, "a")
	o.Heard["b"] = noon.Add(-request.ReportedWithin - time.Second)
	o.Heard["c"] = noon.Add(-request.ReportedWithin)
	d := Decide(o)
	if d.Step != Choose || d.Node.Name != "c" || len(d.Waiting) != 2 || d.Waiting[0].Reason != AgentSilent || d.Waiting[1].Note != "its agent has not reported since 2026-07-01T11:57:59Z" {
		t.Errorf("step %q, %+v", d.Step, d.Waiting)
	}
	o.Nodes, o.Heard = []*corev1.Node{node("c", needed, next)}, nil
	if d := Decide(o); d.Step != PassOver {
		t.Errorf("a node that is chosen, and whose agent has ended: step %q", d.Step)
	}
}
