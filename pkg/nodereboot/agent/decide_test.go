package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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

func TestDecide(t *testing.T) {
	at := func(minutes int) string {
		return noon.Add(time.Duration(minutes) * time.Minute).Format(time.RFC3339)
	}
	begun := func(minutes int, more string) map[string]string {
		return map[string]string{request.InProgress: fmt.Sprintf(`{"bootID":"old","wasCordoned":%t,"since":%q%s}`, strings.Contains(more, "theirs"), at(minutes), strings.TrimPrefix(more, "theirs"))}
	}
	merge := func(annotations map[string]string, more string) map[string]string {
		annotations[more] = ""
		return annotations
	}
	commanded := func(minutes int) string { return fmt.Sprintf(`,"rebooted":%q`, at(minutes)) }
	tests := []struct {
		name     string
		boot     string
		sentinel bool
		drained  bool
		node     *corev1.Node
		want     Step
		cordon   string
		wants    string // annotations to be written
	}{
		{"nothing", "old", false, false, node(nil), Rest, "", ""},
		{"a request is not a permission", "old", false, false, node(map[string]string{request.Needed: ""}), Rest, "", ""},
		{"the sentinel asks", "old", true, false, node(nil), Request, "", request.Needed + "="},
		{"the sentinel asks once", "old", true, false, node(map[string]string{request.Needed: at(60)}), Rest, "", ""},
		{"the sentinel asks for nothing during the work", "old", true, true, node(begun(0, commanded(0)), cordoned), Rest, "", ""},
		{"permission", "old", false, false, node(map[string]string{request.Now: ""}), Begin, "", request.InProgress + `={"bootID":"old","wasCordoned":false,"since":"2026-07-01T12:00:00Z"} ` + request.Needed + "- " + request.Now + "-"},
		{"permission for a node that is cordoned", "old", false, false, node(map[string]string{request.Now: ""}, cordoned), Begin, "", request.InProgress + `={"bootID":"old","wasCordoned":true,"since":"2026-07-01T12:00:00Z"} ` + request.Needed + "- " + request.Now + "-"},
		{"permission for what is asked for once more", "old", true, false, node(map[string]string{request.Now: "", request.Needed: at(60)}), Begin, "", request.InProgress + `={"bootID":"old","wasCordoned":false,"since":"2026-07-01T12:00:00Z"} ` + request.Needed + "- " + request.Now + "-"},
		{"begun", "old", false, false, node(begun(0, "")), Cordon, "true", ""},
		{"somebody has uncordoned it", "old", false, true, node(begun(0, "theirs")), Cordon, "true", ""},
		{"cordoned", "old", false, false, node(begun(0, ""), cordoned), Drain, "", ""},
		{"drained", "old", false, true, node(begun(-9, ""), cordoned), Reboot, "", request.InProgress + `={"bootID":"old","wasCordoned":false,"since":"2026-07-01T11:51:00Z","rebooted":"2026-07-01T12:00:00Z"}`},
		{"too late to drain", "old", false, false, node(begun(-10, ""), cordoned), Undo, "false", ""},
		{"too late, and cordoned by others", "old", false, false, node(begun(-10, "theirs"), cordoned), GiveUp, "", request.InProgress + "- " + request.Needed + "=" + at(60)},
		{"undone", "old", false, false, node(begun(-10, "")), GiveUp, "", request.InProgress + "- " + request.Needed + "=" + at(60)},
		{"goes down", "old", false, false, node(begun(-60, commanded(-4)), cordoned), Rest, "", ""},
		{"does not go down", "old", false, false, node(begun(-60, commanded(-5)), cordoned), Drain, "", ""},
		{"does not go down, and was uncordoned", "old", false, false, node(begun(-60, commanded(-5))), Cordon, "true", ""},
		{"does not go down, and is drained again", "old", false, true, node(begun(-60, commanded(-5)), cordoned), Reboot, "", request.InProgress + `={"bootID":"old","wasCordoned":false,"since":"2026-07-01T11:00:00Z","rebooted":"2026-07-01T12:00:00Z"}`},
		{"does not go down, and cannot be drained again", "old", false, false, node(begun(-60, commanded(-15)), cordoned), Undo, "false", ""},
		{"does not go down, and is given back", "old", false, false, node(begun(-60, commanded(-15))), GiveUp, "", request.InProgress + "- " + request.Needed + "=" + at(60)},
		{"somebody else says that it is drained", "old", false, false, node(map[string]string{request.InProgress: `{"bootID":"old","since":"2026-07-01T12:00:00Z","rebooted":"2020-01-01T00:00:00Z","drained":true}`, "drained": "true"}, cordoned), Undo, "false", ""},
		{"up again, but not Ready", "new", false, false, node(begun(-60, commanded(-4)), cordoned, notReady), Rest, "", ""},
		{"up again, but the old kubelet said Ready", "new", false, false, node(begun(-60, commanded(-4)), cordoned, kubeletOf("old")), Rest, "", ""},
		{"up again", "new", false, false, node(begun(-60, commanded(-4)), cordoned, kubeletOf("new")), Finish, "false", request.InProgress + "-"},
		{"up again, and the sentinel, too", "new", true, false, node(begun(-60, commanded(-4)), cordoned), Finish, "false", request.InProgress + "- " + request.Needed + "=" + at(60)},
		{"up again, and asked for once more", "new", true, false, node(merge(begun(-60, commanded(-4)), request.Needed), cordoned), Finish, "false", request.InProgress + "-"},
		{"up again, cordoned by others", "new", false, false, node(begun(-60, "theirs"+commanded(-4)), cordoned), Finish, "", request.InProgress + "-"},
		{"up again, uncordoned by others", "new", false, false, node(begun(-60, commanded(-4))), Finish, "", request.InProgress + "-"},
		{"it went down by itself", "new", false, false, node(begun(-60, ""), cordoned), Finish, "false", request.InProgress + "-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.node.DeepCopy()
			d, err := Decide(Observed{Now: noon, Node: tt.node, BootID: tt.boot, Sentinel: tt.sentinel, Drained: tt.drained, Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			if d.Step != tt.want {
				t.Errorf("step %s, want %s", d.Step, tt.want)
			}
			got, cordon := "", ""
			for _, name := range []string{request.InProgress, request.Needed, request.Now} {
				if value, ok := d.Annotations[name]; ok && value == nil {
					got += " " + name + "-"
				} else if ok {
					got += " " + name + "=" + *value
				}
			}
			if d.Unschedulable != nil {
				cordon = fmt.Sprint(*d.Unschedulable)
			}
			if diff := cmp.Diff(tt.wants, strings.TrimPrefix(got, " ")); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if cordon != tt.cordon {
				t.Errorf("cordon %q, want %q", cordon, tt.cordon)
			}
			if diff := cmp.Diff(before, tt.node); diff != "" {
				t.Errorf("the Node was changed:\n%s", diff)
			}
		})
	}
}

// An agent that could not reboot its host asks for nothing, and gives back what it has;
// but a node that was rebooted all the same is not left cordoned.
func TestUnable(t *testing.T) {
	begun := `{"bootID":"old","wasCordoned":false,"since":"2026-07-01T12:00:00Z"}`
	for _, tt := range []struct {
		name string
		boot string
		node *corev1.Node
		want Step
	}{
		{"the sentinel asks", "old", node(nil), Rest},
		{"permission", "old", node(map[string]string{request.Now: ""}), GiveUp},
		{"begun", "old", node(map[string]string{request.InProgress: begun}), GiveUp},
		{"cordoned", "old", node(map[string]string{request.InProgress: begun}, cordoned), Undo},
		{"rebooted", "new", node(map[string]string{request.InProgress: begun}, cordoned), Finish},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := Decide(Observed{Now: noon, Node: tt.node, BootID: tt.boot, Sentinel: true, Drained: true, Unable: true, Limits: limits})
			if err != nil || d.Step != tt.want {
				t.Errorf("step %s, want %s: %v", d.Step, tt.want, err)
			}
			if value := d.Annotations[request.Needed]; value != nil {
				t.Errorf("asks for a reboot at %q", *value)
			}
			if after := written(tt.node, d); d.Step == GiveUp && request.IsGranted(after) {
				t.Errorf("is left with %v", after.Annotations)
			}
		})
	}
}

