package hack

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/hack/walkthrough"
)

// TestRemove takes minutes, and runs only if it is asked for: see `make test-remove`.
var remove = flag.String("remove", "", "programs of apps to remove, each from a clone of its own, or with commas together")

// A program in apps is removed with the directories of its name, its row in the README and its
// line in CI. What is left compiles, and passes all tests that need no cluster and the checks of
// what refers to files and programs.
func TestRemove(t *testing.T) {
	if *remove == "" {
		t.Skip("-remove is empty")
	}
	t.Setenv("SIM_SEEDS", "10")
	for names := range strings.FieldsSeq(*remove) {
		t.Run(names, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "left")
			run := func(name string, args ...string) string {
				t.Helper()
				return walkthrough.Run(t, dir, name, args...)
			}
			walkthrough.Run(t, "..", "git", "clone", "--quiet", ".", dir)
			t.Run("names", func(t *testing.T) { walkthrough.Run(t, dir, "hack/verify.sh", "links") })
			var theirs []string
			for name := range strings.SplitSeq(names, ",") {
				theirs = append(theirs, "*/"+name+"/*")
				for file := range strings.FieldsSeq(run("git", "ls-files", "--", "README.md", ".github/workflows")) {
					dropLines(t, filepath.Join(dir, file), "apps/"+name+"/")
				}
			}
			run("git", append([]string{"rm", "-r", "--quiet", "--"}, theirs...)...)
			for file := range strings.FieldsSeq(run("git", "ls-files", "--", "go.mod", "**/go.mod")) {
				run("go", "-C", filepath.Dir(file), "mod", "tidy")
			}
			run("make", "generate")
			run("git", "add", "--all")
			run("git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "Remove "+names)
			if made := run("git", append([]string{"ls-files", "--"}, theirs...)...); made != "" {
				t.Errorf("generated again:\n%s", made)
			}
			for _, command := range []string{"make test", "go -C test vet -unreachable ./...", "hack/verify.sh modules links monitoring charts"} {
				words := strings.Fields(command)
				t.Run(words[0], func(t *testing.T) { walkthrough.Run(t, dir, words[0], words[1:]...) })
			}
		})
	}
}

// dropLines removes the lines of a file that contain a text.
func dropLines(t *testing.T, file, text string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var left strings.Builder
	for line := range strings.Lines(string(content)) {
		if !strings.Contains(line, text) {
			left.WriteString(line)
		}
	}
	if err := os.WriteFile(file, []byte(left.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
