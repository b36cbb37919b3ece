// Package monitoring tests the alerts and the dashboards of the chart: that alerts fire when they should
// and only then, and that every query of an alert or of the dashboard is about
// something that a real controller serves to a real Prometheus.
package monitoring

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// files has the alerts and panels that every program has, and those of each program.
const files = "../../charts/k8s-controller/files/"

// The Icecream controller is the chart's default, and its scenarios are also about what all
// programs share.
const icecream = "icecream"

// programs returns the names of the chart's programs.
func programs(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// document is where a program's alerts are explained.
func document(program string) string {
	if program == "" || program == icecream {
		return "artifacts/monitoring/README.md"
	}
	return "apps/" + program + "/README.md"
}

// promQL is the language without what Prometheus calls experimental.
var promQL = parser.NewParser(parser.Options{})

// scrapeInterval is that of the series in these tests, and of the evaluation.
const scrapeInterval = 30 * time.Second

// reporters are the labels of those who report series in the scenarios. The replicas of the
// controller are a, which leads, and b.
var reporters = map[string]string{
	"a":         `job="k8s-controller-metrics", namespace="k8s-controller-system", pod="a", instance="192.0.2.1:8443"`,
	"b":         `job="k8s-controller-metrics", namespace="k8s-controller-system", pod="b", instance="192.0.2.2:8443"`,
	"apiserver": `job="apiserver"`,
	"another":   `job="another", namespace="k8s-controller-system", instance="192.0.2.3"`,
}

// TestAlerts plays the scenarios in testdata/PROGRAM/alerts.txt. An alert fires when a scenario
// says so, and no other alert fires. testdata/icecream/alerts.txt explains the format.
func TestAlerts(t *testing.T) {
	shared := healthy(t, icecream)
	for _, program := range programs(t) {
		own := maps.Clone(shared)
		if program != icecream {
			maps.Copy(own, healthy(t, program))
		}
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			play(t, program, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "healthy" {
					return ""
				}
				return fire(t, program, own.but(t, d))
			})
		})
	}
}

// healthy are the series of a program when all is well.
func healthy(t *testing.T, program string) series {
	t.Helper()
	found := series{}
	play(t, program, func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "healthy" {
			maps.Copy(found, read(t, d))
		}
		return d.Expected
	})
	return found
}

// play reads the scenarios of a program, if it has any.
func play(t *testing.T, program string, f func(*testing.T, *datadriven.TestData) string) {
	t.Helper()
	if file := scenarios(program); exists(t, file) {
		datadriven.RunTest(t, file, f)
	}
}

func TestEveryAlertHasAScenario(t *testing.T) {
	for _, program := range append(programs(t), "") {
		own := ownAlerts(t, program, "k8s-controller")
		if len(own) == 0 {
			continue
		}
		text, err := os.ReadFile(scenarios(cmp.Or(program, icecream)))
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range own {
			if !strings.Contains(string(text), "\n"+rule.Alert+" fires after ") {
				t.Errorf("%s fires in no scenario", rule.Alert)
			}
		}
	}
}

// scenarios is the file with a program's scenarios.
func scenarios(program string) string { return "testdata/" + program + "/alerts.txt" }

