package charts

import "testing"

func TestFlagsAreTheAgentsOwn(t *testing.T) {
	requireFlags(t, "./cmd/reboot-agent", []string{
		// Templates set them, or what their defaults are made of.
		"lease-namespace", "node-name", "sentinel-file", "sentinel-state", "watch-sentinel",
		// It is the kernel's.
		"boot-id-file",
		// A Pod finds its API server.
		"kubeconfig",
		// The program only says something and ends.
		"version",
	}, "controllers", "nodereboot", "agent", "flags")
}
