package main

import (
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/internal/flags"
)

func TestParse(t *testing.T) {
	t.Setenv("NODE_NAME", "node-1")
	t.Setenv("REBOOT_AGENT_DRAIN_FORCE", "true")
	var o options
	if err := flags.Parse("reboot-agent", []string{"--drain-timeout=5m", "-reboot-command=systemctl reboot"}, o.flagSet()); err != nil {
		t.Fatal(err)
	}
	if o.agent.NodeName != "node-1" || !o.agent.Force || o.agent.Limits.Drain != 5*time.Minute || o.command != "systemctl reboot" {
		t.Errorf("got %+v", o)
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no node", []string{"-node-name="}, "$NODE_NAME"},
		{"a node that cannot exist", []string{"-node-name=Node_1"}, `"Node_1"`},
		{"no file for the state of the sentinel", []string{"-watch-sentinel"}, "-sentinel-state"},
		{"no time to drain", []string{"-drain-timeout=0"}, "-drain-timeout"},
		{"a negative interval", []string{"-look-every=-1s"}, "-look-every"},
		{"an argument that is not a flag", []string{"reboot"}, `"reboot"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var o options
			err := flags.Parse("reboot-agent", append([]string{"-node-name=node-1"}, tt.args...), o.flagSet())
			if err == nil {
				err = run(t.Context(), o)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %s", err, tt.want)
			}
		})
	}
}
