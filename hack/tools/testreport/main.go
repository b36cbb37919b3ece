// Command testreport runs go test with its own arguments and prints the output of go test,
// followed by the slowest tests. Its exit code is that of go test.
//
// Unlike go test, it prints the output of a failed test as soon as the test ends, rather
// than when the package ends.
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
	if slices.Contains(args, "-race") {
		command.Env = append(os.Environ(), "CGO_ENABLED=1") // which the race detector needs
	}
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
		code = max(1, failed.ExitCode()) // -1 if a signal ended go test
	case waited != nil || err != nil:
		code, err = 1, errors.Join(err, waited)
	}
	return code, errors.Join(err, r.slowest())
}

// goArgs returns the arguments of the go command that runs go test -json with args. The flag
// -C must remain the first one.
//
// With the usual GOGC=100, the compiler and the linker spend a quarter of their time on
// collecting garbage. The tests run with the caller's GOGC, and without a program in
// between: go test would not remember their results.
func goArgs(args []string) []string {
	first := 0
	if len(args) > 1 && args[0] == "-C" {
		first = 2
	}
	return slices.Concat([]string{"test"}, args[:first], []string{"-json", "-toolexec=env GOGC=400"}, args[first:])
}

// isVerbose reports whether args make go test print the output of all tests.
func isVerbose(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		isSet := strings.HasPrefix(arg, "-") && value != "false" && value != "0"
		name = strings.TrimPrefix(name, "test.")
		return isSet && (name == "v" || name == "bench")
	})
}

// relaySignals keeps this process running until go test has handled a signal. It passes
// SIGTERM on to go test. It does not pass on an interrupt, because the terminal sends that
// one to both processes.
func relaySignals(command *exec.Cmd) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s != os.Interrupt && command.Process != nil {
				_ = command.Process.Signal(s) // go test may have exited already
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// event is a line of the output of go test -json: a TestEvent (go doc test2json) or a
// BuildEvent (go help buildjson).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // in seconds, without the time that a parallel test was paused
}

// report converts events into the output of go test without -json.
type report struct {
	out       *bufio.Writer
	isVerbose bool
	packages  map[string]*pkg
	ended     []duration
}

// duration is how long a test took.
type duration struct {
	seconds   float64
	pkg, test string
}

// pkg is a package that has not ended.
type pkg struct {
	output []string // output that belongs to no test, and stray output of tests that have ended
	tests  []*test  // the tests that are running, in the order in which they began
}

// test is a top-level test and its subtests.
type test struct {
	name  string
	parts []*part // the first one is the top-level test itself
}

// part is a top-level test or a subtest.
type part struct {
	name   string
	result string // the line with the result, such as "--- PASS: TestA (0.00s)"
	output []string
	failed bool
}

func newReport(out io.Writer, isVerbose bool) *report {
	return &report{out: bufio.NewWriter(out), isVerbose: isVerbose, packages: map[string]*pkg{}}
}

// read reads events until the end of the input. It prints output as soon as it is complete.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.handle(line)
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

// handle handles one line of the output of go test -json.
func (r *report) handle(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		r.print(string(line)) // a message of the go command, which is not an event
		return
	}
	switch {
	case e.Action == "build-output":
		r.print(e.Output)
	case e.Package == "":
	case e.Test == "":
		r.packageEvent(e)
	default:
		r.testEvent(e)
	}
}

func (r *report) print(text ...string) {
	for _, t := range text {
		r.out.WriteString(t) //nolint:errcheck // Flush returns the error
	}
}

// pkg returns the package with the given path, and adds it if it is new.
func (r *report) pkg(name string) *pkg {
	if r.packages[name] == nil {
		r.packages[name] = &pkg{}
	}
	return r.packages[name]
}

// packageEvent handles an event of a package that belongs to no test.
func (r *report) packageEvent(e event) {
	p := r.pkg(e.Package)
	switch e.Action {
	case "output":
		if r.isVerbose {
			r.print(e.Output)
		}
		p.output = append(p.output, e.Output)
	case "pass", "skip":
		if !r.isVerbose && len(p.output) > 0 {
			r.print(p.output[len(p.output)-1]) // the line "ok", with the duration
		}
		delete(r.packages, e.Package)
	case "fail":
		if !r.isVerbose {
			for _, t := range p.tests { // the process exited while these tests were running
				r.print(t.unfinished()...)
			}
			r.print(p.output...)
		}
		delete(r.packages, e.Package)
	}
}

// testEvent handles an event of a top-level test or of a subtest.
func (r *report) testEvent(e event) {
	p := r.pkg(e.Package)
	name, _, isSubtest := strings.Cut(e.Test, "/")
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
	if isSubtest || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	p.tests = slices.DeleteFunc(p.tests, func(other *test) bool { return other == t })
	r.ended = append(r.ended, duration{e.Elapsed, e.Package, e.Test})
	if e.Action == "fail" {
		r.print(t.failures()...)
	}
	p.output = append(p.output, t.strayOutput()...)
}

// slowest prints the slowest tests, unless they were all fast.
func (r *report) slowest() error {
	const most, least = 10, 0.1
	slices.SortStableFunc(r.ended, func(a, b duration) int {
		switch {
		case a.seconds > b.seconds:
			return -1
		case a.seconds < b.seconds:
			return 1
		}
		return 0
	})
	for i, t := range r.ended[:min(most, len(r.ended))] {
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

// test returns the running top-level test with the given name, and adds it if it is new.
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

// part returns the top-level test or subtest with the given name, and adds it if it is new.
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

// add stores a piece of output, which is a line or a part of a long line.
func (p *part) add(output string) {
	switch {
	case strings.HasPrefix(output, "=== "):
	case strings.HasPrefix(output, "--- ") && p.result == "" && strings.Contains(output, ": "+p.name+" ("):
		p.result = output
	default:
		p.output = append(p.output, output)
	}
}

// failures returns what go test prints about a failed test: for each part that failed, the
// line with the result, and the output.
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

// strayOutput returns the output of parts that did not fail, without what they logged by
// t.Log. It may be the report of a data race, or the output of a process that the test ran.
func (t *test) strayOutput() (stray []string) {
	for _, p := range t.parts {
		isLog := false
		for _, line := range p.output {
			text := strings.TrimLeft(line, " ")
			indent := len(line) - len(text)
			isLog = indent >= 4 && isLogged(text) || isLog && indent >= 8
			if !p.failed && !isLog {
				stray = append(stray, line)
			}
		}
	}
	return stray
}

// isLogged reports whether a line was printed by t.Log, which begins each message with the
// name of a file and the number of a line.
func isLogged(line string) bool {
	file, rest, _ := strings.Cut(line, ".go:")
	number, _, isFollowed := strings.Cut(rest, ": ")
	return file != "" && !strings.ContainsAny(file, "/ ") && isFollowed && strings.Trim(number, "0123456789") == ""
}

// unfinished returns all output of a test that was running when its process exited.
func (t *test) unfinished() (output []string) {
	for _, p := range t.parts {
		if len(p.output) > 0 {
			output = append(output, "--- "+p.name+" did not end:\n")
			output = append(output, p.output...)
		}
	}
	return output
}
