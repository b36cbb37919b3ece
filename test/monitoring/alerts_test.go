// Package monitoring tests the alerts and the dashboard of the chart: that alerts fire when they should
// and only then, and that every query of an alert or of the dashboard is about
// something that a real controller serves to a real Prometheus.
package monitoring

import (
	"cmp"
	"fmt"
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
	"sigs.k8s.io/yaml"
)

// files has the dashboard, and the alerts by controller.
const files = "../../charts/k8s-controller/files/"

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

// TestAlerts plays the scenarios in testdata/alerts. An alert fires when a scenario says
// so, and no other alert fires. icecream.txt explains the format.
func TestAlerts(t *testing.T) {
	own, all := map[string]series{}, series{} // what is healthy, by file and together
	for _, file := range scenarios(t) {
		own[file] = series{}
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "healthy" {
				own[file].add(t, d)
				all.add(t, d)
			}
			return d.Expected
		})
	}
	for file, own := range own {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				switch {
				case d.Cmd == "healthy":
					return ""
				case d.HasArg("alone"):
					return fire(t, own.but(t, d))
				default:
					return fire(t, all.but(t, d))
				}
			})
		})
	}
}

func TestEveryAlertHasAScenario(t *testing.T) {
	var text strings.Builder
	for _, file := range scenarios(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	for _, rule := range alerts(t) {
		if !strings.Contains(text.String(), "\n"+rule.Alert+" fires after ") {
			t.Errorf("%s fires in no scenario", rule.Alert)
		}
	}
}

// scenarios returns the files of the scenarios.
func scenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/alerts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no scenarios: %v", err)
	}
	return files
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

// add adds healthy series.
func (s series) add(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for name, values := range read(t, d) {
		if s[name] != "" {
			d.Fatalf(t, "%s is in two blocks", name)
		}
		s[name] = values
	}
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
	runbook, err := os.ReadFile("../../artifacts/monitoring/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range alerts(t) {
		if want := "artifacts/monitoring/README.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
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

// alerts reads the rules of all controllers, and has Prometheus' own library check them.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	manifests, err := filepath.Glob(files + "alerts/*.yaml")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("there are no alerts: %v", err)
	}
	var found []rulefmt.Rule
	for _, manifest := range manifests {
		groups, errs := rulefmt.Parse(ruleFile(t, manifest), false, model.LegacyValidation, promQL, promslog.NewNopLogger())
		for _, err := range errs {
			t.Fatalf("%s: %v", manifest, err)
		}
		for _, group := range groups.Groups {
			found = append(found, group.Rules...)
		}
	}
	for _, rule := range found {
		if rule.Alert == "" {
			t.Errorf("%s is no alert", rule.Record)
		}
	}
	return found
}

// ruleFile is the spec of a PrometheusRule, which is what Prometheus itself reads.
func ruleFile(t *testing.T, name string) []byte {
	t.Helper()
	manifest, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(manifest, &object); err != nil {
		t.Fatal(err)
	}
	if object.APIVersion != "monitoring.coreos.com/v1" || object.Kind != "PrometheusRule" {
		t.Fatalf("%s is a %s of %s", name, object.Kind, object.APIVersion)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// usesLabel matches what a template takes from the labels of its alert.
var usesLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// fire evaluates all rules over the series for two hours, and tells when each alert fired
// for the first time.
func fire(t *testing.T, given series) string {
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
	for _, alert := range alerts(t) {
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
