package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

// node returns a node that is Ready, whose agent has written its record, after some changes.
func node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	ready(corev1.ConditionTrue)(n)
	with(request.Agent, `{"bootID":"boot"}`)(n)
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

// grant makes this the node's grant, and recorded what its agent says.
func grant(g request.Grant) func(*corev1.Node) { return with(request.Granted, *request.Encode(g)) }

func recorded(r request.Record) func(*corev1.Node) { return with(request.Agent, *request.Encode(r)) }

func labeled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, key, value) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

var asked = with(request.Needed, "")

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
	o := Observed{Now: noon, Refusals: map[types.UID]Refusal{}}
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
			o.Now = at(t, d, args[0].Key)
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
func parseNode(t *testing.T, d *datadriven.TestData, o *Observed, name string, args []datadriven.CmdArg) request.Node {
	t.Helper()
	n, g, r := node(name), request.Grant{ID: 1, BootID: "boot", Chosen: noon}, request.Record{BootID: "boot"}
	hasGrant, hasRecord := false, true
	words := map[string]func(value string){
		"needed": func(value string) {
			if strings.HasPrefix(value, "+") || strings.HasPrefix(value, "-") {
				value = at(t, d, value).Format(time.RFC3339)
			}
			with(request.Needed, value)(n)
		},
		"sentinel": func(string) { r.Sentinel = noon.Add(-time.Hour) },
		"chosen":   func(value string) { hasGrant, g.Chosen = true, at(t, d, value) },
		"answered": func(string) { r.ID = 1 },
		"blocked":  func(string) { r.ID, r.Blocked = 1, "the Pod default/bare has no controller" },
		"granted": func(value string) {
			hasGrant, r.ID, g.Until = true, 1, at(t, d, value)
			g.LastGranted = g.Until.Add(-request.GrantFor)
		},
		"rebooting": func(string) { hasGrant, r.ID, r.Work = true, 1, &request.Work{Since: noon} },
		"done":      func(string) { r.ID, r.IsDone = 1, true },
		"over":      func(string) { hasGrant, g.IsOver = true, true },
		"unanswered": func(value string) {
			times, _ := strconv.ParseUint(value, 10, 0)
			g.Unanswered = uint(times)
		},
		"last-granted": func(value string) { hasGrant, g.IsOver, r.ID, g.LastGranted = true, true, 1, at(t, d, value) },
		"finished":     func(value string) { r.Finished = at(t, d, value) },
		"drain-failed": func(value string) { r.NotBefore, r.Why = at(t, d, value), "the node could not be drained" },
		"failed": func(string) {
			r.Failed = &request.Failure{At: noon, Sentinel: r.Sentinel, Why: "the system has not gone down"}
		},
		"unable":           func(string) { r.Unable = "there is no reboot command" },
		"other-boot":       func(string) { r.BootID = "another" },
		"no-agent":         func(string) { hasRecord = false },
		"unreadable":       func(annotation string) { with("controller.nicoleh.io/"+annotation, "{")(n) },
		"not-ready":        func(string) { ready(corev1.ConditionFalse)(n) },
		"unknown":          func(string) { ready(corev1.ConditionUnknown)(n) },
		"no-conditions":    func(string) { n.Status.Conditions = nil },
		"cordoned":         func(string) { cordoned(n) },
		"deleting":         func(string) { n.DeletionTimestamp = &metav1.Time{Time: noon} },
		"control-plane":    func(string) { labeled(controlPlane[0], "")(n) },
		"ready-since":      func(value string) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at(t, d, value)) },
		"refused":          func(action string) { o.Refusals[n.UID] = refusal(noon.Add(refusedFor), action) },
		"refused-long-ago": func(action string) { o.Refusals[n.UID] = refusal(noon, action) },
		"label": func(value string) {
			key, value, _ := strings.Cut(value, "=")
			labeled(key, value)(n)
		},
	}
	delete(n.Annotations, request.Agent)
	for _, arg := range args {
		word, isKnown := words[arg.Key]
		if !isKnown {
			d.Fatalf(t, "unknown word %q", arg.Key)
		}
		word(strings.Join(arg.Vals, ", "))
	}
	for annotation, value := range map[string]*string{request.Granted: request.Encode(g), request.Agent: request.Encode(r)} {
		_, isThere := n.Annotations[annotation]
		if !isThere && (annotation == request.Granted && hasGrant || annotation == request.Agent && hasRecord) {
			with(annotation, *value)(n)
		}
	}
	with("other", "x")(n)
	if strip(n); n.Annotations["other"] != "" { // as the cache does
		t.Error("the cache keeps more than is read")
	}
	return request.Read(n)
}

// at reads a time, which is relative to noon unless it has a date.
func at(t *testing.T, d *datadriven.TestData, text string) time.Time {
	t.Helper()
	if text == "" {
		return noon
	}
	if at, isTime := request.Time(text); isTime {
		return at
	}
	after, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return noon.Add(after)
}

// describe returns a decision in words.
func describe(d Decision) string {
	lines := []string{steps(d)}
	if d.RequeueAfter != 0 {
		lines[0] += ", and decide again after " + d.RequeueAfter.String()
	}
	for _, w := range d.Waiting {
		lines = append(lines, fmt.Sprintf("%s waits (%s): %s", w.Node.Name, w.Reason, w.Note))
	}
	return strings.Join(lines, "\n")
}

// steps returns the steps of a decision in words.
func steps(d Decision) string {
	var words []string
	for _, s := range d.Steps {
		step := fmt.Sprint(s.Action, " ", s.Node.Name)
		if s.Grant.Unanswered > 0 {
			step += fmt.Sprintf(" (unanswered: %d)", s.Grant.Unanswered)
		}
		if !s.Grant.Closes.IsZero() {
			step += fmt.Sprintf(" until %s (the window closes at %s)", s.Grant.Until.Format(time.TimeOnly), s.Grant.Closes.Format(time.TimeOnly))
		}
		words = append(words, step)
	}
	if len(words) == 0 {
		return "Rest"
	}
	return strings.Join(words, ", ")
}

// run takes step after step until there is none, while each agent answers and none ever begins. It returns
// the steps and, in the end, who waits.
func run(t *testing.T, o Observed) string {
	t.Helper()
	var lines []string
	for range 10 * (len(o.Nodes) + 1) {
		d := Decide(o)
		if len(d.Steps) == 0 {
			return strings.Join(append(lines, describe(d)), "\n")
		}
		lines = append(lines, steps(d))
		for _, step := range d.Steps {
			for i, n := range o.Nodes {
				if n.Name == step.Node.Name {
					o.Nodes[i] = carriedOut(step)
				}
			}
		}
	}
	t.Fatal("there is always another step")
	return ""
}

// carriedOut returns the node after a step, and after its agent has answered.
func carriedOut(step Step) request.Node {
	n := step.Node.DeepCopy()
	grant(step.Grant)(n)
	if answer := *step.Node.Record; answer.ID != step.Grant.ID {
		answer.ID, answer.IsDone = step.Grant.ID, false
		recorded(answer)(n)
	}
	return request.Read(n)
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
	for _, text := range []string{"", "=1", "pool=db", "pool=db=few", "pool=db=-1", "pool in (=1", "1", "pool==1", "pool in (a,)=1"} {
		if p, err := ParsePool(text); err == nil {
			t.Errorf("%q was parsed as %v", text, p)
		}
	}
}

// refusal returns that the API server refused to write a node, twice.
func refusal(until time.Time, action string) Refusal {
	return Refusal{Action: Action(action), Note: "a policy denies it", Until: until, Times: 2}
}
