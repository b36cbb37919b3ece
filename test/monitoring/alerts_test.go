// Package monitoring tests the alerts and the dashboards of the chart: that alerts fire when they should
// and only then, and that every query of an alert or of a dashboard is about something that a real
// program serves.
package monitoring

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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

const (
	// files has the alerts and panels of all programs, and in directories those of each.
	files = "../../charts/k8s-controller/files"
	// all stands for what is about every program, where others name one.
	all = ""
	// icecream is the program that is not in apps.
	icecream = "icecream"

	scrapeInterval = 30 * time.Second
)

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

// promQL is the language without what Prometheus calls experimental.
var promQL = parser.NewParser(parser.Options{})

// alerts are those of a program, in a release of that name. Prometheus' own library checks them.
func alerts(t *testing.T, program, release string) (found []rulefmt.Rule) {
	t.Helper()
	file := filepath.Join(files, program, "alerts.yaml")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "k8s-controller", release)) // as the chart does
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation, promQL, promslog.NewNopLogger())
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, group := range groups.Groups {
		found = append(found, group.Rules...)
	}
	return found
}

// TestAlerts plays the scenarios in testdata/alerts.txt, which explains the format, and those in
// testdata/PROGRAM/alerts.txt. An alert fires when a scenario says so, no other alert of that
// program fires, and each fires in one of them.
func TestAlerts(t *testing.T) {
	for _, program := range append(programs(t), all) {
		alerts := alerts(t, program, "k8s-controller")
		if len(alerts) == 0 {
			continue
		}
		t.Run(cmp.Or(program, "all"), func(t *testing.T) {
			t.Parallel()
			var healthy series
			var told strings.Builder
			datadriven.RunTest(t, filepath.Join("testdata", program, "alerts.txt"), func(t *testing.T, d *datadriven.TestData) string {
				found := read(t, d)
				if d.Cmd == "healthy" {
					healthy = found
					return d.Expected
				}
				given := maps.Clone(healthy)
				for name, values := range found {
					if healthy[name] == "" {
						d.Fatalf(t, "no healthy series is called %s", name)
					}
					given[name] = values
				}
				fired := fire(t, alerts, given)
				told.WriteString(fired)
				return cmp.Or(fired, "no alert fires")
			})
			for _, alert := range alerts {
				if !strings.Contains(told.String(), alert.Alert+" fires") {
					t.Errorf("%s fires in no scenario", alert.Alert)
				}
			}
		})
	}
}

// series are values in the notation of promqltest, by series. Those that say "none" stand
// for series that do not exist.
type series map[string]string

// reporters are the labels of those who report series in the scenarios.
var reporters = map[string]string{
	"a":         `job="k8s-controller-metrics", namespace="k8s-controller-system", pod="a", instance="192.0.2.1:8443"`,
	"b":         `job="k8s-controller-metrics", namespace="k8s-controller-system", pod="b", instance="192.0.2.2:8443"`,
	"apiserver": `job="apiserver"`,
	"another":   `job="another", namespace="k8s-controller-system", instance="192.0.2.3"`,
}

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
			found[parts[2]+"{"+reporters[who]+","+parts[3]+"}"] = parts[4]
		}
	}
	return found
}

// fire evaluates alerts over the series for two hours, and tells when each fired for the first time.
func fire(t *testing.T, alerts []rulefmt.Rule, given series) string {
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
	for _, alert := range alerts {
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
			if firing := slices.IndexFunc(rule.ActiveAlerts(), func(active *rules.Alert) bool { return active.State == rules.StateFiring }); firing >= 0 {
				fmt.Fprintf(&fired, "%s fires after %s\n", alert.Alert, since)
				checkWords(t, alert, rule.ActiveAlerts()[firing])
				break
			}
		}
	}
	return fired.String()
}

// usesLabel matches what a template takes from the labels of its alert.
var usesLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// checkWords requires that templates could be filled in.
func checkWords(t *testing.T, alert rulefmt.Rule, firing *rules.Alert) {
	t.Helper()
	if text := firing.Annotations.String(); strings.Contains(text, "error expanding") {
		t.Errorf("%s: %s", alert.Alert, text)
	}
	for _, label := range usesLabel.FindAllStringSubmatch(alert.Annotations["description"], -1) {
		if !firing.Labels.Has(label[1]) {
			t.Errorf("%s: the description is about label %q, which %s has not", alert.Alert, label[1], firing.Labels)
		}
	}
}

// Each alert has an entry in the table of the document that explains it, with its severity and
// a link to what to do.
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	for _, program := range append(programs(t), all) {
		document := "artifacts/monitoring/README.md"
		if program != all && program != icecream {
			document = "apps/" + program + "/README.md"
		}
		runbook, err := os.ReadFile("../../" + document)
		if err != nil {
			t.Fatal(err)
		}
		for _, alert := range alerts(t, program, "k8s-controller") {
			heading := "#" + strings.ToLower(alert.Alert)
			if want := document + heading; alert.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url is %q, want %q", alert.Alert, alert.Annotations["runbook_url"], want)
			}
			row := fmt.Sprintf("\n| [%s](%s) | %s |", alert.Alert, heading, alert.Labels["severity"])
			for _, want := range []string{row, "\n### " + alert.Alert + "\n"} {
				if !strings.Contains(string(runbook), want) {
					t.Errorf("%s has no %q", document, want)
				}
			}
			if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
				t.Errorf("%s: no summary or no description", alert.Alert)
			}
		}
	}
}
