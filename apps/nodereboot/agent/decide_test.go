package agent

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
)

var (
	noon   = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	limits = Limits{Drain: 10 * time.Minute, Reboot: 5 * time.Minute, RetryAfter: time.Hour}
)

// newNode returns a Node that is Ready, by the kubelet of that boot.
func newNode(bootID string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Annotations = "node-1", map[string]string{}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.NodeInfo.BootID = bootID
	return n
}

// The files in testdata/decide are stories: what happens, and which steps follow. Their first file
// explains the words. After a deliberate change, run
//
//	go test ./apps/nodereboot/agent -run TestDecide -rewrite
//
// and review what has changed.
func TestDecide(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		s := &story{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd != "when" {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			for _, arg := range d.CmdArgs {
				s.happens(d, arg.Key, strings.Join(arg.Vals, ", "))
			}
			return s.steps()
		})
	})
}

// story is a node, and what its agent sees.
type story struct {
	t *testing.T
	Observed
	node     *corev1.Node
	grant    request.Grant
	pods     string // why the node cannot be drained
	commands map[int64]int
}

// happens changes what is observed.
func (s *story) happens(d *datadriven.TestData, word, value string) {
	s.t.Helper()
	after := func(fallback string) time.Time {
		wait, err := time.ParseDuration(cmp.Or(value, fallback))
		if err != nil {
			d.Fatalf(s.t, "%s: %v", word, err)
		}
		return s.Now.Add(wait)
	}
	words := map[string]func(){
		"new": func() {
			*s = story{t: s.t, node: newNode("old"), commands: map[int64]int{}}
			s.Observed = Observed{Now: noon, BootID: "old", Limits: limits}
			s.node.Annotations[request.Agent] = *request.Encode(request.Record{BootID: "old", IsDone: true})
		},
		"later":       func() { s.Now = after("") },
		"needed":      func() { s.node.Annotations[request.Needed] = value },
		"needed-in":   func() { s.node.Annotations[request.Needed] = after("").Format(time.RFC3339) },
		"not-needed":  func() { delete(s.node.Annotations, request.Needed) },
		"sentinel":    func() { s.Sentinel, s.IsBlind = noon.Add(after("-1h").Sub(s.Now)), false },
		"no-sentinel": func() { s.Sentinel, s.IsBlind = time.Time{}, false },
		"blind":       func() { s.Sentinel, s.IsBlind, s.Unable = time.Time{}, true, "no permission" },
		"unable":      func() { s.Unable = "process 1 is not systemd" },
		"able":        func() { s.Unable, s.IsBlind = "", false },
		"no-boot-id":  func() { s.BootID, s.Unable = "", "the boot ID cannot be read" },
		"boot-id":     func() { s.BootID, s.Unable = value, "" },
		"boot":        func() { s.boot(value) },
		"ready":       func() { s.node = withAnnotations(newNode(s.BootID), s.node) },
		"failures": func() {
			record := request.Read(s.node).Record
			failures, _ := strconv.ParseUint(value, 10, 0)
			record.Failures = uint(failures)
			s.node.Annotations[request.Agent] = *request.Encode(record)
		},
		"old-kubelet":   func() { s.node.Status.Conditions[0].Status = corev1.ConditionTrue },
		"pods-found":    func() { s.Blocked = &value },
		"cordon":        func() { s.node.Spec.Unschedulable = true },
		"uncordon":      func() { s.node.Spec.Unschedulable = false },
		"pods":          func() { s.pods = value },
		"drained":       func() { s.Drain = Drained{IsDone: true} },
		"stuck":         func() { s.Drain = Drained{Obstacle: "default/db is not evicted"} },
		"leaving":       func() { s.Drain = Drained{Obstacle: "default/db is ending", LeavesBy: after("")} },
		"outcome":       func() { s.Outcome = value },
		"record":        func() { s.node.Annotations[request.Agent] = value },
		"forget-record": func() { delete(s.node.Annotations, request.Agent) },
		"restart":       func() { s.Drain, s.Outcome = Drained{}, "" },
		"chosen":        func() { s.grant = request.Grant{ID: s.grant.ID + 1, BootID: s.BootID, Chosen: s.Now} },
		"allowed":       func() { s.grant.Until = after("10m") },
		"closes":        func() { s.grant.Closes = after("") },
		"working": func() {
			s.node.Annotations[request.Needed], s.node.Spec.Unschedulable = "", true
			s.grant = request.Grant{ID: 1, BootID: "old", Chosen: s.Now, Until: s.Now.Add(request.GrantFor)}
			s.node.Annotations[request.Agent] = *request.Encode(request.Record{BootID: "old", Since: s.Now, ID: 1, Work: &request.Work{Since: s.Now, IsCordoned: true}})
		},
		"over":       func() { s.grant.IsOver = true },
		"of-another": func() { s.grant.BootID = "another" },
		"smaller":    func() { s.grant.ID -= 2 },
	}
	if words[word] == nil {
		d.Fatalf(s.t, "unknown word %q", word)
	}
	words[word]()
	if s.grant.ID > 0 {
		s.node.Annotations[request.Granted] = *request.Encode(s.grant)
	} else {
		delete(s.node.Annotations, request.Granted)
	}
}