func TestWhatCannotBeReadIsLeftAlone(t *testing.T) {
	for _, value := range []string{"", "x", "{}", `{"bootID":"old"}`, `{"bootID":1}`} {
		d, err := Decide(Observed{Now: noon, Node: node(map[string]string{request.InProgress: value, request.Now: ""}), BootID: "new", Limits: limits})
		if err == nil || d.Step != Rest {
			t.Errorf("record %q: step %s, error %v", value, d.Step, err)
		}
	}
	if d, err := Decide(Observed{Now: noon, Node: node(map[string]string{request.Now: ""}), Limits: limits}); err == nil || d.Step != Rest {
		t.Errorf("without a boot ID: step %s, error %v", d.Step, err)
	}
}

// machine is a node with an agent that is killed at any moment: between two steps,
// between a write and what it goes with, and before the answer to a write arrives.
type machine struct {
	t        *rapid.T
	now      time.Time
	node     *corev1.Node
	boots    int
	commands map[int]int // by boot
	drained  string      // the record for which the process has done it
	pods     int
	blocked  bool // a budget of the Pods keeps them
	told     int
	downAt   time.Time // when the system goes down, after the command; zero if it does not
	begins   int
	gaveUp   int
	finished int
}

func (m *machine) boot() string { return fmt.Sprint("boot-", m.boots) }

