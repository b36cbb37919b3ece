// Command mutants builds the simulation with one small mistake after the other, and says in
// which history it finds each. Nothing of the working tree changes.
//
//	go run ./hack/mutants [-seeds=N] [NAME...]
//
// The mistakes are in testdata/mutants.txt beside each world, one for each thing that the world
// checks. Each has a name, and for each function that it changes the file, the function and lines
// of it like those of a patch: those with "-" become those with "+", and those with a space stay.
//
//	crash-is-forgotten
//	@ pkg/example/decide.go Observed.decide
//	 	if o.hasCrashed() {
//	-		o.Memory.Crash()
//	 	}
//
// The command fails if a mistake is not found, or if its lines are not in its function exactly
// once.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mutant is a mistake, in a file.
type mutant struct {
	name, world string // world is the directory of its simulation
	file        string
	edits       []edit
}

// An edit replaces lines of a function, which has a name, or those of a type and a method.
type edit struct{ function, before, after string }

func main() {
	seeds := flag.Int("seeds", 2000, "how many histories to try")
	flag.Parse()
	survivors, err := run(*seeds, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// run tries the mutants of these names, or all, and returns how many were not found.
func run(seeds int, names []string) (survivors int, err error) {
	mutants, err := read(".")
	if err != nil {
		return 0, err
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, m := range mutants {
		if len(names) > 0 && !wanted[m.name] {
			continue
		}
		delete(wanted, m.name)
		found, err := m.simulate(seeds)
		switch {
		case err != nil:
			survivors++
			found = err.Error()
		case found == "":
			survivors++
			found = "not found"
		}
		fmt.Printf("%s: %s\n", m.name, found)
	}
	for name := range wanted {
		return survivors, fmt.Errorf("there is no mutant %s", name)
	}
	return survivors, nil
}

// read returns the mutants of all worlds below a directory.
func read(root string) (mutants []mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(root, "apps", "*", "testdata", "mutants.txt"))
	if err != nil {
		return nil, err
	}
	for _, path := range append([]string{filepath.Join(root, "testdata", "mutants.txt")}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		world := filepath.Dir(filepath.Dir(path))
		for line := range strings.Lines(string(text)) {
			var m *mutant
			var e *edit
			if last := len(mutants) - 1; last >= 0 {
				m = &mutants[last]
				if last := len(m.edits) - 1; last >= 0 {
					e = &m.edits[last]
				}
			}
			switch rest := line[1:]; line[0] {
			case '#', '\n':
			case '@':
				m.edits = append(m.edits, edit{})
				if _, err := fmt.Sscan(rest, &m.file, &m.edits[len(m.edits)-1].function); err != nil {
					return nil, fmt.Errorf("%s: %q: %w", path, line, err)
				}
			case '-':
				e.before += rest
			case '+':
				e.after += rest
			case ' ':
				e.before += rest
				e.after += rest
			default:
				mutants = append(mutants, mutant{name: strings.TrimSpace(line), world: world})
			}
		}
	}
	return mutants, nil
}

// source returns the mutant's file, with its mistake.
func (m mutant) source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	for _, e := range m.edits {
		start, end, err := find(m.file, text, e.function)
		if err != nil {
			return "", err
		}
		function := string(text[start:end])
		if n := strings.Count(function, e.before); n != 1 || e.before == "" {
			return "", fmt.Errorf("the lines are in %s of %s %d times, not once", e.function, m.file, n)
		}
		text = slices.Concat(text[:start], []byte(strings.Replace(function, e.before, e.after, 1)), text[end:])
	}
	return string(text), nil
}

// find returns where a function begins and ends.
func find(file string, text []byte, function string) (start, end int, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range parsed.Decls {
		if nameOf(d) == function {
			return files.Position(d.Pos()).Offset, files.Position(d.End()).Offset + 1, nil
		}
	}
	return 0, 0, fmt.Errorf("there is no %s in %s", function, file)
}

// nameOf returns the name of a function, or of a type and its method.
func nameOf(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if f.Recv == nil {
		return f.Name.Name
	}
	holder := f.Recv.List[0].Type
	if pointer, ok := holder.(*ast.StarExpr); ok {
		holder = pointer.X
	}
	if generic, ok := holder.(*ast.IndexExpr); ok {
		holder = generic.X
	}
	return fmt.Sprint(holder) + "." + f.Name.Name
}

var failure = regexp.MustCompile(`(?m)^ *seed \d+: .*|^(panic|fatal error): .*`)

// simulate returns what the simulation says of the mutant, which is nothing if it does not find it.
func (m mutant) simulate(seeds int) (string, error) {
	source, err := m.source(".")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	file, mutated := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	if err := errors.Join(err, os.WriteFile(file, []byte(source), 0o600), os.WriteFile(mutated, overlay, 0o600)); err != nil {
		return "", err
	}
	test := filepath.Join(dir, "test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+mutated, "-o="+test, "./"+m.world)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %s", out)
	}
	//nolint:gosec // it was just built
	out, err := exec.Command(test, "-test.run=^TestSimulation$", fmt.Sprintf("-sim.seeds=%d", seeds), "-sim.failures=1", "-sim.plain").CombinedOutput()
	if err == nil {
		return "", nil
	}
	found := failure.FindString(string(out))
	if found == "" {
		return "", fmt.Errorf("the simulation does not end: %s", out)
	}
	return fmt.Sprintf("%.200s", strings.TrimSpace(found)), nil
}
