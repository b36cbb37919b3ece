package faults

import (
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/test/faults/fault"
	"nicoleh.io/k8s-controller/test/lab"
)

// Without any fault, a run costs a list of each resource and, for each spec, one write of the
// Deployment, one of the status when the Icecream is Ready, and one or two events. Progress is
// written besides, at most once in each window. This is what other budgets compare with.
func TestWithoutFaults(t *testing.T) {
	t.Parallel()
	// An Icecream that is Stalled for a moment, as on a busy machine, would cost more.
	r := begin(t, "-icecream-stall-after=1h")
	began := time.Now()
	r.createAndEdit(t, func() { r.EventuallyReady(t, name) })
	r.recovers(t, 80)

	made := r.requests(t)
	progress := 0
	if statuses := made.Resource("icecreams/status"); len(statuses) > 0 {
		const window = 2 * time.Second // the default of -icecream-status-window
		progress = int(statuses[len(statuses)-1].Received.Sub(began) / window)
	}
	const specs = 1 + edits
	type bounds struct{ least, most int }
	budget := map[string]bounds{
		"list icecreams": {1, 1}, "list deployments": {1, 1}, "list pods": {1, 1},
		"create deployments": {1, 1}, "patch deployments": {edits, edits},
		"update icecreams/status": {specs, specs + progress},
		"events":                  {2, 2*specs + progress}, // at most one for each write
	}
	counts := made.ByKind()
	// Events that are like an earlier one are counted in it, several by one request.
	counts["events"] = counts["create events"] + counts["patch events"]
	delete(counts, "create events")
	delete(counts, "patch events")
	for kind, count := range counts {
		if count > budget[kind].most {
			t.Errorf("%d requests are %q, want at most %d", count, kind, budget[kind].most)
		}
	}
	for kind, of := range budget {
		if counts[kind] < of.least {
			t.Errorf("%d requests are %q, want at least %d", counts[kind], kind, of.least)
		}
	}

	told := 0
	for _, event := range r.Events(t, name) {
		if strings.Contains(event.Note, "Updated Deployment") {
			told += lab.Occurrences(event)
		}
	}
	if told < edits-1 { // Of an event that repeats, the counts 1, 2 and 4 are written.
		t.Errorf("%d edits are in events, want at least %d", told, edits-1)
	}
}

// A write never gets an answer, though its connection lives. The controller gives it up, and
// tries again.
func TestAnAnswerNeverComes(t *testing.T) {
	t.Parallel()
	for _, how := range []fault.Effect{fault.HangBefore, fault.HangAfter} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			r := begin(t)
			hangs := r.breaks(fault.Rule{Verbs: fault.Writes, Resources: []string{"deployments"}, Count: 1, Effect: how})
			r.create(t)
			r.applied(t, hangs, 1)
			r.editAll(t)
			r.recovers(t, 40)
		})
	}
}

// Responses end in the middle.
func TestResponsesAreTruncated(t *testing.T) {
	t.Parallel()
	r := begin(t)
	truncated := r.breaks(fault.Rule{Effect: fault.Truncate, Bytes: 100, Probability: 0.3, Seed: 3})
	r.createAndEdit(t, func() { r.EventuallyReady(t, name) })
	r.heals(truncated)
	r.recovers(t, 80)
}

// All watches end every two seconds, in good order or with the error that they are too old.
func TestWatchesAreCut(t *testing.T) {
	t.Parallel()
	for _, how := range []fault.Effect{fault.Cut, fault.Expire} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			r := begin(t)
			cut := r.breaks(fault.Rule{Effect: how, After: 2 * time.Second})
			r.createAndEdit(t, func() { r.applied(t, cut, cut.Applied()+1) })
			r.heals(cut)
			r.recovers(t, 80)
		})
	}
}