func (m *machine) isKilled() bool { return rapid.IntRange(0, 4).Draw(m.t, "killed") == 0 }

// step is what the shell does, and ends early where it is killed.
func (m *machine) step() {
	d, err := Decide(Observed{Now: m.now, Node: m.node, BootID: m.boot(), Drained: m.drained != "" && m.drained == m.node.Annotations[request.InProgress], Limits: limits})
	if err != nil {
		m.t.Fatal(err)
	}
	if m.isKilled() {
		m.drained = ""
		return
	}
	record, _ := RecordOf(m.node)
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
		m.told++
		if m.isKilled() {
			return
		}
		if m.node.Spec.Unschedulable && !record.WasCordoned {
			m.t.Fatal("the slot is given up before the cordon is undone")
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
		m.commands[m.boots]++
		m.downAt = m.now.Add(time.Duration(rapid.IntRange(0, 4).Draw(m.t, "minutes to go down")) * time.Minute)
	}
}

// pass lets time pass, in which the system may go down and come up again.
func (m *machine) pass() {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(m.t, "minutes")) * time.Minute)
	if !m.downAt.IsZero() && !m.now.Before(m.downAt) {
		m.boots, m.downAt, m.drained = m.boots+1, time.Time{}, ""
	}
}

// For each permission the node is rebooted exactly once, or not at all if it could
// not be drained in time; and in the end it is cordoned if it was before.
func TestOneRebootForEachPermission(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, now: noon, commands: map[int]int{}, pods: 1}
		m.node = node(nil)
		wasCordoned := rapid.Bool().Draw(t, "cordoned before")
		m.node.Spec.Unschedulable = wasCordoned
		requests := rapid.IntRange(1, 3).Draw(t, "requests")
		for i := range requests {
			m.node.Annotations[request.Now] = ""
			m.blocked = rapid.Bool().Draw(t, "blocked")
			for n := 0; request.IsGranted(m.node); n++ {
				if n > 1000 {
					t.Fatalf("not done with: %v", m.node.Annotations)
				}
				m.step()
				m.pass()
				switch record, _ := RecordOf(m.node); rapid.IntRange(0, 9).Draw(t, "happens") {
				case 0:
					m.blocked = !m.blocked
				case 1: // somebody uncordons it, and Pods come back
					if record != nil && record.BootID == m.boot() && !wasCordoned {
						m.node.Spec.Unschedulable, m.pods = false, 1
					}
				}
			}
			if m.node.Spec.Unschedulable != wasCordoned {
				t.Fatalf("cordoned: %t, and before: %t", m.node.Spec.Unschedulable, wasCordoned)
			}
			if m.begins != i+1 || m.boots+m.gaveUp != i+1 || m.finished != m.boots {
				t.Fatalf("after %d permissions: begun %d times, rebooted %d, given up %d, finished %d", i+1, m.begins, m.boots, m.gaveUp, m.finished)
			}
			if m.told < m.gaveUp {
				t.Fatalf("given up %d times, told %d times", m.gaveUp, m.told)
			}
			for boot, n := range m.commands {
				if n != 1 {
					t.Fatalf("the command was run %d times in boot %d", n, boot)
				}
			}
		}
	})
}
