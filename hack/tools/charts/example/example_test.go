// Package example builds the controller that CONTRIBUTING.md walks through, exactly as
// it stands there, in a copy of the tree.
package example

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/hack/tools/walkthrough"
)

const root = "../../../.."

// tables are the files that everybody edits who adds a controller; all others are new.
var tables = []string{"charts/k8s-controller/values.yaml", "main.go"}

// most is how many lines the whole controller may have, without its tests.
const most = 100

func TestExample(t *testing.T) {
	section, err := walkthrough.Section(root+"/CONTRIBUTING.md", "## To add a controller")
	if err != nil {
		t.Fatal(err)
	}
	tree := copyOfTree(t)
	before := files(t, tree)
	edited, lines := map[string]bool{}, 0
	for _, block := range walkthrough.Blocks(section) {
		if block.Language == "diff" {
			edited[block.File] = true
		}
		if !strings.HasSuffix(block.File, "_test.go") {
			lines += block.Lines()
		}
		if err := block.Write(tree); err != nil {
			t.Fatal(err)
		}
	}
	byHand := changed(t, tree, before)
	t.Logf("%d lines, in %q", lines, byHand)
	if lines >= most {
		t.Errorf("the example has %d lines, want less than %d", lines, most)
	}
	var old []string
	for file := range edited {
		old = append(old, file)
	}
	slices.Sort(old)
	if !slices.Equal(old, tables) {
		t.Errorf("it edits %q, want %q", old, tables)
	}

	walkthrough.Run(t, tree, "hack/update-manifests.sh")
	generated := slices.DeleteFunc(changed(t, tree, before), func(file string) bool { return slices.Contains(byHand, file) })
	t.Logf("generated: %q", generated)
	walkthrough.Run(t, tree, "go", "vet", ".", "./pkg/expiry")
	walkthrough.Format(t, tree, "main.go", "pkg/expiry", "test/e2e/expiry_test.go")
	walkthrough.Run(t, tree, "go", "test", "./pkg/expiry")
	walkthrough.Run(t, tree, "go", "-C", "hack/tools/charts", "test", ".")
	walkthrough.Run(t, tree, "go", "-C", "test/monitoring", "test", "-short", ".")
	if testing.Short() {
		return
	}
	walkthrough.Run(t, tree, "go", "-C", "test", "test", "-run=^(TestExpiry|TestPoliciesAreTyped|TestEveryWriteOfTheRolesIsRestricted|TestStolenTokenAndEvents)$", "./e2e")
}

// copyOfTree copies what git would commit, so that the copy is a repository, too.
func copyOfTree(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	for file := range strings.SplitSeq(strings.TrimSuffix(walkthrough.Run(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		from, to := filepath.Join(root, file), filepath.Join(tree, file)
		info, err := os.Stat(from)
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as in the tree
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// files are the contents of all files of the tree.
func files(t *testing.T, tree string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(tree, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(tree, path)
		found[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// changed are the files that are not as before.
func changed(t *testing.T, tree string, before map[string]string) (names []string) {
	t.Helper()
	for name, content := range files(t, tree) {
		if old, ok := before[name]; !ok || old != content {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
