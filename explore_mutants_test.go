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

	"nicoleh.io/k8s-controller/pkg/kit/explore"
)

// These tests put defects into the shipped code, and require that the exploration finds them.

var (
	mutantNames = flag.String("mutants", "^(failure-is-success|no-first-keys|status-error-dropped)$",
		"Look for those defects in testdata/mutants whose name matches.")
	writeMutants = flag.Bool("write-mutants", false, "Write docs/mutants.md.")
)

const (
	mutantsDir = "testdata/mutants"
	// unexplored has defects that were fixed, but that no exploration can find, each with the
	// test that does.
	unexplored = mutantsDir + "/unexplored"
)

// mutant is a defect, as a patch.
type mutant struct {
	name, class, sentence string
	search                search   // that finds it
	files                 []string // that the patch changes
	patch                 []byte
}

// search is a test of a package, within bounds.
type search struct {
	dir, test, bounds string
}

// setups are the setups of this package's tests.
var setups = map[string]func() explore.Setup{
	"TestExplore":              explored,
	"TestExploreOneEdit":       onlyChocolate,
	"TestExploreMovedPod":      moved,
	"TestExploreMeeting":       meeting,
	"TestExploreOldDeployment": renamed,
	"TestExploreRepair":        drifted,
}

// killed is what the exploration finds in a mutant.
type killed struct {
	mutant
	steps int
	wrong string
}

