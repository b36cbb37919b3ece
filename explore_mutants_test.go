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
		"Explore those files of testdata/mutants whose name matches.")
	writeMutants = flag.Bool("write-mutants", false, "Write docs/mutants.md.")
)

// mutant is a defect, as a patch in testdata/mutants.
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
	for _, m := range readMutants(t, *mutantNames) {
		t.Run(m.name, func(t *testing.T) { all = append(all, m.explore(t)) })
		if !slices.Contains(searches, m.search) {
			searches = append(searches, m.search)
		}
	}
	for _, s := range searches {
		t.Run(s.dir+" "+s.test, s.exploreShipped)
	}
	if *writeMutants && !t.Failed() {
		if err := os.WriteFile("docs/mutants.md", []byte(mutantsPage(all, readUnexplored(t))), 0o644); err != nil {
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
	mutantHead   = regexp.MustCompile(`^Class: (.+)\n(?:Package: (.+)\n)?(?:Test: (.+)\n)?Bounds: (.+)\n(.+)\n\n`)
	workersBound = regexp.MustCompile(`workers=\d+`)
	mutantFile   = regexp.MustCompile(`(?m)^--- a/(.+)$`)
	storySteps   = regexp.MustCompile(`counterexample of (\d+) steps`)
	storyEnding  = regexp.MustCompile(`(?m)^ *Wrong: (.+?) *$`)
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
		m := mutant{name: name, class: string(head[1]), sentence: string(head[5]), patch: patch, search: search{
			dir: cmp.Or(string(head[2]), "."), test: cmp.Or(string(head[3]), "TestExplore"), bounds: string(head[4]),
		}}
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

// unexplored is a defect that was fixed, but that no exploration can find, and the test that
// does.
type unexplored struct {
	defect, test, file string
}

var unexploredLine = regexp.MustCompile(`^(.+): (Test\w+) in (\S+)$`)

// readUnexplored reads testdata/mutants/unexplored.txt.
func readUnexplored(t *testing.T) (all []unexplored) {
	t.Helper()
	raw, err := os.ReadFile("testdata/mutants/unexplored.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		found := unexploredLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			t.Fatalf("unexplored.txt: %q is not a defect, a test and a file", line)
		}
		all = append(all, unexplored{found[1], found[2], found[3]})
	}
	return all
}

func TestUnexploredDefectsHaveTests(t *testing.T) {
	for _, u := range readUnexplored(t) {
		source, err := os.ReadFile(u.file)
		if err != nil {
			t.Error(err)
		}
		if !bytes.Contains(source, []byte("\nfunc "+u.test+"(")) {
			t.Errorf("%s: %s has no %s", u.defect, u.file, u.test)
		}
	}
}

// mutantsPage returns docs/mutants.md.
func mutantsPage(all []killed, others []unexplored) string {
	var page strings.Builder
	page.WriteString(`# Mutants

<!-- Written by make explore-mutants. -->

Each mutant is a controller with one defect: that of Icecreams, unless a package is named. The exploration of [Icecreams](../explore_test.go), or that of the package, finds all of them: within the bounds, it fails with a counterexample of that many steps, which is a shortest one unless it is a storm. Within the same bounds, it finds nothing wrong with the shipped code. [The explorer](../pkg/kit/explore/bounds.go) explains the bounds, and for pkg/kit/leader [its test](../pkg/kit/leader/explore_test.go); processes=1 is one in which nothing goes wrong.

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

These defects were fixed, too, but lie in what the exploration replaces by a model, or simplifies. A test of another kind fails if they come back.

| Defect | Test |
|---|---|
`)
	for _, u := range others {
		fmt.Fprintf(&page, "| %s | [%s](../%s) |\n", u.defect, u.test, u.file)
	}
	return page.String()
}
