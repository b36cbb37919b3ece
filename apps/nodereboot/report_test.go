package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"nicoleh.io/k8s-controller/apps/nodereboot/request"
	"nicoleh.io/k8s-controller/pkg/kittest/script"
)

// gauge returns the values of a gauge by its labels, such as "a InLine".
func gauge(t *testing.T, name string) map[string]float64 {
	t.Helper()
	synctest.Wait()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue()
		}
	}
	return values
}

// minutes returns the values of a gauge of seconds, in whole minutes, such as 1h0m0s.
func minutes(t *testing.T, name string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for labels, value := range gauge(t, name) {
		values[labels] = (time.Duration(value) * time.Second).Truncate(time.Minute).String()
	}
	return values
}

// How long a node has needed a reboot is counted from the agent's reason or from when the
// controller saw it first, whatever becomes of the request on its way.
func TestNeededSince(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		hours := func(n int) string { return time.Now().Add(time.Duration(n) * time.Hour).UTC().Format(time.RFC3339) }
		reason := with(request.Since, fmt.Sprintf(`{"at":%q,"bootID":"x"}`, hours(-30)))
		s.Set(node("asked", needed))
		s.Set(node("declined", with(request.Needed, "false"), reason))
		s.Set(node("later", with(request.Needed, hours(2))))
		s.Set(node("no", with(request.Needed, "false")))
		s.Set(node("retries", with(request.Needed, hours(1)), reason))
		s.Set(node("unclear", with(request.Needed, "tomorrow")))
		s.Set(node("works", with(request.InProgress, "x"), reason))
		s.run()
		time.Sleep(time.Minute)
		want := map[string]string{
			"asked AgentSilent": "1m0s", "declined Declined": "30h1m0s", "retries NotBefore": "30h1m0s", "unclear BadTime": "1m0s", "works Rebooting": "30h1m0s",
		}
		if diff := cmp.Diff(want, minutes(t, "nodereboot_needed_seconds")); diff != "" {
			t.Errorf("needed (-want +got):\n%s", diff)
		}
		// It fails, and is asked for again.
		script.Edit(s.Cluster, "", "asked", func(n *corev1.Node) {
			delete(n.Annotations, request.Needed)
			n.Annotations[request.InProgress] = "x"
		})
		time.Sleep(time.Hour)
		script.Edit(s.Cluster, "", "asked", func(n *corev1.Node) {
			delete(n.Annotations, request.InProgress)
			n.Annotations[request.Needed] = hours(1)
		})
		script.Edit(s.Cluster, "", "works", func(n *corev1.Node) { n.Annotations = nil })
		script.Edit(s.Cluster, "", "unclear", func(n *corev1.Node) { n.Annotations = nil })
		time.Sleep(time.Minute)
		want = map[string]string{"asked NotBefore": "1h2m0s", "declined Declined": "31h2m0s", "retries AgentSilent": "31h2m0s"}
		if diff := cmp.Diff(want, minutes(t, "nodereboot_needed_seconds")); diff != "" {
			t.Errorf("needed later (-want +got):\n%s", diff)
		}
	})
}

// What uses up the budget is named, and since when. A reboot was granted when its Node says.
func TestUnavailableSince(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *scripted) {
		granted := with(request.Granted, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
		s.Set(node("dead", ready(corev1.ConditionUnknown)))
		s.Set(node("kept", cordoned))
		s.Set(node("fine"))
		s.Set(node("works", with(request.InProgress, "x"), granted))
		s.run()
		time.Sleep(10 * time.Minute)
		script.Edit(s.Cluster, "", "kept", with(request.Now, ""))
		time.Sleep(10 * time.Minute)
		script.Edit(s.Cluster, "", "kept", func(n *corev1.Node) {
			n.Annotations = nil
			with(request.InProgress, "x")(n)
		})
		time.Sleep(10 * time.Minute)
		want := map[string]string{"dead NotReady": "30m0s", "kept Rebooting": "20m0s", "works Rebooting": "1h30m0s"}
		if diff := cmp.Diff(want, minutes(t, "nodereboot_unavailable_seconds")); diff != "" {
			t.Errorf("unavailable (-want +got):\n%s", diff)
		}
	})
}

// When all nodes wait for the same reason, an event says so for the first ones only: the
// queue of events has little room. The rest is told when it is among the first.
func TestWaitingOfManyIsToldForAFew(t *testing.T) {
	inCluster(t, []string{"-window=Sun"}, func(t *testing.T, s *scripted) { // it is Saturday
		var agents []string
		for i := range 100 {
			agents = append(agents, fmt.Sprintf("node-%03d", i))
			s.Set(node(agents[i], needed))
		}
		s.run(agents...)
		time.Sleep(time.Second)
		if told := s.events(); len(told) != maxTold || !strings.Contains(told[0], "WindowClosed") {
			t.Errorf("%d events %.200q", len(told), told)
		}
		script.Edit(s.Cluster, "", "node-000", func(n *corev1.Node) { n.Annotations = nil })
		time.Sleep(time.Second)
		if told := s.events(); len(told) != 1 || !strings.Contains(told[0], "WindowClosed") {
			t.Errorf("when one of them waits no longer: events %q", told)
		}
	})
}