// Each mutant fails within bounds within which the shipped code does not. `make
// explore-mutants` looks at all of them.
func TestExploreMutants(t *testing.T) {
	var all []killed
	var searches []search
	for _, m := range readMutants(t, mutantsDir, named(t)) {
		t.Run(m.name, func(t *testing.T) { all = append(all, m.explore(t)) })
		if !slices.Contains(searches, m.search) {
			searches = append(searches, m.search)
		}
	}
	for _, s := range searches {
		t.Run(s.dir+" "+s.test, s.exploreShipped)
	}
	if *writeMutants && !t.Failed() {
		if err := os.WriteFile("docs/mutants.md", []byte(mutantsPage(t, all, readMutants(t, unexplored, anyName))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// exploreShipped searches in the shipped code.
func (s search) exploreShipped(t *testing.T) {
	if setup := setups[s.test]; s.dir == "." && setup != nil {
		exploring.Test(t, s.test, setup(), s.bounds)
		return
	}
	if out, err := s.run(t); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// run runs the test in a process of its own.
func (s search) run(t *testing.T, more ...string) ([]byte, error) {
	t.Helper()
	args := append([]string{"test", "-vet=off", "-count=1", "-timeout=30m", "-run=^" + s.test + "$"}, more...)
	args = append(args, "./"+s.dir, "-explore.bounds="+s.bounds, "-explore.timeout="+flag.Lookup("explore.timeout").Value.String())
	return exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
}

var (
	mutantHead   = regexp.MustCompile(`^(?:Class: (.+)\n)?(?:Package: (.+)\n)?(?:Test: (.+)\n)?(?:Bounds: (.+)\n)?(.+)\n\n`)
	workersBound = regexp.MustCompile(`workers=\d+`)
	mutantFile   = regexp.MustCompile(`(?m)^--- a/(.+)$`)
	storySteps   = regexp.MustCompile(`counterexample of (\d+) steps`)
	storyEnding  = regexp.MustCompile(`(?m)^ *Wrong: (.+?) *$`)
)

var anyName = regexp.MustCompile("")

// named returns -mutants.
func named(t *testing.T) *regexp.Regexp {
	t.Helper()
	names, err := regexp.Compile(*mutantNames)
	if err != nil {
		t.Fatal(err)
	}
	if len(readMutants(t, mutantsDir, names))+len(readMutants(t, unexplored, names)) == 0 {
		t.Fatalf("no mutant matches %q", names)
	}
	return names
}

// readMutants returns the mutants of a directory whose name matches, sorted by class and name.
func readMutants(t *testing.T, dir string, names *regexp.Regexp) (mutants []mutant) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("there is no mutant in %s: %v", dir, err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if !names.MatchString(name) {
			continue
		}
		patch, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head := mutantHead.FindSubmatch(patch)
		if head == nil {
			t.Fatalf("%s does not begin with a sentence that says what is wrong", path)
		}
		m := mutant{name: name, class: string(head[1]), sentence: string(head[5]), patch: patch, search: search{
			dir: cmp.Or(string(head[2]), "."), test: cmp.Or(string(head[3]), "TestExplore"), bounds: string(head[4]),
		}}
		for _, file := range mutantFile.FindAllSubmatch(patch, -1) {
			m.files = append(m.files, string(file[1]))
		}
		mutants = append(mutants, m)
	}
	slices.SortFunc(mutants, func(a, b mutant) int {
		return cmp.Or(strings.Compare(a.class, b.class), strings.Compare(a.name, b.name))
	})
	return mutants
}

// explore runs its test with the mutant in place of the shipped code.
func (m mutant) explore(t *testing.T) killed {
	t.Helper()
	if m.class == "" || m.search.bounds == "" {
		t.Fatal("it does not say its class, or the bounds in which it is found")
	}
	overlay := "-overlay=" + m.overlay(t)
	if one := workersBound.ReplaceAllString(m.search.bounds, "workers=1"); one != m.search.bounds {
		// Otherwise, nothing would show that two workers are explored.
		if out, err := (search{m.search.dir, m.search.test, one}).run(t, overlay); err != nil {
			t.Errorf("one worker is enough to find it: %v\n%s", err, out)
		}
	}
	out, err := m.search.run(t, overlay)
	steps, ending := storySteps.FindSubmatch(out), storyEnding.FindSubmatch(out)
	if err == nil || steps == nil || ending == nil {
		t.Fatalf("%s\nit finds nothing wrong within %s: %v\n%s", m.sentence, m.search.bounds, err, out)
	}
	n, err := strconv.Atoi(string(steps[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: after %d steps: %s", m.search.bounds, n, ending[1])
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

// Each of these mutants can be made, and has a test, which fails with it. `make
// explore-mutants` runs all of these tests.
func TestUnexploredMutants(t *testing.T) {
	names := named(t)
	for _, m := range readMutants(t, unexplored, anyName) {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			m.testFile(t)
			if names.MatchString(m.name) {
				m.requireFound(t, overlay)
			}
		})
	}
}

// requireFound requires that the test fails with the mutant.
func (m mutant) requireFound(t *testing.T, overlay string) {
	t.Helper()
	// With some of the defects, a test does not end. One on a cluster may take minutes.
	module, dir, timeout := ".", m.search.dir, "1m"
	if rest, ok := strings.CutPrefix(dir, "test/"); ok {
		module, dir, timeout = "test", rest, "15m"
	}
	test := strings.Split(m.search.test, "/")
	run := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout="+timeout, "-run=^"+strings.Join(test, "$/^")+"$", "./"+dir)
	run.Dir = module
	run.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay) // also for programs that the test builds
	out, err := run.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte(test[0])) {
		t.Errorf("%s\n%s does not find it: %v\n%s", m.sentence, m.search.test, err, out)
	}
}

// testFile returns the file that has the mutant's test.
func (m mutant) testFile(t *testing.T) string {
	t.Helper()
	name, _, _ := strings.Cut(m.search.test, "/")
	paths, err := filepath.Glob(filepath.Join(m.search.dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(source, []byte("\nfunc "+name+"(")) {
			return path
		}
	}
	t.Fatalf("%s has no %s", m.search.dir, name)
	return ""
}

// mutantsPage returns docs/mutants.md.
func mutantsPage(t *testing.T, all []killed, others []mutant) string {
	t.Helper()
	var page strings.Builder
	page.WriteString(`# Mutants

<!-- Written by make explore-mutants. -->

Each mutant is a controller with one defect: that of Icecreams, unless a package is named. The exploration of [Icecreams](../explore_test.go), or that of the package, finds all of them: within the bounds, it fails with a counterexample of that many steps, which is a shortest one unless it is a storm. Within the same bounds, it finds nothing wrong with the shipped code. [The explorer](../pkg/kit/explore/bounds.go) explains the bounds, and so do the tests of [pkg/kit/leader](../pkg/kit/leader/explore_test.go) and [pkg/kit/barrier](../pkg/kit/barrier/explore_test.go); processes=1 is one in which nothing goes wrong.

| Class | Mutant | Bounds | Steps | What was wrong |
|---|---|---|---|---|
`)
	for _, k := range all {
		where := ""
		if k.search.dir != "." {
			where = " (" + k.search.dir + ")"
		}
		fmt.Fprintf(&page, "| %s | [%s](../testdata/mutants/%s.patch)%s: %s | `%s` | %d | %s |\n",
			k.class, k.name, k.name, where, k.sentence, k.search.bounds, k.steps, strings.ReplaceAll(k.wrong, "|", `\|`))
	}
	page.WriteString(`
## Fixed, and not explored

These defects were fixed, too, but lie in what the exploration replaces by a model, or simplifies. Each of these mutants has one of them again, and a test of another kind fails with it.

| Defect | Mutant | Test |
|---|---|---|
`)
	for _, m := range others {
		fmt.Fprintf(&page, "| %s | [%s](../%s/%s.patch) | [%s](../%s) |\n", m.sentence, m.name, unexplored, m.name, m.search.test, m.testFile(t))
	}
	return page.String()
}
