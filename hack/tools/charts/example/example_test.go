// Package example builds the controller that CONTRIBUTING.md walks through, exactly as
// it stands there, in a copy of the tree.
package example

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../../.."

// tables are the files that everybody edits who adds a controller; all others are new.
var tables = []string{"charts/k8s-controller/values.yaml", "main.go"}

// most is how many lines the whole controller may have, without its tests.
const most = 100

func TestExample(t *testing.T) {
	section := sectionOf(t, "## To add a controller")
	tree := copyOfTree(t)
	before := files(t, tree)
	edited, lines := map[string]bool{}, 0
	block := regexp.MustCompile("(?s)(?:`([^`\n]+)`:\n\n)?```(go|yaml|diff)\n(.*?)```\n")
	file := ""
	for _, found := range block.FindAllStringSubmatch(section, -1) {
		if found[1] != "" {
			file = found[1]
		}
		path := filepath.Join(tree, file)
		content := []byte(found[3])
		if found[2] == "diff" {
			edited[file] = true
			content = patched(t, path, found[3])
			lines += strings.Count("\n"+found[3], "\n+")
		} else if !strings.HasSuffix(file, "_test.go") {
			lines += strings.Count(found[3], "\n") - strings.Count(found[3], "\n\n") // empty ones do not count
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as in the tree
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // as in the tree
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

	run(t, tree, "hack/update-manifests.sh")
	generated := slices.DeleteFunc(changed(t, tree, before), func(file string) bool { return slices.Contains(byHand, file) })
	t.Logf("generated: %q", generated)
	run(t, tree, "go", "vet", ".", "./pkg/expiry")
	run(t, tree, "gofmt", "-l", "main.go", "pkg/expiry", "test/e2e/expiry_test.go")
	run(t, tree, "go", "test", "./pkg/expiry")
	run(t, tree, "go", "-C", "hack/tools/charts", "test", ".")
	run(t, tree, "go", "-C", "test/monitoring", "test", "-short", ".")
	if testing.Short() {
		return
	}
	run(t, tree, "go", "-C", "test", "test", "-run=^(TestExpiry|TestPoliciesAreTyped|TestEveryWriteOfTheRolesIsRestricted|TestStolenTokenAndEvents)$", "./e2e")
}

// sectionOf returns the text below a heading of CONTRIBUTING.md.
func sectionOf(t *testing.T, heading string) string {
	t.Helper()
	content, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(content), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// copyOfTree copies what git would commit, so that the copy is a repository, too.
func copyOfTree(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	for file := range strings.SplitSeq(strings.TrimSuffix(output(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
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

// patched returns the file with the added lines of a diff, which has lines of context
// that are found once.
func patched(t *testing.T, path, diff string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var context, all strings.Builder
	for line := range strings.Lines(diff) {
		if line[0] == ' ' {
			context.WriteString(line[1:])
		}
		all.WriteString(line[1:])
	}
	if n := bytes.Count(content, []byte(context.String())); n != 1 {
		t.Fatalf("%s has %d times:\n%s", path, n, context.String())
	}
	return bytes.Replace(content, []byte(context.String()), []byte(all.String()), 1)
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

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%.8000s", command.Args, err, output)
	}
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%q: %v", command.Args, err)
	}
	return string(output)
}
