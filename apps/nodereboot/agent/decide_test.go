package agent

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
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

func kubeletOf(boot string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.BootID = boot }
}

// The files in testdata/decide are tables of what is observed and what is decided. Their
// first file explains the words. After a deliberate change, run
//
//	go test ./apps/nodereboot/agent -run TestDecide -rewrite
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
			if diff := gocmp.Diff(before, o.Node); diff != "" {
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
	annotations := map[string]string{"record": request.InProgress, "reason": request.Since, "failure": request.Failed}
	at := func(text string) time.Time { return parseTime(t, d, text) }
	stamp := func(value string) string {
		if after, err := time.ParseDuration(value); err == nil {
			return noon.Add(after).Format(time.RFC3339)
		}
		return value
	}
	for line := range strings.Lines(d.Input) {
		object, args, err := datadriven.ParseLine(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		if of, isRaw := strings.CutPrefix(object, "raw-"); isRaw {
			o.Node.Annotations[annotations[of]] = strings.TrimSpace(strings.TrimPrefix(line, object))
			continue
		}
		record, failure := &Record{BootID: "old"}, &Failure{BootID: "old", At: noon}
		reason := &request.Reason{BootID: "old", At: noon.Add(-time.Hour)}
		words := map[string]func(value string){
			"agent unable":     func(string) { o.Unable = true },
			"agent doubtful":   func(string) { o.IsDoubtful = true },
			"agent drained":    func(string) { o.Drained = true },
			"host boot":        func(value string) { o.BootID = value },
			"host sentinel":    func(value string) { o.Sentinel = at(cmp.Or(value, "-1h")) },
			"node needed":      func(value string) { o.Node.Annotations[request.Needed] = stamp(value) },
			"node granted":     func(value string) { o.Node.Annotations[request.Now] = stamp(value) },
			"node cordoned":    func(string) { cordoned(o.Node) },
			"node not-ready":   func(string) { o.Node.Status.Conditions[0].Status = corev1.ConditionUnknown },
			"node kubelet":     func(value string) { kubeletOf(value)(o.Node) },
			"record since":     func(value string) { record.Since = at(value) },
			"record rebooted":  func(value string) { record.Rebooted = ptr.To(at(value)) },
			"record cordoned":  func(string) { record.Cordoned = true },
			"reason of":        func(value string) { reason.BootID = value },
			"reason at":        func(value string) { reason.At = at(value) },
			"failure of":       func(value string) { failure.BootID = value },
			"failure sentinel": func(value string) { failure.Sentinel = at(value) },
		}
		for _, arg := range args {
			word, isKnown := words[object+" "+arg.Key]
			if !isKnown {
				d.Fatalf(t, "unknown word %q in %q", arg.Key, line)
			}
			word(strings.Join(arg.Vals, ", "))
		}
		if value, isWritten := map[string]any{"record": record, "reason": reason, "failure": failure}[object]; isWritten {
			o.Node.Annotations[annotations[object]] = *encode(value)
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
