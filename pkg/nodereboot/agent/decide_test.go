package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"nicoleh.io/k8s-controller/pkg/nodereboot/request"
)

var (
	noon   = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	limits = Limits{Drain: 10 * time.Minute, Reboot: 5 * time.Minute, RetryAfter: time.Hour}
)

func node(annotations map[string]string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Annotations = "node-1", annotations
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func notReady(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }

func kubeletOf(boot string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.BootID = boot }
}

// The files in testdata/decide are tables of what is observed and what is decided. Their
// first file explains the words. After a deliberate change, run
//
//	go test ./pkg/nodereboot/agent -run TestDecide -rewrite
//
// and review what has changed.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd != "decide" {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			o := observe(t, d)
			before := o.Node.DeepCopy()
			decision, err := Decide(o)
			if diff := cmp.Diff(before, o.Node); diff != "" {
				d.Fatalf(t, "the Node was changed:\n%s", diff)
			}
			if err != nil {
				if decision.Step != Rest {
					d.Fatalf(t, "step %s, although there is an error", decision.Step)
				}
				text, _, _ := strings.Cut(err.Error(), ": ") // the rest is encoding/json's
				return "error: " + text
			}
			return describe(t, decision)
		})
	})
}

// observe reads what is observed from a test's input, one object in each line.
func observe(t *testing.T, d *datadriven.TestData) Observed {
	t.Helper()
	o := Observed{Now: noon, Node: node(nil), BootID: "old", Limits: limits}
	for line := range strings.Lines(d.Input) {
		object, args, err := datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		record, failure := Record{BootID: "old"}, Failure{BootID: "old", At: noon}
		reason := request.Reason{BootID: "old", At: noon.Add(-time.Hour)}
		for _, arg := range args {
			value := strings.Join(arg.Vals, ", ")
			switch object + " " + arg.Key {
			case "agent unable":
				o.Unable = true
			case "agent doubtful":
				o.IsDoubtful = true
			case "agent drained":
				o.Drained = true
			case "host boot":
				o.BootID = value
			case "host sentinel":
				o.Sentinel = noon.Add(-time.Hour)
				if value != "" {
					o.Sentinel = parseTime(t, d, value)
				}
			case "node needed":
				o.Node.Annotations[request.Needed] = ""
				switch value {
				case "":
				case "false":
					o.Node.Annotations[request.Needed] = value
				default:
					o.Node.Annotations[request.Needed] = parseTime(t, d, value).Format(time.RFC3339)
				}
			case "node granted":
				o.Node.Annotations[request.Now] = value
				if at, err := time.ParseDuration(value); err == nil {
					o.Node.Annotations[request.Now] = noon.Add(at).Format(time.RFC3339)
				}
			case "reason of":
				reason.BootID = value
			case "reason at":
				reason.At = parseTime(t, d, value)
			case "failure of":
				failure.BootID = value
			case "failure sentinel":
				failure.Sentinel = parseTime(t, d, value)
			case "node cordoned":
				cordoned(o.Node)
			case "node not-ready":
				notReady(o.Node)
			case "node kubelet":
				kubeletOf(value)(o.Node)
			case "record since":
				record.Since = parseTime(t, d, value)
			case "record rebooted":
				record.Rebooted = ptr.To(parseTime(t, d, value))
			case "record cordoned":
				record.Cordoned = true
			default:
				if !strings.HasPrefix(object, "raw-") {
					d.Fatalf(t, "unknown word %q in %q", arg.Key, line)
				}
			}
		}
		switch object {
		case "record":
			o.Node.Annotations[request.InProgress] = *encode(record)
		case "raw-record":
			o.Node.Annotations[request.InProgress] = strings.TrimSpace(strings.TrimPrefix(line, object))
		case "reason":
			o.Node.Annotations[request.Since] = *encode(reason)
		case "raw-reason":
			o.Node.Annotations[request.Since] = strings.TrimSpace(strings.TrimPrefix(line, object))
		case "failure":
			o.Node.Annotations[request.Failed] = *encode(failure)
		case "raw-failure":
			o.Node.Annotations[request.Failed] = strings.TrimSpace(strings.TrimPrefix(line, object))
		}
	}
	return o
}

