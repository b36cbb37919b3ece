package main

import (
	"flag"
	"testing"

	"nicoleh.io/k8s-controller/pkg/kit/flagdoc"
)

var update = flag.Bool("update", false, "update the generated part of pkg/nodereboot/README.md")

// README.md of nodereboot shows every flag of the agent.
func TestFlagReference(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("POD_NAMESPACE", "")
	var all []*flag.Flag
	flagSet(&options{}).VisitAll(func(f *flag.Flag) { all = append(all, f) })
	flagdoc.Page(t, "../../pkg/nodereboot/README.md", "reboot-agent", *update, flagdoc.Group{Title: "All flags", Flags: all})
}