// An agent reports only once it is asked, which is no reason to report that it is silent. One that
// stays silent is.
func TestAgentHasTimeForItsFirstReport(t *testing.T) {
	inCluster(t, []string{"-max-unavailable=0"}, func(t *testing.T, s *scripted) {
		s.Set(node("a"))
		s.Set(node("b"))
		s.begin()
		script.Edit(s.Cluster, "", "a", needed)
		script.Edit(s.Cluster, "", "b", needed)
		time.Sleep(time.Second)
		s.report("a")
		time.Sleep(time.Second)
		if told := s.events(); len(told) != 1 || !strings.Contains(told[0], "BudgetIsZero") {
			t.Errorf("events %q", told)
		}
		time.Sleep(time.Minute)
		if told := s.events(); len(told) != 1 || !strings.Contains(told[0], "AgentSilent") {
			t.Errorf("after a minute: events %q", told)
		}
	})
}

// How many nodes each pool has is a metric: a selector with a typo selects none.
func TestPoolSizes(t *testing.T) {
	inCluster(t, []string{"-pool=pool=db=1;pol=db=1;rack=12"}, func(t *testing.T, s *scripted) {
		s.Set(node("a", labeled("pool", "db"), labeled("rack", "1")))
		s.Set(node("b", labeled("rack", "2")))
		s.run()
		if diff := cmp.Diff(map[string]float64{"pool=db": 1, "pol=db": 0, "rack": 2}, gauge(t, "nodereboot_pool_nodes")); diff != "" {
			t.Errorf("nodes of pools (-want +got):\n%s", diff)
		}
	})
}

// What flags select is logged once: a pool of no node, and alerts that no rule is called, protect
// nothing.
func TestSelectionsAreLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		rules []string
		err   error
		want  string
	}{
		"no rule":   {nil, nil, `"msg"="No alerting rule of Prometheus matches -alerts: check the names, unless another Prometheus evaluates them" "alerts"="Etcd.*"`},
		"rules":     {[]string{"EtcdDown", "EtcdSlow"}, nil, `"msg"="Alerts that hold reboots back" "rules"=2 "first"=["EtcdDown" "EtcdSlow"]`},
		"no answer": {nil, errors.New("404"), `"msg"="Cannot list the alerting rules of Prometheus" "err"="404"`},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, []string{"-pool=pool=db=1;pol=db=1;rack=12", "-prometheus-url=http://prometheus", "-alerts=Etcd.*"}, func(t *testing.T, s *scripted) {
				var lines []string
				logger := funcr.New(func(_, line string) { lines = append(lines, strings.TrimPrefix(line, `"level"=0 `)) }, funcr.Options{})
				s.alertRules = func(context.Context) ([]string, error) { return tt.rules, tt.err }
				s.Set(node("a", labeled("pool", "db"), labeled("rack", "1")))
				s.begin()
				s.hasLogged = false
				for range 2 {
					s.logSelections(klog.NewContext(t.Context(), logger), s.observe())
				}
				want := []string{
					`"msg"="Pool of nodes" "selector"="pool=db" "nodes"=1 "maxUnavailable"="1"`,
					`"msg"="Pool of nodes is empty: check the selector" "selector"="pol=db" "nodes"=0 "maxUnavailable"="1"`,
					`"msg"="Pool of nodes" "selector"="rack" "nodes"=1 "maxUnavailable"="12"`,
					tt.want,
				}
				if diff := cmp.Diff(want, lines); diff != "" {
					t.Errorf("logged (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A node that is back settles before the next one reboots. One whose reboot was given up does not.
func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		boot        string
		wantGranted bool
	}{
		"it is back":      {"new", false},
		"it was given up": {"old", true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(t *testing.T, s *scripted) {
				booted := func(n *corev1.Node) { n.Status.NodeInfo.BootID = "old" }
				s.Set(node("a", booted, with(request.InProgress, "x"), with(request.Granted, time.Now().UTC().Format(time.RFC3339))))
				s.Set(node("b", needed))
				s.run("a", "b")
				time.Sleep(10 * time.Minute)
				script.Edit(s.Cluster, "", "a", func(n *corev1.Node) { n.Status.NodeInfo.BootID = tt.boot })
				time.Sleep(time.Minute)
				script.Edit(s.Cluster, "", "a", func(n *corev1.Node) { delete(n.Annotations, request.InProgress) })
				time.Sleep(4 * time.Minute)
				if n := s.node("b"); request.IsGranted(n) != tt.wantGranted {
					t.Errorf("after four minutes the other one is granted its reboot: %t", request.IsGranted(n))
				}
				time.Sleep(2 * time.Minute)
				if n := s.node("b"); !request.IsGranted(n) {
					t.Error("it is never granted its reboot")
				}
			})
		})
	}
}
