package hack

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
			dir := filepath.Join(t.TempDir(), "left")
			run := func(name string, args ...string) string {
				t.Helper()
				start := time.Now()
				command := exec.CommandContext(t.Context(), name, args...)
				command.Dir = dir
				command.Env = append(os.Environ(), "controller="+controller, "SIM_SEEDS=10")
				output, err := command.CombinedOutput()
				if err != nil {
					t.Fatalf("%q: %v\n%s", command.Args, err, output)
				}
				busy := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
				t.Logf("%.60q: %s, %s of processor time", command.Args, time.Since(start).Round(time.Second), busy.Round(time.Second))
				return string(output)
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
