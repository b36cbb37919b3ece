package manager

import (
	"encoding/json"
	"flag"
	"io"
	"time"
)

// Description is what -describe prints of a controller, for programs that derive
// something from it: the chart's schema, manifests, tests, documentation.
type Description struct {
	Name        string            `json:"name"`
	OnByDefault bool              `json:"onByDefault"`
	ClusterWide bool              `json:"clusterWide"`
	Flags       []FlagDescription `json:"flags"`
}

// FlagDescription is what -describe prints of a controller's flag.
type FlagDescription struct {
	Name string `json:"name"`
	// Type is boolean, integer, number, duration or string.
	Type    string `json:"type"`
	Default string `json:"default"`
	Usage   string `json:"usage"`
}

// describe writes the controllers as JSON, in the order of the table.
func (m Manager) describe(w io.Writer) error {
	all := []Description{}
	for _, d := range m.Controllers {
		description := Description{d.Name, d.OnByDefault, d.ClusterWide, []FlagDescription{}}
		d.flagSet().VisitAll(func(f *flag.Flag) {
			description.Flags = append(description.Flags, FlagDescription{f.Name, typeOf(f.Value), f.DefValue, f.Usage})
		})
		all = append(all, description)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(all)
}

// typeOf returns the type of a flag, as FlagDescription has it.
func typeOf(value flag.Value) string {
	getter, ok := value.(flag.Getter)
	if !ok {
		return "string"
	}
	switch getter.Get().(type) {
	case bool:
		return "boolean"
	case int, int64, uint, uint64:
		return "integer"
	case float64:
		return "number"
	case time.Duration:
		return "duration"
	default:
		return "string"
	}
}
