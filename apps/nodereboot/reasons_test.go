package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The alerts and the dashboard ask for reasons by their names, and README names them all.
func TestReasonsAreNamed(t *testing.T) {
	waiting := []string{
		AgentSilent, AgentUnable, AlertFires, AlertsUnknown, AttemptFailed, BadTime, BudgetIsUsedUp, BudgetIsZero, DrainBlocked, NotBefore,
		PodRuns, PodsUnknown, RebootFailed, Refused, TooSoon, WindowClosed,
	}
	unavailable := []string{Chosen, Granted, Rebooting, NotReady, Cordoned, Settling}
	files := filepath.Join("..", "..", "charts", "k8s-controller", "files", "nodereboot")
	for _, name := range []string{"alerts.yaml", "panels.json"} {
		text, err := os.ReadFile(filepath.Join(files, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`reason(?:=|=~|!=|!~)\\?"([^"\\]+)`).FindAllStringSubmatch(string(text), -1) {
			for reason := range strings.SplitSeq(match[1], "|") {
				if !slices.Contains(slices.Concat(waiting, unavailable), reason) {
					t.Errorf("%s asks for the reason %s, which does not exist", name, reason)
				}
			}
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range slices.Concat(waiting, unavailable) {
		if !strings.Contains(string(readme), "`"+reason+"`") {
			t.Errorf("README does not have the reason %s", reason)
		}
	}
}
