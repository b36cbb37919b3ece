package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// These tests put defects into the shipped code, and require that the exploration finds them.

var (
	mutantNames = flag.String("mutants", "^(failure-is-success|no-first-keys|status-error-dropped)$",
		"Explore those files of testdata/mutants whose name matches.")
	writeMutants = flag.Bool("write-mutants", false, "Write docs/mutants.md.")
)

// mutant is a defect, as a patch in testdata/mutants.
type mutant struct {
	name, class, test, bounds, sentence string
	files                               []string // that the patch changes
	patch                               []byte
}

// killed is what TestExplore finds in a mutant.
type killed struct {
	mutant
	steps int
	wrong string
}

// Each mutant fails within bounds within which the shipped code does not. `make
// explore-mutants` looks at all of them.
func TestExploreMutants(t *testing.T) {
	var all []killed
	bounds := map[string][]string{}
	for _, m := range readMutants(t, *mutantNames) {
		t.Run(m.name, func(t *testing.T) { all = append(all, m.explore(t)) })
		if !slices.Contains(bounds[m.test], m.bounds) {
			bounds[m.test] = append(bounds[m.test], m.bounds)
		}
	}
	exploring.Test(t, "explored()", explored(), bounds["TestExplore"]...)
	exploring.Test(t, "onlyChocolate()", onlyChocolate(), bounds["TestExploreOneEdit"]...)
	if *writeMutants && !t.Failed() {
		if err := os.WriteFile("docs/mutants.md", []byte(mutantsPage(all)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	mutantHead  = regexp.MustCompile(`^Class: (.+)\n(?:Test: (.+)\n)?Bounds: (.+)\n(.+)\n\n`)
	mutantFile  = regexp.MustCompile(`(?m)^--- a/(.+)$`)
	storySteps  = regexp.MustCompile(`counterexample of (\d+) steps`)
	storyEnding = regexp.MustCompile(`(?m)^ *Wrong: (.+?) *$`)
)

// readMutants returns the mutants whose name matches, sorted by class and name.
func readMutants(t *testing.T, names string) (mutants []mutant) {
	t.Helper()
	matches, err := regexp.Compile(names)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if !matches.MatchString(name) {
			continue
		}
		patch, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head := mutantHead.FindSubmatch(patch)
		if head == nil {
			t.Fatalf("%s does not begin with its class, its bounds and a sentence", path)
		}
		m := mutant{name: name, class: string(head[1]), test: cmp.Or(string(head[2]), "TestExplore"), bounds: string(head[3]), sentence: string(head[4]), patch: patch}
		for _, file := range mutantFile.FindAllSubmatch(patch, -1) {
			m.files = append(m.files, string(file[1]))
		}
		mutants = append(mutants, m)
	}
	if len(mutants) == 0 {
		t.Fatalf("no mutant matches %q", names)
	}
	slices.SortFunc(mutants, func(a, b mutant) int {
		return cmp.Or(strings.Compare(a.class, b.class), strings.Compare(a.name, b.name))
	})
	return mutants
}

// explore runs its test with the mutant in place of the shipped code.
func (m mutant) explore(t *testing.T) killed {
	t.Helper()
	run := exec.CommandContext(t.Context(), "go", "test", "-overlay="+m.overlay(t), "-vet=off", "-count=1", "-timeout=30m", "-run=^"+m.test+"$", ".",
		"-explore.bounds="+m.bounds, "-explore.timeout="+flag.Lookup("explore.timeout").Value.String())
	out, err := run.CombinedOutput()
	steps, ending := storySteps.FindSubmatch(out), storyEnding.FindSubmatch(out)
	if err == nil || steps == nil || ending == nil {
		t.Fatalf("%s\nit finds nothing wrong within %s: %v\n%s", m.sentence, m.bounds, err, out)
	}
	n, err := strconv.Atoi(string(steps[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: after %d steps: %s", m.bounds, n, ending[1])
	return killed{m, n, string(ending[1])}
}

// overlay writes the files that the patch changes, and returns the path of the JSON that go
// build takes as an -overlay.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for _, file := range m.files {
		shipped, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(shipped)
		if err != nil {
			t.Fatal(err)
		}
		replace[shipped] = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(replace[shipped]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(replace[shipped], source, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	apply := exec.CommandContext(t.Context(), "git", "apply", "-")
	apply.Dir, apply.Stdin = dir, bytes.NewReader(m.patch)
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%s.patch does not apply: %v\n%s", m.name, err, out)
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// mutantsPage returns docs/mutants.md.
func mutantsPage(all []killed) string {
	var page strings.Builder
	page.WriteString(`# Mutants

<!-- Written by make explore-mutants. -->

Each mutant is the controller with one defect. [The exploration](../explore_test.go) finds all of them: within the bounds, it fails with a counterexample of that many steps, which is a shortest one unless it is a storm. Within the same bounds, it finds nothing wrong with the shipped code. [The package](../pkg/kit/explore/bounds.go) explains the bounds; processes=1 is one in which nothing goes wrong.

| Class | Mutant | Bounds | Steps | What was wrong |
|---|---|---|---|---|
`)
	for _, k := range all {
		fmt.Fprintf(&page, "| %s | [%s](../testdata/mutants/%s.patch): %s | `%s` | %d | %s |\n",
			k.class, k.name, k.name, k.sentence, k.bounds, k.steps, strings.ReplaceAll(k.wrong, "|", `\|`))
	}
	return page.String()
}
