package nodereboot

import (
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
		{"those without a time go first", "1", []*corev1.Node{node("a", with(request.Needed, "2026-07-01T11:00:00Z")), node("b", needed)}, "Choose b", waits{"a": InLine}, 0},
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
			d := Decide(Observed{Now: noon, MaxUnavailable: most, Nodes: tt.nodes})
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
	d := Decide(Observed{Now: noon, MaxUnavailable: intstr.FromInt32(2), Nodes: nodes})
	want := "of 7 nodes at most 2 may be unavailable, and 6 are: a (Granted), b (Granted), c (Granted), d (Granted), e (Granted), and 1 more"
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
		node("b", with(request.Now, ""), func(n *corev1.Node) { n.Spec.Unschedulable, n.Labels = true, map[string]string{"a": "b"} }),
		node("c", with(request.InProgress, "x")), node("d", ready(corev1.ConditionUnknown)), node("e", needed), node("f", next),
	}
	var stripped []*corev1.Node
	for _, n := range full {
		n = n.DeepCopy()
		Strip(n)
		stripped = append(stripped, n)
	}
	names := cmp.Comparer(func(a, b *corev1.Node) bool { return (a == nil) == (b == nil) && (a == nil || a.Name == b.Name) })
	for _, most := range []int32{1, 5} {
		o := Observed{Now: noon, MaxUnavailable: intstr.FromInt32(most), Nodes: full}
		want := Decide(o)
		o.Nodes = stripped
		if diff := cmp.Diff(want, Decide(o), names); diff != "" {
			t.Errorf("decision (-full +stripped):\n%s", diff)
		}
	}
	if stripped[0].Annotations["other"] != "" || stripped[1].Labels != nil {
		t.Error("more is kept than is read")
	}
}

// A node that is deleted while it reboots uses up nothing any more.
func TestDeletedNodeFreesItsSlot(t *testing.T) {
	nodes := []*corev1.Node{node("a", with(request.InProgress, "x")), node("b", needed)}
	o := Observed{Now: noon, MaxUnavailable: intstr.FromInt32(1), Nodes: nodes}
	if d := Decide(o); d.Step != Rest {
		t.Fatalf("%s %s, although a reboots", d.Step, d.Node.Name)
	}
	o.Nodes = nodes[1:]
	if d := Decide(o); d.Step != Choose || d.Node.Name != "b" {
		t.Errorf("%s %v, want b to be chosen", d.Step, d.Node)
	}
}
