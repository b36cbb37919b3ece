package hack

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/hack/walkthrough"
)

// The test takes minutes, and runs only if it is asked for: see `make test-drop`.
var drop = flag.String("drop", "", "controllers to drop, each from a clone, by what docs/drop-a-controller.md calls them")

// The commands of docs/drop-a-controller.md leave a repository that builds, and passes the
// linter, the checks of links, alerts and chart, and the tests of what is shipped.
func TestDropAController(t *testing.T) {
	if *drop == "" {
		t.Skip("-drop is empty")
	}
	commands, err := walkthrough.Section("../docs/drop-a-controller.md", "## Commands")
	if err != nil {
		t.Fatal(err)
	}
	for controller := range strings.FieldsSeq(*drop) {
		t.Run(controller, func(t *testing.T) {
			t.Setenv("controller", controller)
			t.Setenv("SIM_SEEDS", "10")
			dir := filepath.Join(t.TempDir(), "left")
			run := func(name string, args ...string) string {
				t.Helper()
				return walkthrough.Run(t, dir, name, args...)
			}
			walkthrough.Run(t, "..", "git", "clone", "--quiet", ".", dir)
			if files := run("git", "ls-files", "--", "pkg/*"+controller+"/*"); files == "" {
				t.Fatal("there is no such controller")
			}
			for _, block := range walkthrough.Blocks(commands) {
				run("bash", "-euo", "pipefail", "-c", block.Text)
			}
			run("git", "add", "--all")
			if files := run("git", "ls-files", "--", "*"+controller+"*"); files != "" {
				t.Errorf("left, or generated again:\n%s", files)
			}
			run("make", "build")
			for _, module := range []string{"test", "hack/tools"} {
				run("go", "-C", module, "vet", "./...")
			}
			run("hack/verify.sh", "copies", "links", "monitoring", "charts")
			run("hack/verify-lint.sh", "./...")
			run("bash", "-euo", "pipefail", "-c", "go test -vet=off $(go list ./... | grep -v /hack)")
		})
	}
}
