// Command testreport runs go test with the arguments that it is given, prints what
// go test prints, and then the slowest tests. It ends as go test ends.
//
// A test that fails is shown when it ends, rather than when its package does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	code, err := run(context.Background(), os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "testreport: %v\n", err)
	}
	os.Exit(code)
}

// run runs go test and returns its exit code.
func run(ctx context.Context, out io.Writer, args []string) (code int, err error) {
	command := exec.CommandContext(ctx, "go", goArgs(args)...)
	command.Stdin, command.Stderr = os.Stdin, os.Stderr
	events, err := command.StdoutPipe()
	if err != nil {
		return 1, err
	}
	defer relaySignals(command)()
	if err := command.Start(); err != nil {
		return 1, err
	}
	r := newReport(out, isVerbose(args))
	err = r.read(events)
	var failed *exec.ExitError
	switch waited := command.Wait(); {
	case errors.As(waited, &failed):
		code = max(1, failed.ExitCode()) // -1 if a signal has ended it
	case waited != nil || err != nil:
		code, err = 1, errors.Join(err, waited)
	}
	return code, errors.Join(err, r.slowest())
}

// goArgs are those of go for go test with args. A flag -C has to be the first.
func goArgs(args []string) []string {
	first := 0
	if len(args) > 1 && args[0] == "-C" {
		first = 2
	}
	return slices.Concat([]string{"test"}, args[:first], []string{"-json"}, args[first:])
}

// isVerbose reports whether go test is asked for the output of all tests.
func isVerbose(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		isSet := strings.HasPrefix(arg, "-") && value != "false" && value != "0"
		name = strings.TrimPrefix(name, "test.")
		return isSet && (name == "v" || name == "bench")
	})
}

// relaySignals keeps this process alive for as long as go test needs to end when it
// is interrupted, which a terminal does to both of them, or told to terminate.
func relaySignals(command *exec.Cmd) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s != os.Interrupt && command.Process != nil {
				_ = command.Process.Signal(s) // it may have ended by itself
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// event is a line of go test -json: a TestEvent (go doc test2json) or a BuildEvent
// (go help buildjson).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // in seconds, without what a parallel test has waited for its turn
}

// report turns events into what go test prints without -json.
type report struct {
	out       *bufio.Writer
	isVerbose bool
	packages  map[string]*pkg
	took      []took
}

// took is how long a test took.
type took struct {
	seconds   float64
	pkg, test string
}

// pkg is a package whose tests have not all ended.
type pkg struct {
	output []string // of no test, or of tests that passed, but not by way of t.Log
	tests  []*test  // in the order in which they began; those that have ended are not kept
}

// test is one that a package calls, with all that it calls.
type test struct {
	name  string
	parts []*part // itself first
}

// part is a test or a test within it.
type part struct {
	name   string
	result string // the line that says how it ended
	output []string
	failed bool
}

func newReport(out io.Writer, isVerbose bool) *report {
	return &report{out: bufio.NewWriter(out), isVerbose: isVerbose, packages: map[string]*pkg{}}
}

// read reads events to the end, and shows what is to be shown at once.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if flushed := r.out.Flush(); flushed != nil {
			return flushed
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		r.print(string(line)) // go says something that is no event
		return
	}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Package == "":
	case e.Test == "":
		r.ofPackage(e)
	default:
		r.ofTest(e)
	}
}

func (r *report) print(text ...string) {
	for _, t := range text {
		r.out.WriteString(t) //nolint:errcheck // Flush returns the error
	}
}

// pkg returns the package of that name, which may begin now.
func (r *report) pkg(name string) *pkg {
	if r.packages[name] == nil {
		r.packages[name] = &pkg{}
	}
	return r.packages[name]
}

// ofPackage deals with an event of a package as a whole.
func (r *report) ofPackage(e event) {
	p := r.pkg(e.Package)
	switch e.Action {
	case "output":
		if r.isVerbose {
			r.print(e.Output)
		}
		p.output = append(p.output, e.Output)
	case "pass", "skip":
		if !r.isVerbose && len(p.output) > 0 {
			r.print(p.output[len(p.output)-1]) // ok, and how long it took
		}
		delete(r.packages, e.Package)
	case "fail":
		if !r.isVerbose {
			for _, t := range p.tests { // the process has ended in the midst of them
				r.print(t.all()...)
			}
			r.print(p.output...)
		}
		delete(r.packages, e.Package)
	}
}

