package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Tests of this file run programs for minutes, and only if they are asked for: see
// `make test-fork`.
var (
	built   = flag.Int("built", 0, "number of forks with hostile names that are generated, vetted and generated again")
	tested  = flag.Int("tested", 0, "how many of these run their unit tests, too")
	updated = flag.Bool("updated", false, "test updates of a fork")
	suite   = flag.String("suite", "", "what a fork by the usual answers makes, such as 'test demo'")
)

// What cannot be done is refused before anything is written.
func TestRefused(t *testing.T) {
	occupied, empty := t.TempDir(), t.TempDir()
	dirty := t.TempDir()
	runIn(t, dirty, "git", "init", "--quiet")
	for _, file := range []string{filepath.Join(occupied, "file"), filepath.Join(dirty, originFile)} {
		if err := os.WriteFile(file, []byte("answers: {}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no directory", []string{"-kind", "Shelf"}, "-dir is missing"},
		{"an occupied directory", []string{"-dir", occupied}, "not empty"},
		{"a directory that is a file", []string{"-dir", filepath.Join(occupied, "file", "x")}, "not a directory"},
		{"a directory inside", []string{"-dir", "pantry"}, "inside of the template"},
		{"a name that is missing", []string{"-dir", empty, "-kind", "Shelf"}, "-module is missing"},
		{"an unknown flag", []string{"-knd", "Shelf"}, "-knd"},
		{"an argument", []string{"-dir", empty, "Shelf"}, `"Shelf" is not a flag`},
		{"an update of nothing", []string{"update"}, "-dir is missing"},
		{"an update of what is no fork", []string{"update", "-dir", empty}, "not a fork"},
		{"an update of a fork with changes", []string{"update", "-dir", dirty}, "not committed"},
	} {
		err := run(t.Context(), tt.args)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", tt.name, err, tt.want)
		}
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}

// Forks by hostile names compile, and their generated files follow from the rest.
func TestForksBuild(t *testing.T) {
	if *built == 0 {
		t.Skip("-built is 0")
	}
	random, files := newRand(t), repository(t)
	for done := 0; done < *built; {
		a := hostile(random)
		if _, err := forked(files, a); err != nil {
			continue // refused
		}
		done++
		t.Run(a.Kind, func(t *testing.T) {
			t.Logf("%+v", a)
			dir := newFork(t, "../..", a)
			for _, module := range []string{".", "test", "hack/tools"} {
				runIn(t, filepath.Join(dir, module), "go", "vet", "./...")
			}
			runIn(t, dir, "hack/verify.sh", "copies", "links", "modules")
			runIn(t, dir, "make", "generate")
			if changes := runIn(t, dir, "git", "status", "--porcelain"); changes != "" {
				t.Errorf("generating again has changed:\n%s", changes)
			}
			if done <= *tested { // Of pkg/kit, only the module's path has changed.
				runIn(t, dir, "bash", "-c", "go test -vet=off . $(go list ./pkg/... | grep -v -e pkg/kit/ -e pkg/kittest)")
			}
		})
	}
}

// The fork of the documentation runs what it is told to, `make test` in it for example, and
// then takes updates.
func TestFork(t *testing.T) {
	if *suite == "" && !*updated {
		t.Skip("-suite is empty, and -updated is false")
	}
	template := filepath.Join(t.TempDir(), "template")
	runIn(t, ".", "git", "clone", "--quiet", "../..", template)
	dir := newFork(t, template, shelf())
	for target := range strings.FieldsSeq(*suite) {
		t.Run(target, func(t *testing.T) { runIn(t, dir, "make", target, "ONCE=1") })
	}
	if *updated {
		t.Run("update", func(t *testing.T) { testUpdate(t, template, dir) })
	}
}

// testUpdate tests updates of a fork of the template that is checked out in a directory.
// Both sides change the same files; only where they change the same lines is a conflict.
func testUpdate(t *testing.T, template, dir string) {
	t.Helper()
	const types = "pkg/apis/pantry/v1alpha1/types.go"
	insert(t, dir, types, "type ShelfSpec struct {\n", "\t// color is a color.\n\t// +optional\n\tColor string `json:\"color,omitempty\"`\n\n")
	insert(t, dir, "pkg/shelf/color.go", "", "package shelf\n\nimport \"example.com/pantry/pkg/apis/pantry/v1alpha1\"\n\n// Color returns a color.\nfunc Color(spec v1alpha1.ShelfSpec) string { return spec.Color }\n")
	insert(t, dir, "pkg/shelf/deployment.go", "\tsetDependent(pods.Spec)\n", "\tif color := Color(sh.Spec); color != \"\" {\n\t\tpods.WithAnnotations(map[string]string{\"example.com/color\": color})\n\t}\n")
	insert(t, dir, "Makefile", "", "\n# Ours.\n")
	insert(t, dir, "README.md", "# ", "Shelves: ")
	runIn(t, dir, "make", "generate")
	commitAll(t, dir)

	insert(t, template, "pkg/apis/samplecontroller/v1alpha1/types.go", "type IcecreamStatus struct {\n", "\t// flavor is a flavor.\n\t// +optional\n\tFlavor string `json:\"flavor,omitempty\"`\n\n")
	insert(t, template, "pkg/icecream/flavor.go", "", "package icecream\n\n// Flavor of Icecreams.\nconst Flavor = \"vanilla\"\n")
	insert(t, template, "README.md", "", "\nMore about Icecreams.\n")
	commitAll(t, template)
	runIn(t, template, "go", "run", "./hack/fork", "update", "-dir", dir)
	runIn(t, dir, "make", "generate")
	for file, texts := range map[string][]string{
		types:                               {"\tColor string", "\tFlavor string"},
		"README.md":                         {"# Shelves: ", "\nMore about Shelves.\n"},
		"pkg/shelf/color.go":                {"Color"},
		"pkg/shelf/flavor.go":               {"package shelf", "Flavor of Shelves"},
		"Makefile":                          {"# Ours."},
		"artifacts/examples/crd-shelf.yaml": {"color:", "flavor:"},
	} {
		for _, text := range texts {
			if !strings.Contains(read(t, dir, file), text) {
				t.Errorf("after the update, %s has no %q", file, text)
			}
		}
	}
	if changes := runIn(t, dir, "git", "status", "--porcelain"); changes != "" {
		t.Logf("generating has changed:\n%s", changes)
		commitAll(t, dir)
	}
	runIn(t, dir, "go", "vet", ".", "./pkg/...")
	runIn(t, dir, "go", "test", "-vet=off", ".", "./pkg/shelf/...")

	if said := runIn(t, template, "go", "run", "./hack/fork", "update", "-dir", dir); !strings.Contains(said, "has not changed") {
		t.Errorf("a second update from the same commit says %q", said)
	}

	insert(t, template, "README.md", "# ", "The ")
	insert(t, template, "SECURITY.md", "", "\nOne more line.\n")
	commitAll(t, template)
	if _, err := try(t, template, "go", "run", "./hack/fork", "update", "-dir", dir); err == nil || !strings.Contains(err.Error(), "both sides have changed the same lines") {
		t.Errorf("both sides have changed a line, and the update says: %v", err)
	}
	if conflicts := runIn(t, dir, "git", "diff", "--name-only", "--diff-filter=U"); conflicts != "README.md" {
		t.Errorf("conflicts in %q, want one in README.md", conflicts)
	}
	if !strings.HasSuffix(read(t, dir, "SECURITY.md"), "\nOne more line.\n") {
		t.Error("what is not in conflict was not merged")
	}
}

// insert inserts a text after the first occurrence of another, or else at the end of a file.
func insert(t *testing.T, dir, file, after, text string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	at := len(content)
	if after != "" {
		if at = bytes.Index(content, []byte(after)); at < 0 {
			t.Fatalf("%s has no %q", file, after)
		}
		at += len(after)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(string(content[:at])+text+string(content[at:])), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func commitAll(t *testing.T, dir string) {
	t.Helper()
	runIn(t, dir, "git", "add", "--all")
	runIn(t, dir, "git", "commit", "--quiet", "--message", "A change")
}

// newFork makes a fork of the template that is checked out in a directory, as a user does.
func newFork(t *testing.T, template string, a Answers) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fork")
	runIn(t, template, "go", "run", "./hack/fork", "-module="+a.Module, "-group="+a.Group, "-version="+a.Version,
		"-kind="+a.Kind, "-plural="+a.Plural, "-short="+a.Short, "-dir="+dir)
	return dir
}

// runIn runs a command in a directory, and returns what it prints.
func runIn(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	output, err := try(t, dir, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func try(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	start := time.Now()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	t.Logf("%s %s: %.1fs", name, strings.Join(args, " "), time.Since(start).Seconds())
	if err != nil {
		out := stdout.String()
		return out, fmt.Errorf("%s %s in %s: %w\n%s%s", name, strings.Join(args, " "), dir, err, out[max(0, len(out)-8000):], stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}
