// Package guide does what docs/fork.md walks through, exactly as it stands there: it creates
// a fork, makes another controller of it, and runs that one's tests.
package guide

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/tools/walkthrough"
)

const root = "../../.."

// mostCode is how many lines the walk-through may have, without its tests.
const mostCode = 700

func TestGuide(t *testing.T) {
	section, err := walkthrough.Section(root+"/docs/fork.md", "## Database, step by step")
	if err != nil {
		t.Fatal(err)
	}
	fork := filepath.Join(t.TempDir(), "databases")
	measured(t, "creating the fork", func() { newFork(t, fork) })
	var code, tests int
	for _, block := range walkthrough.Blocks(section) {
		switch {
		case block.Language != "sh":
			if err := block.Write(fork); err != nil {
				t.Fatal(err)
			}
			if isTest := strings.HasSuffix(block.File, "_test.go") || strings.HasPrefix(block.File, "test"); isTest {
				tests += block.Lines()
			} else {
				code += block.Lines()
			}
		case testing.Short() && strings.Contains(block.Text, "test-e2e"):
		default:
			measured(t, block.Text, func() { walkthrough.Run(t, fork, "bash", "-euo", "pipefail", "-c", block.Text) })
		}
	}
	t.Logf("%d lines, and %d of tests", code, tests)
	if code > mostCode {
		t.Errorf("the walk-through has %d lines, want at most %d", code, mostCode)
	}
	walkthrough.Format(t, fork, "children.go", "pkg/apis", "pkg/database", "test")
}

// command is how the page creates a fork.
var command = regexp.MustCompile(`(?m)^go run \./hack/fork -module example\.com/databases .* -dir (\S+)$`)

// newFork creates the fork that the walk-through begins with, as the page says.
func newFork(t *testing.T, dir string) {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/fork.md")
	if err != nil {
		t.Fatal(err)
	}
	found := command.FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/fork.md has no command that matches %s", command)
	}
	walkthrough.Run(t, root, "bash", "-euo", "pipefail", "-c", strings.TrimSuffix(string(found[0]), string(found[1]))+"'"+dir+"'")
}

// measured logs how long a step took.
func measured(t *testing.T, what string, step func()) {
	t.Helper()
	began := time.Now()
	step()
	t.Logf("%4.0fs  %s", time.Since(began).Seconds(), strings.TrimSpace(what))
}
