package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// Why a node waits is told again every half hour, because events do not last. Of many nodes that wait for the same
// reason, it is told for a few: the queue of events has little room.
func TestWhatLastsIsToldAgain(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		for i := range 30 {
			s.Set(node(fmt.Sprintf("node-%02d", i), asked, without(request.Agent)))
		}
		s.run()
		time.Sleep(time.Second)
		for hour := range 24 {
			told := s.events()
			if want := []int{maxTold, 2 * maxTold}[min(hour, 1)]; len(told) != want || !strings.Contains(told[0], "Waiting to reboot (AgentSilent): no agent has written") {
				t.Errorf("after %d hours, %d events in an hour: %.100q", hour, len(told), told)
			}
			if lines := s.waits.Swap(0); lines != int64(len(told)) {
				t.Errorf("after %d hours, %d lines in the log, and %d events", hour, lines, len(told))
			}
			time.Sleep(time.Hour)
		}
		s.events()
		script.Edit(s.Cluster, "", "node-00", without(request.Needed))
		time.Sleep(time.Second)
		if told := s.events(); len(told) != 1 || !strings.Contains(told[0], "AgentSilent") {
			t.Errorf("when one of them waits no longer, the next one is told: %q", told)
		}
	})
}

// The metrics say how long each node has needed a reboot, and why it waits or what it does; and which nodes are
// unavailable.
func TestMetrics(t *testing.T) {
	inCluster(t, []string{"-max-unavailable=50%"}, func(t *testing.T, s *scripted) {
		since := request.Record{BootID: "boot", Since: time.Now().Add(-time.Hour)}
		says := func(change func(r *request.Record)) func(*corev1.Node) {
			r := since
			change(&r)
			return recorded(r)
		}
		none := func(*request.Record) {}
		work := func(r *request.Record) { r.Work = &request.Work{Since: time.Now()} }
		sentinel := func(r *request.Record) { r.Sentinel = time.Now() }
		s.Set(node("asked", asked))
		s.Set(node("declined", with(request.Needed, "false"), says(sentinel)))
		s.Set(node("fine"))
		s.Set(node("later", with(request.Needed, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), says(none)))
		s.Set(node("no", with(request.Needed, "false")))
		s.Set(node("stopped", says(none))) // its agent has not noticed that nobody asks any more
		s.Set(node("unable", says(func(r *request.Record) { r.Unable = "there is no command" })))
		s.Set(node("unclear", with(request.Needed, "tomorrow"), without(request.Agent)))
		s.Set(node("works", says(work)))
		s.Set(node("kept", cordoned))
		s.Set(node("dead", ready(corev1.ConditionUnknown)))
		s.run("asked")
		time.Sleep(5 * time.Second)
		for name, want := range map[string]map[string]float64{
			"nodereboot_needed_seconds": {
				"asked Granted": 0, "declined Declined": 60, "later NotBefore": 60, "unable AgentUnable": 60, "unclear BadTime": 0, "works Rebooting": 60,
			},
			"nodereboot_unavailable":  {"asked Granted": 1, "dead NotReady": 1, "kept Cordoned": 1, "works Rebooting": 1},
			"nodereboot_budget_nodes": {"": 5},
		} {
			if diff := cmp.Diff(want, metric(t, name)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}
