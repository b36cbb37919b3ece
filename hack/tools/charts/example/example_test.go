// Package example builds the controller that docs/add-a-controller.md walks through,
// exactly as it stands there, in a clone of the repository.
package example

import (
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/hack/walkthrough"
)

const root = "../../../.."

// most is how many lines the whole controller may have, without its tests.
const most = 130

func TestExample(t *testing.T) {
	section, err := walkthrough.Section(root+"/docs/add-a-controller.md", "## Step by step")
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	walkthrough.Run(t, root, "git", "clone", "--quiet", ".", tree)
	lines := 0
	for _, block := range walkthrough.Blocks(section) {
		if !strings.HasSuffix(block.File, "_test.go") {
			lines += block.Lines()
		}
		if err := block.Write(tree); err != nil {
			t.Fatal(err)
		}
	}
	if lines >= most {
		t.Errorf("the example has %d lines, want less than %d", lines, most)
	}
	walkthrough.Run(t, tree, "hack/update-manifests.sh")
	t.Logf("%d lines by hand; changed files:\n%s", lines, walkthrough.Run(t, tree, "git", "status", "--porcelain"))
	walkthrough.Run(t, tree, "go", "vet", ".", "./pkg/expiry")
	walkthrough.Format(t, tree, "main.go", "pkg/expiry", "test/e2e/expiry_test.go")
	walkthrough.Run(t, tree, "go", "test", "./pkg/expiry")
	walkthrough.Run(t, tree, "hack/verify-charts.sh")
	walkthrough.Run(t, tree, "go", "-C", "test/monitoring", "test", "-short", ".")
	if testing.Short() {
		return
	}
	walkthrough.Run(t, tree, "go", "-C", "test", "test", "-run=^(TestExpiry|TestPoliciesAreTyped|TestEveryWriteOfTheRolesIsRestricted|TestStolenTokenAndEvents)$", "./e2e")
}
