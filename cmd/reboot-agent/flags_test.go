package main

import (
	"flag"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/flagdoc"
)

var update = flag.Bool("update", false, "update the generated part of docs/flags.md")

// docs/flags.md shows every flag of the agent.
func TestFlagReference(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("POD_NAMESPACE", "")
	var all []*flag.Flag
	flagSet(&options{}).VisitAll(func(f *flag.Flag) { all = append(all, f) })
	flagdoc.Page(t, "../../docs/flags.md", "reboot-agent", *update, flagdoc.Group{Title: "All flags", Flags: all})
}