// exists reports whether there is such a file.
func exists(t *testing.T, file string) bool {
	t.Helper()
	_, err := os.Stat(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// series are values in the notation of promqltest, by series. Those that say "none" stand
// for series that do not exist.
type series map[string]string

// inScenario matches who reports a series, its metric, its other labels, and its values.
var inScenario = regexp.MustCompile(`^(\S+)\s+(\w+)(?:\{(.*)\})?\s+([^{}]+)$`)

// read returns the series in the lines of a block.
func read(t *testing.T, d *datadriven.TestData) series {
	t.Helper()
	found := series{}
	for line := range strings.Lines(d.Input) {
		parts := inScenario.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil {
			d.Fatalf(t, "no series: %s", line)
		}
		for who := range strings.SplitSeq(parts[1], ",") {
			if reporters[who] == "" {
				d.Fatalf(t, "nobody is called %s", who)
			}
			name := parts[2] + "{" + reporters[who] + "," + parts[3] + "}"
			if found[name] != "" {
				d.Fatalf(t, "%s has two lines", name)
			}
			found[name] = parts[4]
		}
	}
	return found
}

// but returns the series with those of a scenario in place of healthy ones.
func (s series) but(t *testing.T, d *datadriven.TestData) series {
	t.Helper()
	changed := maps.Clone(s)
	for name, values := range read(t, d) {
		if s[name] == "" {
			d.Fatalf(t, "no healthy series is called %s", name)
		}
		changed[name] = values
	}
	return changed
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	for _, program := range append(programs(t), "") {
		for _, rule := range ownAlerts(t, program, "k8s-controller") {
			runbook, err := os.ReadFile("../../" + document(program))
			if err != nil {
				t.Fatal(err)
			}
			if want := document(program) + "#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url is %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			if !strings.Contains(string(runbook), "\n### "+rule.Alert+"\n") {
				t.Errorf("%s: the README has no such heading", rule.Alert)
			}
			for _, name := range []string{"summary", "description"} {
				if rule.Annotations[name] == "" {
					t.Errorf("%s: no %s", rule.Alert, name)
				}
			}
			if severity := rule.Labels["severity"]; !slices.Contains([]string{"critical", "warning"}, severity) {
				t.Errorf("%s: severity is %q", rule.Alert, severity)
			}
		}
	}
}

// alerts are those of a release that runs a program, with the names of that release.
func alerts(t *testing.T, program, release string) []rulefmt.Rule {
	t.Helper()
	return append(ownAlerts(t, "", release), ownAlerts(t, program, release)...)
}

// ownAlerts are those that only this program has, or, if it is empty, those that all have. The
// chart, too, has the release's name in place of its own. Prometheus' own library checks them.
func ownAlerts(t *testing.T, program, release string) (found []rulefmt.Rule) {
	t.Helper()
	file := files + program + "/alerts.yaml"
	if !exists(t, file) {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("k8s-controller"), []byte(release))
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, promQL, promslog.NewNopLogger())
	for _, err := range errs {
		t.Fatalf("%s: %v", file, err)
	}
	for _, group := range groups.Groups {
		found = append(found, group.Rules...)
	}
	for _, rule := range found {
		if rule.Alert == "" {
			t.Errorf("%s is no alert", rule.Record)
		}
	}
	return found
}

// usesLabel matches what a template takes from the labels of its alert.
var usesLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// fire evaluates the rules of a program over the series for two hours, and tells when each alert fired
// for the first time.
func fire(t *testing.T, program string, given series) string {
	t.Helper()
	load := fmt.Sprintf("load %s\n", scrapeInterval)
	for name, values := range given {
		if values != "none" {
			load += fmt.Sprintf("  %s %s\n", name, values)
		}
	}
	storage := promqltest.LoadedStorage(t, load)
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery), storage)
	var fired strings.Builder
	for _, alert := range alerts(t, program, "k8s-controller") {
		expr, err := promQL.ParseExpr(alert.Expr)
		if err != nil {
			t.Fatal(err)
		}
		rule := rules.NewAlertingRule(alert.Alert, expr, time.Duration(alert.For), time.Duration(alert.KeepFiringFor),
			labels.FromMap(alert.Labels), labels.FromMap(alert.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
		for since := time.Duration(0); since <= 2*time.Hour; since += scrapeInterval {
			if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(since), query, nil, 0); err != nil {
				t.Fatalf("%s: %v", alert.Alert, err)
			}
			firing := slices.DeleteFunc(rule.ActiveAlerts(), func(active *rules.Alert) bool { return active.State != rules.StateFiring })
			if len(firing) > 0 {
				fmt.Fprintf(&fired, "%s fires after %s\n", alert.Alert, since)
				checkWords(t, alert, firing)
				break
			}
		}
	}
	return cmp.Or(fired.String(), "no alert fires")
}

// checkWords requires that templates could be filled in.
func checkWords(t *testing.T, alert rulefmt.Rule, active []*rules.Alert) {
	t.Helper()
	for _, instance := range active {
		instance.Annotations.Range(func(l labels.Label) {
			if strings.Contains(l.Value, "error expanding") || strings.Contains(l.Value, "<no value>") {
				t.Errorf("%s: %s is %q", alert.Alert, l.Name, l.Value)
			}
			for _, label := range usesLabel.FindAllStringSubmatch(alert.Annotations[l.Name], -1) {
				if instance.Labels.Get(label[1]) == "" {
					t.Errorf("%s: %s is about label %q, which %s has not", alert.Alert, l.Name, label[1], instance.Labels)
				}
			}
		})
	}
}
