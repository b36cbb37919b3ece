// Package build runs "go build" and says all the while how far it is.
package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	interval    = 5 * time.Second // of lines of progress
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

// Run builds. It writes a line of progress at once, then every few seconds, and one when
// it is done.
func (b Build) Run(ctx context.Context, progress io.Writer) error {
	started := time.Now()
	say := func(what string) {
		fmt.Fprintf(progress, "building %s: %s after %v\n", b.Title, what, time.Since(started).Round(time.Second))
	}
	fmt.Fprintf(progress, "building %s: listing its packages\n", b.Title)
	var list, built output
	if err := b.run(ctx, &list, "list", append([]string{"-deps"}, b.Packages...)...); err != nil {
		return err
	}
	total, _ := list.read()
	done := make(chan error, 1)
	go func() {
		done <- b.run(ctx, &built, "build", append(append([]string{"-v"}, b.Flags...), b.Packages...)...)
	}()
	for ticker := time.Tick(interval); ; {
		packages, _ := built.read()
		// The go command passes over packages that are in its cache.
		say(fmt.Sprintf("%d of at most %d packages", packages, total))
		select {
		case <-ticker:
		case err := <-done:
			if err == nil {
				say("done")
			}
			return err
		}
	}
}

// run runs a go command. The error has the end of its messages.
func (b Build) run(ctx context.Context, out *output, subcommand string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{subcommand}, args...)...)
	cmd.Dir, cmd.Env = b.Dir, append(os.Environ(), b.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	// The go command stops its compilers when it is asked to end, but not when it
	// is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		_, messages := out.read()
		return fmt.Errorf("go %s: %w:\n%s", subcommand, err, strings.Join(messages[max(0, len(messages)-errorOutput):], "\n"))
	}
	return nil
}

// output is what a go command has printed.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, text...)
	return len(text), nil
}

// read returns the number of packages that the output names, one a line, and its other lines.
func (o *output) read() (packages int, messages []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(string(o.text)) {
		if strings.ContainsAny(line, " \t:#") {
			messages = append(messages, strings.TrimSuffix(line, "\n"))
		} else {
			packages++
		}
	}
	return packages, messages
}
