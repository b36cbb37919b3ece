package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// query is one that an alert or the dashboard makes, with all variables filled in.
type query struct {
	where   string   // who makes it
	expr    string   // as Prometheus reads it
	labels  []string // that the result is expected to have
	isEvent bool     // which is rare, so that the result may be empty
}

// dashboard is what matters here of Grafana's model of it.
type dashboard struct {
	Panels      []panel `json:"panels"`
	Annotations struct {
		List []struct {
			Name       string `json:"name"`
			BuiltIn    int    `json:"builtIn"`
			Expr       string `json:"expr"`
			TextFormat string `json:"textFormat"`
		} `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	Title   string `json:"title"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

// values are what the tests choose for the variables of a program's dashboard.
func values(program, release string) map[string]string {
	return map[string]string{
		"datasource":      "prometheus",
		"job":             release + "-metrics",
		"namespace":       release + "-system",
		"controller":      program,
		"__rate_interval": "5m", // Grafana's own
	}
}

var (
	variable    = regexp.MustCompile(`\$(\w+)|\$\{(\w+)\}`)
	inLegend    = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)
)

// dashboardQueries are all that a program's dashboard can ask.
func dashboardQueries(t *testing.T, program, release string) (found []query) {
	t.Helper()
	d, values := readDashboard(t, program), values(program, release)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatalf("variable %s: %v", v.Name, err)
		}
		parts := labelValues.FindStringSubmatch(q.Query)
		if parts == nil {
			t.Fatalf("variable %s: this test cannot read %s", v.Name, q.Query)
		}
		found = append(found, query{
			where:  "variable " + v.Name,
			expr:   fmt.Sprintf("count by (%s) (%s)", parts[2], fill(t, values, parts[1])),
			labels: []string{parts[2]},
		})
	}
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 {
			found = append(found, query{where: "annotation " + a.Name, expr: fill(t, values, a.Expr), labels: labelsIn(a.TextFormat), isEvent: true})
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			found = append(found, query{where: "panel " + p.Title, expr: fill(t, values, target.Expr), labels: labelsIn(target.LegendFormat)})
		}
	}
	if program != icecream { // Not every program has caches with selectors, for which the panels of all have a label.
		for i := range found {
			found[i].labels = slices.DeleteFunc(found[i].labels, func(label string) bool { return label == "selector" })
		}
	}
	if len(found) < 30 {
		t.Fatalf("found only %d queries", len(found))
	}
	return found
}

func readDashboard(t *testing.T, program string) (d dashboard) {
	t.Helper()
	var own []panel
	for name, into := range map[string]any{"dashboard.json": &d, program + "/panels.json": &own} {
		file, err := os.ReadFile(files + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(file, into); err != nil {
			t.Fatal(err)
		}
	}
	d.Panels = append(d.Panels, own...)
	return d
}

// fill puts values in the place of variables.
func fill(t *testing.T, values map[string]string, expr string) string {
	t.Helper()
	return variable.ReplaceAllStringFunc(expr, func(v string) string {
		name := strings.Trim(v, "${}")
		if values[name] == "" {
			t.Errorf("nobody knows a variable %s in %s", v, expr)
		}
		return values[name]
	})
}

func labelsIn(legend string) (names []string) {
	for _, match := range inLegend.FindAllStringSubmatch(legend, -1) {
		names = append(names, match[1])
	}
	return names
}