// ofTest deals with an event of a test, or of a test in it.
func (r *report) ofTest(e event) {
	p := r.pkg(e.Package)
	name, _, isWithin := strings.Cut(e.Test, "/")
	t := p.test(name)
	switch e.Action {
	case "output":
		if r.isVerbose {
			r.print(e.Output)
		} else {
			t.part(e.Test).add(e.Output)
		}
	case "fail":
		t.part(e.Test).failed = true
	}
	if isWithin || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	p.tests = slices.DeleteFunc(p.tests, func(other *test) bool { return other == t })
	r.took = append(r.took, took{e.Elapsed, e.Package, e.Test})
	if e.Action == "fail" {
		r.print(t.failures()...)
	}
	p.output = append(p.output, t.strays()...)
}

// slowest prints the tests that took longest.
func (r *report) slowest() error {
	const most, least = 10, 0.1
	slices.SortStableFunc(r.took, func(a, b took) int {
		switch {
		case a.seconds > b.seconds:
			return -1
		case a.seconds < b.seconds:
			return 1
		}
		return 0
	})
	for i, t := range r.took[:min(most, len(r.took))] {
		if t.seconds < least {
			break
		}
		if i == 0 {
			r.print("The slowest tests:\n")
		}
		r.print(fmt.Sprintf("%7.1fs  %s %s\n", t.seconds, t.pkg, t.test))
	}
	return r.out.Flush()
}

// test returns the test of that name, which may begin now.
func (p *pkg) test(name string) *test {
	for _, t := range p.tests {
		if t.name == name {
			return t
		}
	}
	t := &test{name: name}
	p.tests = append(p.tests, t)
	return t
}

// part returns the test of that name, this one or one within it.
func (t *test) part(name string) *part {
	for _, p := range t.parts {
		if p.name == name {
			return p
		}
	}
	p := &part{name: name}
	t.parts = append(t.parts, p)
	return p
}

// add keeps a piece of output, which is a line or a part of a long one.
func (p *part) add(output string) {
	switch {
	case strings.HasPrefix(output, "=== "):
	case strings.HasPrefix(output, "--- ") && p.result == "" && strings.Contains(output, ": "+p.name+" ("):
		p.result = output
	default:
		p.output = append(p.output, output)
	}
}

// failures is what go test shows of a test that failed: how each part that failed
// ended, and its output.
func (t *test) failures() (shown []string) {
	for _, p := range t.parts {
		if !p.failed {
			continue
		}
		indent := strings.Repeat("    ", strings.Count(p.name, "/"))
		shown = append(shown, indent+p.result)
		for _, line := range p.output {
			shown = append(shown, indent+line)
		}
	}
	return shown
}

// strays is what parts that did not fail have printed and not logged: it may be a
// data race, or what a process has said that the test ran.
func (t *test) strays() (strays []string) {
	for _, p := range t.parts {
		isLog := false
		for _, line := range p.output {
			text := strings.TrimLeft(line, " ")
			indent := len(line) - len(text)
			isLog = indent >= 4 && isLogged(text) || isLog && indent >= 8
			if !p.failed && !isLog {
				strays = append(strays, line)
			}
		}
	}
	return strays
}

// isLogged reports whether a line begins as the testing package has those of t.Log
// begin, with the name of a file and the number of a line.
func isLogged(line string) bool {
	file, rest, _ := strings.Cut(line, ".go:")
	number, _, isFollowed := strings.Cut(rest, ": ")
	return file != "" && !strings.ContainsAny(file, "/ ") && isFollowed && strings.Trim(number, "0123456789") == ""
}

// all is everything that a test has printed.
func (t *test) all() (all []string) {
	for _, p := range t.parts {
		if len(p.output) > 0 {
			all = append(all, "--- "+p.name+" has not ended:\n")
			all = append(all, p.output...)
		}
	}
	return all
}
