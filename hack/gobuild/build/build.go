// Package build runs "go build" and says all the while how far it is.
package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	interval    = 10 * time.Second // of lines of progress
	stopGrace   = 10 * time.Second
	errorOutput = 30 // lines of output that a failed build's error quotes
)

// Build is one run of "go build".
type Build struct {
	Title    string   // what is built, for people
	Dir      string   // directory that the go command runs in
	Env      []string // variables in addition to this process's
	Flags    []string
	Packages []string
}

// Run builds. Every few seconds it writes how many packages are compiled, of those that are
// not in Go's cache, and the time so far.
func (b Build) Run(ctx context.Context, progress io.Writer) error {
	started := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "building %s: %s after %v\n", b.Title, fmt.Sprintf(format, args...), time.Since(started).Round(time.Second))
	}
	fmt.Fprintf(progress, "building %s: looking for what is compiled\n", b.Title)
	stale, err := b.command(ctx, "list", "-deps", "-f={{if .Stale}}{{.ImportPath}}{{end}}").Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failure(ctx, err, strings.Split(string(failed.Stderr), "\n"))
	}
	if err != nil {
		return err
	}

	cmd := b.command(ctx, "build", append([]string{"-v"}, b.Flags...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(stderr)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			lines <- s.Text()
		}
	}()
	var messages []string
	ticker := time.Tick(interval)
	for packages, isOpen := 0, true; isOpen; {
		var line string
		select {
		case line, isOpen = <-lines:
			if strings.ContainsAny(line, " \t:#") {
				messages = append(messages, line)
			} else {
				packages++
			}
		case <-ticker:
			say("%d of %d packages", packages, bytes.Count(stale, []byte("\n")))
		}
	}
	if err := cmd.Wait(); err != nil {
		return failure(ctx, err, messages)
	}
	say("done")
	return nil
}

func (b Build) command(ctx context.Context, subcommand string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{subcommand}, args, b.Packages)...)
	cmd.Dir, cmd.Env = b.Dir, append(os.Environ(), b.Env...)
	// The go command stops its compilers when it is asked to end, but not when it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// failure returns the error of a go command with the end of its messages.
func failure(ctx context.Context, err error, messages []string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("go: %w:\n%s", err, strings.Join(messages[max(0, len(messages)-errorOutput):], "\n"))
}
