package main

import (
	"flag"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/flagdoc"
)

var update = flag.Bool("update", false, "update the generated parts of docs/flags.md")

// docs/flags.md shows every flag, as the controllers describe them.
func TestFlagReference(t *testing.T) {
	program := newProgram()
	flags := program.Flags()
	groups := []flagdoc.Group{{Title: "The process", Flags: flags[""]}}
	for _, d := range program.Controllers {
		if flags[d.Name] != nil {
			groups = append(groups, flagdoc.Group{Title: d.Name, Flags: flags[d.Name]})
		}
	}
	flagdoc.Page(t, "docs/flags.md", program.Name, *update, groups...)
}
