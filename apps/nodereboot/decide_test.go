package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// node returns a node that is Ready, after some changes.
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

// The files in testdata/decide are tables of what is observed and what is decided. Their
// first file explains the words. After a deliberate change, run
//
//	go test ./apps/nodereboot -run TestDecide -rewrite
//
// and review what has changed.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			o := observe(t, d)
			switch d.Cmd {
			case "decide":
				return describe(Decide(o))
			case "run":
				return run(t, o)
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			}
		})
	})
}

// observe reads what is observed from a test's input: flags, facts and nodes, each on a
// line of its own.
func observe(t *testing.T, d *datadriven.TestData) Observed {
	t.Helper()
	o := Observed{
		Now:            noon,
		AvailableSince: map[types.UID]time.Time{},
		LastReport:     map[string]time.Time{},
		Refusals:       map[types.UID]Refusal{},
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	addFlags(flags, &o.Config)
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		if name, isFlag := strings.CutPrefix(line, "-"); isFlag {
			name, value, _ := strings.Cut(name, "=")
			if err := flags.Set(name, value); err != nil {
				d.Fatalf(t, "%q: %v", line, err)
			}
			continue
		}
		name, args, err := datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		switch name {
		case "time:":
			o.Now = noon.Add(duration(t, d, args[0].Key))
		case "last-grant:":
			o.LastGrant = noon.Add(duration(t, d, args[0].Key))
		case "alerts:":
			o.Hold = Hold{Until: noon.Add(time.Minute), Reason: args[0].Key, Note: "as Prometheus says"}
		case "blocking-pod:":
			o.Hold = Hold{Until: noon.Add(time.Minute), Pods: map[string]string{args[1].Key: args[0].Key}}
		default:
			o.Nodes = append(o.Nodes, parseNode(t, d, &o, name, args))
		}
	}
	return o
}

// parseNode reads a node, and what is known about it, from a line of a test's input.
func parseNode(t *testing.T, d *datadriven.TestData, o *Observed, name string, args []datadriven.CmdArg) *corev1.Node {
	t.Helper()
	n := node(name)
	o.LastReport[name], o.AvailableSince[n.UID] = o.Now, noon.Add(-24*time.Hour)
	at := func(value string) string {
		if strings.HasPrefix(value, "+") || strings.HasPrefix(value, "-") {
			return noon.Add(duration(t, d, value)).Format(time.RFC3339)
		}
		return value
	}
	words := map[string]func(value string){
		"needed":        func(value string) { with(request.Needed, at(value))(n) },
		"chosen":        func(string) { next(n) },
		"granted":       func(value string) { with(request.Now, at(value))(n) },
		"rebooting":     func(string) { with(request.InProgress, "x")(n) },
		"failed":        func(string) { with(request.Failed, "x")(n) },
		"last-granted":  func(value string) { with(request.Granted, at(value))(n) },
		"not-ready":     func(string) { ready(corev1.ConditionFalse)(n) },
		"unknown":       func(string) { ready(corev1.ConditionUnknown)(n) },
		"no-conditions": func(string) { n.Status.Conditions = nil },
		"cordoned":      func(string) { cordoned(n) },
		"deleting":      func(string) { n.DeletionTimestamp = &metav1.Time{Time: noon} },
		"control-plane": func(string) { labeled(controlPlane[0], "")(n) },
		"new":           func(string) { delete(o.AvailableSince, n.UID) },
		"available":     func(value string) { o.AvailableSince[n.UID] = noon.Add(duration(t, d, value)) },
		"no-agent":      func(string) { delete(o.LastReport, name) },
		"reported":      func(value string) { o.LastReport[name] = noon.Add(duration(t, d, value)) },
		"refused": func(step string) {
			o.Refusals[n.UID] = Refusal{Step: Step(step), Note: "a policy denies it", Until: noon.Add(refusedFor), Times: 1}
		},
		"refused-again": func(step string) {
			o.Refusals[n.UID] = Refusal{Step: Step(step), Note: "a policy denies it", Until: noon, Times: 2}
		},
		"label": func(value string) {
			key, value, _ := strings.Cut(value, "=")
			labeled(key, value)(n)
		},
	}
	for _, arg := range args {
		word, isKnown := words[arg.Key]
		if !isKnown {
			d.Fatalf(t, "unknown word %q", arg.Key)
		}
		word(strings.Join(arg.Vals, ", "))
	}
	return n
}

