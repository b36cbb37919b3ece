// Command derive writes what follows from the controllers of this repository and from
// the chart's values: the chart's files/controllers.json, what is missing in its
// values.schema.json, and a row on the dashboard for each controller that has none. It
// reads what "controller -describe" prints, and prints one line for each controller, of
// its name and of whether it is on by default.
//
// The schema and the dashboard may say more than can be derived: what is there already
// stays as it is.
package main

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

	"sigs.k8s.io/yaml"
)

// controller is what is known of one, as pkg/kit/manager describes it.
type controller struct {
	Name        string `json:"name"`
	OnByDefault bool   `json:"onByDefault"`
	ClusterWide bool   `json:"clusterWide"`
	Flags       []struct {
		Name    string `json:"name"`
		Type    string `json:"type"`
		Default string `json:"default"`
	} `json:"flags"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: controller -describe | derive TREE")
		os.Exit(2)
	}
	if err := derive(os.Stdin, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

func derive(description io.Reader, names io.Writer, tree string) error {
	var controllers []controller
	if err := json.NewDecoder(description).Decode(&controllers); err != nil {
		return fmt.Errorf("reading the description: %w", err)
	}
	chart := filepath.Join(tree, "charts", "k8s-controller")
	var values struct {
		Controllers map[string]map[string]any `json:"controllers"`
	}
	content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		return err
	}
	list, err := json.MarshalIndent(controllers, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(chart, "files", "controllers.json"), append(list, '\n'), 0o644); err != nil { //nolint:gosec // like all files of the tree
		return err
	}
	for _, c := range controllers {
		block, ok := values.Controllers[c.Name]
		if enabled, isBool := block["enabled"].(bool); !ok || !isBool || enabled != c.OnByDefault {
			return fmt.Errorf("values.yaml: controllers.%s.enabled has to be %t", c.Name, c.OnByDefault)
		}
		if _, err := fmt.Fprintln(names, c.Name, c.OnByDefault); err != nil {
			return err
		}
	}
	return errors.Join(
		edit(filepath.Join(chart, "values.schema.json"), func(text string) (string, error) {
			return schema(text, controllers, values.Controllers)
		}),
		edit(filepath.Join(tree, "artifacts", "monitoring", "dashboard.json"), func(text string) (string, error) {
			return dashboard(text, controllers)
		}),
	)
}

func edit(file string, change func(string) (string, error)) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	after, err := change(string(before))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if after == string(before) {
		return nil
	}
	return os.WriteFile(file, []byte(after), 0o644) //nolint:gosec // like all files of the tree
}

// schema adds to the text of the schema what controllers and flags it does not have.
func schema(text string, controllers []controller, values map[string]map[string]any) (string, error) {
	var has struct {
		Properties struct {
			Controllers, Flags struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(text), &has); err != nil {
		return "", err
	}
	for _, c := range controllers {
		if has.Properties.Controllers.Properties[c.Name] == nil {
			block, err := json.Marshal(typeOf(values[c.Name]))
			if err != nil {
				return "", err
			}
			if text, err = addProperty(text, "controllers", c.Name, string(block)); err != nil {
				return "", err
			}
		}
		byValue := paths(c.Name, values[c.Name])
		for _, f := range c.Flags {
			if has.Properties.Flags.Properties[f.Name] != nil || slices.Contains(byValue, f.Name) {
				continue
			}
			kind := `{"type": "` + f.Type + `"}`
			if f.Type == "duration" {
				kind = `{"$ref": "#/$defs/duration"}`
			}
			var err error
			if text, err = addProperty(text, "flags", f.Name, kind); err != nil {
				return "", err
			}
		}
	}
	return text, nil
}

// addProperty adds a property to one of the objects at the top of the schema.
func addProperty(text, object, name, value string) (string, error) {
	head := `    "` + object + `": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
`
	before, after, ok := strings.Cut(text, head)
	if !ok {
		return "", fmt.Errorf("no object %s", object)
	}
	return before + head + `        "` + name + `": ` + value + ",\n" + after, nil
}

// typeOf returns the schema of a value.
func typeOf(value any) map[string]any {
	switch value := value.(type) {
	case map[string]any:
		properties := map[string]any{}
		for key, inner := range value {
			properties[key] = typeOf(inner)
		}
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	case bool:
		return map[string]any{"type": "boolean"}
	case float64:
		return map[string]any{"type": "number"}
	case []any:
		return map[string]any{"type": "array"}
	default:
		return map[string]any{"type": "string"}
	}
}

var capital = regexp.MustCompile(`[A-Z]`)

// paths returns the flags that the values of a block stand for: statusWindow of icecream
// is icecream-status-window.
func paths(prefix string, block map[string]any) (names []string) {
	for key, value := range block {
		name := prefix + "-" + strings.ToLower(capital.ReplaceAllString(key, "-$0"))
		if inner, ok := value.(map[string]any); ok {
			names = append(names, paths(name, inner)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// dashboard adds a row for each controller that is not on by default and has none. The
// other rows are about all controllers, or about one that is always there.
func dashboard(text string, controllers []controller) (string, error) {
	for _, c := range controllers {
		var has struct {
			Panels []struct {
				ID      int
				Title   string
				GridPos struct{ H, Y int }
			}
		}
		if err := json.Unmarshal([]byte(text), &has); err != nil {
			return "", err
		}
		id, y, hasRow := 0, 0, c.OnByDefault
		for _, p := range has.Panels {
			id, y, hasRow = max(id, p.ID), max(y, p.GridPos.Y+p.GridPos.H), hasRow || p.Title == c.Name
		}
		if hasRow {
			continue
		}
		const end = "\n    }\n  ]\n}\n"
		if !strings.HasSuffix(text, end) {
			return "", errors.New("the panels are not the last of it")
		}
		text = strings.TrimSuffix(text, end) + "\n    },\n" + strings.NewReplacer(
			"NAME", c.Name, "ROW_ID", fmt.Sprint(id+1), "ROW_Y", fmt.Sprint(y), "PANEL_ID", fmt.Sprint(id+2), "PANEL_Y", fmt.Sprint(y+1)).Replace(row) + "  ]\n}\n"
	}
	return text, nil
}

// row is a row of the dashboard with what every controller reports.
const row = `    {
      "type": "row",
      "id": ROW_ID,
      "title": "NAME",
      "collapsed": false,
      "panels": [],
      "gridPos": {
        "h": 1,
        "w": 24,
        "x": 0,
        "y": ROW_Y
      }
    },
    {
      "type": "timeseries",
      "id": PANEL_ID,
      "title": "Syncs of NAME",
      "description": "Syncs per second by result.",
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "h": 8,
        "w": 24,
        "x": 0,
        "y": PANEL_Y
      },
      "targets": [
        {
          "refId": "A",
          "datasource": {
            "type": "prometheus",
            "uid": "${datasource}"
          },
          "expr": "sum by (result) (rate(controller_sync_duration_seconds_count{job=~\"$job\", namespace=~\"$namespace\", controller=\"NAME\"}[$__rate_interval]))",
          "legendFormat": "{{result}}",
          "instant": false,
          "range": true
        }
      ],
      "fieldConfig": {
        "defaults": {
          "unit": "ops",
          "min": 0,
          "noValue": "off",
          "color": {
            "mode": "palette-classic"
          },
          "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25,
            "showPoints": "never",
            "spanNulls": false,
            "stacking": {
              "mode": "normal",
              "group": "A"
            }
          }
        },
        "overrides": []
      },
      "options": {
        "legend": {
          "displayMode": "table",
          "placement": "bottom",
          "showLegend": true,
          "calcs": [
            "lastNotNull",
            "max"
          ]
        },
        "tooltip": {
          "mode": "multi",
          "sort": "desc"
        }
      }
    }
`