// boot starts the system anew, and with it the agent. The kubelet has not said anything yet.
func (s *story) boot(id string) {
	s.BootID, s.Drain, s.Outcome = cmp.Or(id, "new"), Drained{}, ""
	s.node.Status.Conditions[0].Status = corev1.ConditionUnknown
}

func withAnnotations(n, of *corev1.Node) *corev1.Node {
	n.Annotations, n.Spec = of.Annotations, of.Spec
	return n
}

// steps takes one step after the other, until there is something to wait for.
func (s *story) steps() string {
	var lines []string
	for len(lines) < 10 {
		s.Node = request.Read(s.node)
		before := s.Node.DeepCopy()
		d := Decide(s.Observed)
		if diff := gocmp.Diff(before, s.Node.Node); diff != "" {
			s.t.Errorf("the Node was changed:\n%s", diff)
		}
		lines = append(lines, s.describe(d))
		switch d.Step {
		case Rest, Drain:
			s.Blocked = nil
			return strings.Join(lines, "\n")
		case Look:
			s.Blocked = &s.pods
			continue
		case Begin:
			s.Drain = Drained{}
		case Reboot:
			if s.commands[d.Record.ID]++; s.commands[d.Record.ID] > 1 {
				s.t.Errorf("the reboot command is run again for grant %d", d.Record.ID)
			}
		default:
		}
		s.Blocked = nil
		s.node.Annotations[request.Agent] = *request.Encode(d.Record)
		if d.UsesRequest {
			delete(s.node.Annotations, request.Needed)
		}
		if d.Unschedulable != nil {
			s.node.Spec.Unschedulable = *d.Unschedulable
		}
	}
	s.t.Error("the steps do not end")
	return strings.Join(lines, "\n")
}

// describe returns a decision in words.
func (s *story) describe(d Decision) string {
	words := []string{string(d.Step)}
	add := func(isSo bool, format string, args ...any) {
		if isSo {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	if d.Unschedulable != nil {
		words = append(words, map[bool]string{true: "cordon", false: "uncordon"}[*d.Unschedulable])
	}
	add(d.UsesRequest, "use-request")
	if d.Record != nil {
		words = append(words, describeRecord(*d.Record))
	}
	add(d.Why != "" && (d.Record == nil || d.Why != d.Record.Why), "(%s)", d.Why)
	add(d.RequeueAfter > 0, "again in %s", d.RequeueAfter)
	return strings.Join(words, " ")
}

// describeRecord returns a record in words. Times are relative to noon.
func describeRecord(r request.Record) string {
	words := []string{r.BootID + ":"}
	add := func(isSo bool, format string, args ...any) {
		if isSo {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	addTime := func(name string, at time.Time) { add(!at.IsZero(), "%s=%s", name, at.Sub(noon)) }
	addTime("since", r.Since)
	addTime("sentinel", r.Sentinel)
	add(r.Unable != "", "unable=%q", r.Unable)
	add(r.ID > 0, "id=%d", r.ID)
	add(r.Blocked != "", "blocked=%q", r.Blocked)
	add(r.IsDone, "done")
	if work := r.Work; work != nil {
		addTime("work", work.Since)
		add(work.IsCordoned, "cordoned")
		addTime("commanded", work.Commanded)
	}
	addTime("finished", r.Finished)
	add(r.Failures > 0, "failures=%d", r.Failures)
	addTime("not-before", r.NotBefore)
	add(r.Why != "", "why=%q", r.Why)
	if r.Failed != nil {
		addTime("failed", r.Failed.At)
		addTime("failed-sentinel", r.Failed.Sentinel)
		words = append(words, fmt.Sprintf("failure=%q", r.Failed.Why))
	}
	return strings.Join(words, " ")
}
