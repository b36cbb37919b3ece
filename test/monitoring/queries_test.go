package monitoring

import (
	"errors"
	"io"
	"slices"
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

// sample is one line of a scrape, with the labels that Prometheus adds to it.
type sample struct {
	labels labels.Labels
	value  float64
}

// byPrometheus are series that no target has: Prometheus itself writes them.
var byPrometheus = []map[string]string{
	{"__name__": "up"},
	{"__name__": "ALERTS", "alertname": "ControllerPanics", "alertstate": "firing", "severity": "warning"},
}

// targetOf is what Prometheus knows about a Pod of a release that it scrapes.
func targetOf(release string) map[string]string {
	return map[string]string{
		"job": release + "-metrics", "namespace": release + "-system", "pod": release + "-0",
		"instance": "192.0.2.1:8443", "service": release + "-metrics", "endpoint": "https", "container": "controller",
	}
}

// findAll requires of every query of a program's alerts and dashboard that all it names
// is in the scrape, and of those of the dashboard that they have something to show.
func findAll(t *testing.T, program, release, text string) {
	scraped := samples(t, release, text)
	for _, alert := range alerts(t, program, release) {
		checkNames(t, query{where: "alert " + alert.Alert, expr: alert.Expr}, scraped)
	}
	ask := replay(t, scraped)
	for _, q := range dashboardQueries(t, program, release) {
		checkNames(t, q, scraped)
		result, err := ask(q.expr)
		if err != nil {
			t.Errorf("%s: %v\n%s", q.where, err, q.expr)
			continue
		}
		if len(result) == 0 && !q.isEvent {
			t.Errorf("%s shows nothing\n%s", q.where, q.expr)
		}
		for _, label := range q.labels {
			has := func(s promql.Sample) bool { return s.Metric.Get(label) != "" }
			if !q.isEvent && !slices.ContainsFunc(result, has) {
				t.Errorf("%s: no label %q in %s of\n%s", q.where, label, result, q.expr)
			}
		}
	}
}

// checkNames requires that each selector of a query selects something of the scrape,
// also each of the values that it has to choose from, and that all labels by which it
// selects, groups or joins are labels of that.
func checkNames(t *testing.T, q query, scraped []sample) {
	t.Helper()
	expr, err := promQL.ParseExpr(q.expr)
	if err != nil {
		t.Errorf("%s: %v\n%s", q.where, err, q.expr)
		return
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		var names []string
		switch node := node.(type) {
		case *parser.VectorSelector:
			for _, missing := range unselected(node, scraped) {
				t.Errorf("%s: the controller serves nothing for %s", q.where, missing)
			}
			for _, matcher := range node.LabelMatchers {
				names = append(names, matcher.Name)
			}
		case *parser.AggregateExpr:
			names = node.Grouping
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				names = append(slices.Clone(node.VectorMatching.MatchingLabels), node.VectorMatching.Include...)
			}
		}
		for _, label := range names {
			if !slices.ContainsFunc(selected(node, scraped), func(l labels.Labels) bool { return l.Has(label) }) {
				t.Errorf("%s: nothing has a label %q in %s", q.where, label, node)
			}
		}
		return nil
	})
}

// selected are the series that the selectors below a node select.
func selected(node parser.Node, scraped []sample) (found []labels.Labels) {
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			for _, s := range scraped {
				if matches(selector.LabelMatchers, s.labels) {
					found = append(found, s.labels)
				}
			}
		}
		return nil
	})
	return found
}

// unselected are the selector, if it selects nothing, and those of its alternatives
// that do not. Of reasons, one is enough: there is a series only while something has that reason.
func unselected(selector *parser.VectorSelector, scraped []sample) (missing []string) {
	for i, matcher := range selector.LabelMatchers {
		for _, alternative := range append(matcher.SetMatches(), "") {
			matchers := slices.Clone(selector.LabelMatchers)
			if alternative != "" && matcher.Name != "reason" {
				matchers[i] = labels.MustNewMatcher(labels.MatchEqual, matcher.Name, alternative)
			}
			if !slices.ContainsFunc(scraped, func(s sample) bool { return matches(matchers, s.labels) }) {
				missing = append(missing, (&parser.VectorSelector{Name: selector.Name, LabelMatchers: matchers}).String())
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

func matches(matchers []*labels.Matcher, l labels.Labels) bool {
	for _, m := range matchers {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

// samples reads a scrape as Prometheus does.
func samples(t *testing.T, release, text string) (found []sample) {
	t.Helper()
	target := targetOf(release)
	add := func(l labels.Labels, value float64) {
		builder := labels.NewBuilder(l)
		for name, value := range target {
			builder.Set(name, value)
		}
		found = append(found, sample{builder.Labels(), value})
	}
	lines := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			_, _, value := lines.Series()
			lines.Labels(&l)
			for name := range target {
				if l.Has(name) {
					t.Errorf("%s has a label %q, which is Prometheus' own", l, name)
				}
			}
			add(l, value)
		}
	}
	if len(found) == 0 {
		t.Fatal("the scrape is empty")
	}
	for _, l := range byPrometheus {
		add(labels.FromMap(l), 1)
	}
	return found
}

// replay stores the scrape as if it had been the same for ten minutes, and returns a
// function that asks Prometheus' engine about the end of them.
func replay(t *testing.T, scraped []sample) func(expr string) (promql.Vector, error) {
	t.Helper()
	storage := teststorage.New(t)
	appender := storage.Appender(t.Context())
	end := time.Unix(600, 0)
	for at := time.Unix(0, 0); !at.After(end); at = at.Add(scrapeInterval) {
		for _, s := range scraped {
			if _, err := appender.Append(0, s.labels, at.UnixMilli(), s.value); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := appender.Commit(); err != nil {
		t.Fatal(err)
	}
	ask := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6), storage)
	return func(expr string) (promql.Vector, error) { return ask(t.Context(), expr, end) }
}
