package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
)

// query is one that an alert or a dashboard makes.
type query struct {
	where  string   // who makes it
	expr   string   // as Prometheus reads it
	labels []string // that its result has
	shows  bool     // whether it always has a result
}

// queries are all of a program in a release.
func queries(t *testing.T, program, release string) (found []query) {
	t.Helper()
	for _, alert := range append(alerts(t, all, release), alerts(t, program, release)...) {
		found = append(found, query{where: "alert " + alert.Alert, expr: alert.Expr})
	}
	type panel struct {
		ID      int
		Title   string
		Targets []struct{ Expr, LegendFormat string }
	}
	var dashboard struct {
		Annotations struct {
			List []struct{ Name, Expr string }
		}
		Templating struct {
			List []struct{ Query any }
		}
		Panels []panel
	}
	var own []panel
	for file, into := range map[string]any{"dashboard.json": &dashboard, program + "/panels.json": &own} {
		text, err := os.ReadFile(filepath.Join(files, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	for _, annotation := range dashboard.Annotations.List {
		found = append(found, query{where: "annotation " + annotation.Name, expr: annotation.Expr})
	}
	for _, variable := range dashboard.Templating.List {
		if parts := labelValues.FindStringSubmatch(fmt.Sprint(variable.Query)); parts != nil {
			found = append(found, query{where: "variable " + parts[2], expr: parts[1], labels: parts[2:], shows: true})
		}
	}
	ids := map[int]string{}
	for _, panel := range append(dashboard.Panels, own...) {
		if ids[panel.ID] != "" {
			t.Errorf("panels %s and %s have the same id", ids[panel.ID], panel.Title)
		}
		ids[panel.ID] = panel.Title
		for _, target := range panel.Targets {
			q := query{where: "panel " + panel.Title, expr: target.Expr, shows: true}
			for _, label := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if label[1] != "selector" || program == icecream { // not every program has caches with selectors
					q.labels = append(q.labels, label[1])
				}
			}
			found = append(found, q)
		}
	}
	chosen := strings.NewReplacer("$job", release+"-metrics", "$namespace", release+"-system", "$__rate_interval", "5m")
	for i := range found {
		found[i].expr = chosen.Replace(found[i].expr)
	}
	return found
}

// TestQueries requires that Prometheus can read every query; TestOnACluster makes them.
func TestQueries(t *testing.T) {
	for _, program := range programs(t) {
		for _, q := range queries(t, program, "k8s-controller") {
			if _, err := promQL.ParseExpr(q.expr); err != nil {
				t.Errorf("%s of %s: %v\n%s", q.where, program, err, q.expr)
			}
		}
	}
}

var (
	inLegend    = regexp.MustCompile(`\{\{(\w+)\}\}`)
	labelValues = regexp.MustCompile(`label_values\((.+), (\w+)\)`)
)

// checkQuery requires that each selector of a query selects something, also each of the values
// that it has to choose from; that all labels by which it groups or joins are labels of that; and
// that it shows what it should.
func checkQuery(t *testing.T, q query, ask func(expr string) promql.Vector) {
	t.Helper()
	expr, err := promQL.ParseExpr(q.expr)
	if err != nil {
		t.Fatal(err)
	}
	var selected promql.Vector
	var names []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			for _, selector := range alternatives(node) {
				found := ask(selector)
				if len(found) == 0 {
					t.Errorf("%s: nothing is served for %s", q.where, selector)
				}
				selected = append(selected, found...)
			}
		case *parser.AggregateExpr:
			names = append(names, node.Grouping...)
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				names = append(names, node.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	requireLabels(t, q, names, selected)
	if q.shows {
		result := ask(q.expr)
		if len(result) == 0 {
			t.Errorf("%s shows nothing\n%s", q.where, q.expr)
		}
		requireLabels(t, q, q.labels, result)
	}
}

func requireLabels(t *testing.T, q query, names []string, found promql.Vector) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(found, func(s promql.Sample) bool { return s.Metric.Has(name) }) {
			t.Errorf("%s: nothing has a label %q\n%s", q.where, name, q.expr)
		}
	}
}

// alternatives are a selector, and one for each of the values that it has to choose from. Of reasons,
// one is enough: there is a series only while something has that reason.
func alternatives(selector *parser.VectorSelector) []string {
	all := []string{(&parser.VectorSelector{LabelMatchers: selector.LabelMatchers}).String()}
	for i, matcher := range selector.LabelMatchers {
		for _, value := range matcher.SetMatches() {
			if matcher.Name != "reason" {
				matchers := slices.Clone(selector.LabelMatchers)
				matchers[i] = labels.MustNewMatcher(labels.MatchEqual, matcher.Name, value)
				all = append(all, (&parser.VectorSelector{LabelMatchers: matchers}).String())
			}
		}
	}
	return all
}

// prometheus has stored a scrape of a release, with the labels that it adds and the series that it
// writes itself, for ten minutes. It returns a function that asks it about the end of them.
func prometheus(t *testing.T, release, text string) func(expr string) promql.Vector {
	t.Helper()
	target := map[string]string{
		"job": release + "-metrics", "namespace": release + "-system", "pod": release + "-0", "instance": "192.0.2.1:8443",
	}
	text += "# TYPE up gauge\nup 1\n# TYPE ALERTS gauge\nALERTS{alertname=\"ControllerPanics\",alertstate=\"firing\"} 1\n"
	storage := teststorage.New(t)
	appender := storage.Appender(t.Context())
	end := time.Unix(600, 0)
	lines := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var served labels.Labels
		_, _, value := lines.Series()
		lines.Labels(&served)
		builder := labels.NewBuilder(served)
		for name, value := range target {
			if served.Has(name) {
				t.Errorf("%s has a label %q, which is Prometheus' own", served, name)
			}
			builder.Set(name, value)
		}
		for at := time.Unix(0, 0); !at.After(end); at = at.Add(scrapeInterval) {
			if _, err := appender.Append(0, builder.Labels(), at.UnixMilli(), value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := appender.Commit(); err != nil {
		t.Fatal(err)
	}
	ask := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6), storage)
	return func(expr string) promql.Vector {
		t.Helper()
		result, err := ask(t.Context(), expr, end)
		if err != nil {
			t.Errorf("%v\n%s", err, expr)
		}
		return result
	}
}
