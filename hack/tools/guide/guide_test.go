// Package guide does what docs/fork.md walks through, exactly as it stands there: it creates
// a fork, makes another controller of it, and runs that one's tests.
package guide

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/tools/walkthrough"
)

const root = "../../.."

func TestGuide(t *testing.T) {
	fork := filepath.Join(t.TempDir(), "databases")
	create, err := walkthrough.Section(root+"/docs/fork.md", "## Create a fork")
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(create, "```\n")
	command, _, _ = strings.Cut(command, "\n```")
	run(t, root, strings.TrimSuffix(command, "../databases")+"'"+fork+"'")

	section, err := walkthrough.Section(root+"/docs/fork.md", "## Database, step by step")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range walkthrough.Blocks(section) {
		if block.Language == "sh" {
			run(t, fork, block.Text)
		} else if err := block.Write(fork); err != nil {
			t.Fatal(err)
		}
	}
	walkthrough.Format(t, fork, "main.go", "controller.go", "pkg/apis", "pkg/database", "test")
}

// run runs commands of the page, and logs how long they took.
func run(t *testing.T, dir, commands string) {
	t.Helper()
	began := time.Now()
	walkthrough.Run(t, dir, "bash", "-euo", "pipefail", "-c", commands)
	t.Logf("%4.0fs  %s", time.Since(began).Seconds(), strings.TrimSpace(commands))
}