func parseTime(t *testing.T, d *datadriven.TestData, text string) time.Time {
	t.Helper()
	after, err := time.ParseDuration(text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return noon.Add(after)
}

// describe returns a decision in words.
func describe(t *testing.T, d Decision) string {
	t.Helper()
	lines := []string{string(d.Step)}
	if d.WaitsFor != "" {
		lines[0] += ", waiting for " + d.WaitsFor
	}
	if d.RequeueAfter > 0 {
		lines[0] += ", for up to " + d.RequeueAfter.String()
	}
	if d.Unschedulable != nil {
		lines = append(lines, map[bool]string{true: "cordon", false: "uncordon"}[*d.Unschedulable])
	}
	for _, name := range []string{request.InProgress, request.Failed, request.Needed, request.Since, request.Now} {
		value, isWritten := d.Annotations[name]
		switch short := strings.TrimPrefix(name, "controller.nicoleh.io/"); {
		case !isWritten:
		case value == nil:
			lines = append(lines, "remove "+short)
		case name == request.InProgress:
			lines = append(lines, "set "+short+" to "+describeRecord(t, *value))
		case name == request.Failed, name == request.Since:
			lines = append(lines, "set "+short+" to "+*value)
		case *value == "":
			lines = append(lines, "set "+short)
		default:
			lines = append(lines, "set "+short+" to "+sinceNoon(t, *value))
		}
	}
	return strings.Join(lines, "\n")
}

// describeRecord returns a record in the words of a test's input.
func describeRecord(t *testing.T, value string) string {
	t.Helper()
	var r Record
	if err := json.Unmarshal([]byte(value), &r); err != nil || r.BootID != "old" {
		t.Errorf("record %q: %v", value, err)
	}
	text := "since=" + r.Since.Sub(noon).String()
	if r.Rebooted != nil {
		text += " rebooted=" + r.Rebooted.Sub(noon).String()
	}
	if r.Cordoned {
		text += " cordoned"
	}
	return text
}

func sinceNoon(t *testing.T, text string) string {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Error(err)
	}
	return at.Sub(noon).String()
}

// machine is a node with an agent that may be killed at any moment: between two steps,
// between a write and what belongs to it, and before the response to a write arrives.
type machine struct {
	t        *rapid.T
	now      time.Time
	node     *corev1.Node
	boots    int
	commands map[int]int // by permission
	drained  string      // the record for which the process has drained the node
	pods     int
	isTheirs bool // whether somebody else has cordoned the node
	blocked  bool // whether a PodDisruptionBudget forbids evictions
	reported int
	downAt   time.Time // when the system goes down, after the command; zero if it does not
	staysUp  bool      // whether the command has no effect
	begins   int
	gaveUp   int
	finished int
}

func (m *machine) boot() string { return fmt.Sprint("boot-", m.boots) }

func (m *machine) isKilled() bool { return rapid.IntRange(0, 4).Draw(m.t, "killed") == 0 }

