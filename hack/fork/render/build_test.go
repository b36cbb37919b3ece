package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/gobuild/buildenv"
)

// Tests of this file run programs for minutes, and only if they are asked for: see
// `make test-fork`.
var (
	built  = flag.Int("built", 0, "number of forks with hostile names that are generated, vetted and generated again")
	tested = flag.Int("tested", 0, "how many of these run their unit tests, too")
	suite  = flag.String("suite", "", "what a fork by the usual answers makes, such as 'test demo'")
)

// Forks by hostile names compile, and their generated files follow from the rest.
func TestForksBuild(t *testing.T) {
	if *built == 0 {
		t.Skip("-built is 0")
	}
	random, template := newRand(t), repository(t)
	for done := 0; done < *built; {
		a := hostile(random)
		source, err := sourceFor(template, a.Controllers)
		if err != nil {
			t.Fatal(err)
		}
		files, err := source.fork(kept{Answers: a})
		if err != nil {
			continue // refused
		}
		done++
		t.Run(a.Kind, func(t *testing.T) {
			t.Logf("%+v", a)
			dir := t.TempDir()
			if err := errors.Join(write(dir, files), generate(t.Context(), dir, files)); err != nil {
				t.Fatal(err)
			}
			requireSums(t, template, dir)
			commit(t, dir, "init", "all")
			for _, module := range []string{".", "test", "hack/tools"} {
				runIn(t, filepath.Join(dir, module), "go", "vet", "./...")
			}
			runIn(t, dir, "hack/verify.sh", "links", "manifests", "modules", "paths")
			runIn(t, dir, "hack/update-codegen.sh")
			runIn(t, dir, "hack/update-manifests.sh")
			if changes := runIn(t, dir, "git", "status", "--porcelain"); changes != "" {
				t.Errorf("generating again has changed:\n%s", changes)
			}
			requireSameKit(t, template, files, a.Module)
			if done <= *tested {
				named := slices.DeleteFunc(strings.Fields(runIn(t, dir, "go", "list", "./pkg/...")), func(p string) bool {
					return isKit(strings.TrimPrefix(p, a.Module+"/") + "/")
				})
				runIn(t, dir, "go", "test", "-vet=off", ".")
				runIn(t, dir, "go", append([]string{"test", "-vet=off"}, named...)...)
			}
		})
	}
}

// isKit reports whether a file is in one of the directories whose packages know no names.
func isKit(name string) bool { return isEngine(name) && strings.HasPrefix(name, "pkg/") }

// requireSameKit requires that the fork's kit is the template's but for the module's path in
// imports, so that its tests, which the template runs, say as much about the fork's.
func requireSameKit(t *testing.T, original, fork []file, module string) {
	t.Helper()
	inKit := func(files []file) []file {
		return slices.DeleteFunc(slices.Clone(files), func(f file) bool { return !isKit(f.path) })
	}
	want := inKit(original)
	for i := range want {
		want[i].content = bytes.ReplaceAll(want[i].content, []byte(template().Module+"/"), []byte(module+"/"))
	}
	if err := sameFiles(want, inKit(fork)); err != nil {
		t.Error(err)
	}
}

// requireSums requires that the license is the template's, and so is each checksum of a
// module that the fork still needs.
func requireSums(t *testing.T, template []file, dir string) {
	t.Helper()
	for _, f := range template {
		got, err := os.ReadFile(filepath.Join(dir, f.path))
		switch {
		case !slices.Contains(verbatim, path.Base(f.path)):
		case err != nil:
			t.Error(err)
		case f.path == "LICENSE" && !bytes.Equal(got, f.content):
			t.Error("the license has changed")
		default:
			for line := range strings.Lines(string(got)) {
				if !strings.Contains(string(f.content), line) {
					t.Errorf("%s has a line that the template does not have: %s", f.path, line)
				}
			}
		}
	}
}

// The fork of the documentation runs what it is told to, `make test` in it for example, and
// then takes updates.
func TestFork(t *testing.T) {
	if *suite == "" && !*updated {
		t.Skip("-suite is empty, and -updated is false")
	}
	template := filepath.Join(t.TempDir(), "template")
	runIn(t, ".", "git", "clone", "--quiet", "../../..", template)
	dir := newFork(t, template, shelf())
	for target := range strings.FieldsSeq(*suite) {
		t.Run(target, func(t *testing.T) { runIn(t, dir, "make", target, "ONCE=1") })
	}
	if *updated {
		t.Run("update", func(t *testing.T) { testUpdate(t, template, dir) })
	}
}

// newFork makes a fork of the template that is checked out in a directory, as a user does.
func newFork(t *testing.T, template string, a Answers) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fork")
	runIn(t, template, "go", "run", "./hack/fork", "-module="+a.Module, "-group="+a.Group, "-version="+a.Version,
		"-kind="+a.Kind, "-plural="+a.Plural, "-short="+a.Short, "-controllers="+strings.Join(a.Controllers, ","), "-dir="+dir)
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
	env, err := buildenv.Read("../../..")
	if err != nil {
		return "", err
	}
	command.Env = append(append(os.Environ(), env...), "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	t.Logf("%s %s: %.1fs", name, strings.Join(args, " "), time.Since(start).Seconds())
	if err != nil {
		return stdout.String(), fmt.Errorf("%s %s in %s: %w\n%s%s", name, strings.Join(args, " "), dir, err, tail(stdout.String()), tail(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// tail returns the end of what a command has printed, without what says only that a package
// is in order.
func tail(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "ok ") && !strings.HasSuffix(line, "[no test files]\n") {
			kept.WriteString(line)
		}
	}
	return kept.String()[max(0, kept.Len()-8000):]
}

// commit commits all changes in a directory. For the first commit, git init comes before.
func commit(t *testing.T, dir string, messages ...string) {
	t.Helper()
	if messages[0] == "init" {
		runIn(t, dir, "git", "init", "--quiet")
	}
	runIn(t, dir, "git", "add", "--all")
	runIn(t, dir, "git", "commit", "--quiet", "--message", messages[len(messages)-1])
}
