// Package build runs "go build" and says from the beginning how much is left.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
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
	meter := newMeter(progress, b.Title)
	defer meter.Close()
	plan, err := b.plan(ctx)
	if err != nil {
		return err
	}
	meter.follow(plan)

	cmd := b.command(ctx, append(append([]string{"build", "-v"}, b.Flags...), b.Packages...)...)
	cmd.Stdout, cmd.Stderr = meter, meter
	err = cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, meter.Tail(errorOutput))
	}
	meter.succeed()
	return nil
}

func (b Build) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), b.Env...)
	// The go command stops its compilers when it is asked to end, but not when it
	// is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// plan is what there is to compile: the import graph, and the size of each package.
type plan struct {
	packages map[string]*packageToBuild
	total    int64 // bytes
}

type packageToBuild struct {
	imports []string
	size    int64 // bytes of Go, which is roughly what compiling takes
	done    bool
}

// perPackage is the cost of compiling an empty package, in bytes of Go.
const perPackage = 3000

func (b Build) plan(ctx context.Context) (*plan, error) {
	const format = `{{.ImportPath}}|{{.Dir}}|{{range .GoFiles}}{{.}} {{end}}|{{range .Imports}}{{.}} {{end}}`
	out, err := b.command(ctx, append([]string{"list", "-deps", "-f", format}, b.Packages...)...).Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w:\n%s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	p := &plan{packages: map[string]*packageToBuild{}}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(fields) != 4 {
			continue
		}
		pkg := &packageToBuild{imports: strings.Fields(fields[3]), size: perPackage}
		for name := range strings.FieldsSeq(fields[2]) {
			if info, err := os.Stat(filepath.Join(fields[1], name)); err == nil {
				pkg.size += info.Size()
			}
		}
		p.packages[fields[0]] = pkg
		p.total += pkg.size
	}
	return p, nil
}

// finish marks everything that a package imports as done: the go command names a package
// when it begins to compile it, and does not name those that it finds in its cache.
// It returns the number of packages and bytes that were not known to be done.
func (p *plan) finish(name string) (packages int, bytes int64) {
	pkg := p.packages[name]
	if pkg == nil {
		return 0, 0
	}
	for _, imported := range pkg.imports {
		dependency := p.packages[imported]
		if dependency == nil || dependency.done {
			continue
		}
		dependency.done = true
		n, size := p.finish(imported)
		packages, bytes = packages+n+1, bytes+size+dependency.size
	}
	return packages, bytes
}