// step does what the shell does, and ends early if the agent is killed.
func (m *machine) step() {
	d, err := Decide(Observed{Now: m.now, Node: m.node, BootID: m.boot(), Drained: m.drained != "" && m.drained == m.node.Annotations[request.InProgress], Limits: limits})
	if err != nil {
		m.t.Fatal(err)
	}
	if m.isKilled() {
		m.drained = ""
		return
	}
	switch d.Step {
	case Rest:
		return
	case Drain:
		if !m.node.Spec.Unschedulable {
			m.t.Fatal("drained before it was cordoned")
		}
		if m.blocked {
			return
		}
		m.pods, m.drained = 0, m.node.Annotations[request.InProgress]
		return
	case GiveUp:
		m.reported++
		if m.isKilled() {
			return
		}
		if m.node.Spec.Unschedulable != m.isTheirs {
			m.t.Fatalf("the reboot is given up with cordoned: %t, by somebody else: %t", m.node.Spec.Unschedulable, m.isTheirs)
		}
		m.gaveUp++
		m.pods = 1
	case Reboot:
		if m.pods > 0 || !m.node.Spec.Unschedulable {
			m.t.Fatalf("rebooted with %d Pods, cordoned: %t", m.pods, m.node.Spec.Unschedulable)
		}
	case Cordon:
		m.drained = ""
	case Begin:
		m.begins++
		m.pods = 1
	case Finish:
		m.finished++
		m.pods = 1
	default:
	}
	m.node = written(m.node, d)
	if m.isKilled() {
		m.drained = ""
		return
	}
	if d.Step == Reboot {
		if m.commands[m.begins]++; m.staysUp {
			return
		}
		m.downAt = m.now.Add(time.Duration(rapid.IntRange(0, 4).Draw(m.t, "minutes to go down")) * time.Minute)
	}
}

// pass lets time pass, during which the system may reboot.
func (m *machine) pass() {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(m.t, "minutes")) * time.Minute)
	if !m.downAt.IsZero() && !m.now.Before(m.downAt) {
		m.boots, m.downAt, m.drained = m.boots+1, time.Time{}, ""
	}
}

// For each permission the node is rebooted exactly once, or not at all if it could not be
// drained in time, or has not gone down. In the end it is cordoned if and only
// if somebody else has cordoned it, before or meanwhile.
func TestOneRebootForEachPermission(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, now: noon, commands: map[int]int{}, pods: 1}
		m.node = node(nil)
		m.isTheirs = rapid.Bool().Draw(t, "cordoned before")
		m.node.Spec.Unschedulable = m.isTheirs
		requests := rapid.IntRange(1, 3).Draw(t, "requests")
		for i := range requests {
			m.node.Annotations[request.Now] = ""
			m.blocked, m.staysUp = rapid.Bool().Draw(t, "blocked"), rapid.Bool().Draw(t, "stays up")
			boots := m.boots
			for n := 0; request.IsGranted(m.node); n++ {
				if n > 1000 {
					t.Fatalf("not finished: %v", m.node.Annotations)
				}
				m.step()
				m.pass()
				switch record, _ := RecordOf(m.node); rapid.IntRange(0, 9).Draw(t, "happens") {
				case 0:
					m.blocked = !m.blocked
				case 1: // someone uncordons it, and Pods come back
					m.node.Spec.Unschedulable, m.isTheirs, m.pods = false, false, 1
				case 2: // someone cordons it, which the agent can tell from its own cordon once it has seen that this is gone
					if !m.node.Spec.Unschedulable && (record == nil || !record.Cordoned) {
						m.node.Spec.Unschedulable, m.isTheirs = true, true
					}
				}
			}
			if m.node.Spec.Unschedulable != m.isTheirs {
				t.Fatalf("cordoned: %t, by somebody else: %t", m.node.Spec.Unschedulable, m.isTheirs)
			}
			if m.begins != i+1 || m.boots+m.gaveUp != i+1 || m.finished != m.boots {
				t.Fatalf("after %d permissions: begun %d times, rebooted %d, given up %d, finished %d", i+1, m.begins, m.boots, m.gaveUp, m.finished)
			}
			if m.reported < m.gaveUp {
				t.Fatalf("given up %d times, reported %d times", m.gaveUp, m.reported)
			}
			if n := m.commands[m.begins]; n > 1 || n == 0 && m.boots > boots || m.staysUp && m.boots > boots {
				t.Fatalf("the command was run %d times, and the node rebooted %d times", n, m.boots-boots)
			}
			if _, isFailed := m.node.Annotations[request.Failed]; isFailed && (m.boots > boots || request.IsNeeded(m.node)) {
				t.Fatalf("a failure is remembered with %v", m.node.Annotations)
			}
			delete(m.node.Annotations, request.Needed)
		}
	})
}