func duration(t *testing.T, d *datadriven.TestData, text string) time.Duration {
	t.Helper()
	parsed, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return parsed
}

// describe returns a decision in words.
func describe(d Decision) string {
	lines := []string{"Rest"}
	if d.Step != Rest {
		lines[0] = string(d.Step) + " " + d.Node.Name
	}
	if d.RequeueAfter > 0 {
		lines[0] += ", and decide again after " + d.RequeueAfter.String()
	}
	for _, w := range d.Waiting {
		lines = append(lines, fmt.Sprintf("%s waits (%s): %s", w.Node.Name, w.Reason, w.Note))
	}
	return strings.Join(lines, "\n")
}

// run takes step after step until there is none, while no agent ever finishes. It returns
// the steps and, in the end, who waits.
func run(t *testing.T, o Observed) string {
	t.Helper()
	var steps []string
	for range 10 * (len(o.Nodes) + 1) {
		d := Decide(o)
		if d.Step == Rest {
			return strings.Join(append(steps, describe(d)), "\n")
		}
		steps = append(steps, string(d.Step)+" "+d.Node.Name)
		carryOut(d)
	}
	t.Fatal("there is always another step")
	return ""
}

// carryOut writes the decision's annotations to its node.
func carryOut(d Decision) {
	for name, value := range d.Annotations {
		if value == nil {
			delete(d.Node.Annotations, name)
		} else {
			d.Node.Annotations[name] = *value
		}
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
			t.Errorf("%q was parsed as %v", text, most)
		}
	}
}

// Decisions are the same for a node and for what the cache keeps of it.
func TestStripKeepsWhatIsRead(t *testing.T) {
	full := []*corev1.Node{
		node("a", with(request.Needed, "2026-07-01T12:30:00Z"), with("other", "x")),
		node("b", with(request.Now, ""), func(n *corev1.Node) { n.Spec.ProviderID = "x" }),
		node("c", with(request.InProgress, "x")), node("d", ready(corev1.ConditionUnknown)), node("e", needed), node("f", next),
		node("g", cordoned), node("h", needed, labeled("pool", "db")), node("i", needed, with(request.Granted, "2026-07-01T11:30:00Z")),
		node("j", with(request.Failed, "x")),
	}
	var stripped []*corev1.Node
	for _, n := range full {
		n = n.DeepCopy()
		strip(n)
		stripped = append(stripped, n)
	}
	names := cmp.Comparer(func(a, b *corev1.Node) bool { return (a == nil) == (b == nil) && (a == nil || a.Name == b.Name) })
	for _, most := range []int32{1, 5, 9} {
		o := Observed{Now: noon, Config: Config{MaxUnavailable: intstr.FromInt32(most), Pools: pools(t, "pool=db=0")}, Nodes: full}
		want := Decide(reporting(o))
		o.Nodes = stripped
		if diff := cmp.Diff(want, Decide(reporting(o)), names); diff != "" {
			t.Errorf("decision (-full +stripped):\n%s", diff)
		}
	}
	if stripped[0].Annotations["other"] != "" || stripped[1].Spec.ProviderID != "" {
		t.Error("the cache keeps more than is read")
	}
}

// reporting returns o with reports of all nodes' agents from just now.
func reporting(o Observed) Observed {
	o.LastReport = map[string]time.Time{}
	for _, n := range o.Nodes {
		o.LastReport[n.Name] = o.Now
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

func TestParsePoolErrors(t *testing.T) {
	for _, text := range []string{"", "=1", "pool=db", "pool=db=few", "pool=db=-1", "pool in (=1", "1", "pool==1", "pool in (a,)=1"} {
		if p, err := ParsePool(text); err == nil {
			t.Errorf("%q was parsed as %v", text, p)
		}
	}
}
