package parts

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	stopGrace   = 10 * time.Second
	errorOutput = 30 // lines of output that a failed build's error quotes
)

// build compiles the module at source into dir, which appears complete or not
// at all.
func build(ctx context.Context, source, dir, version string, progress io.Writer) error {
	draft := dir + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	if err := os.Mkdir(draft, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(draft) //nolint:errcheck // the next build removes it first

	cmd := exec.CommandContext(ctx, "go", buildArgs(draft, version)...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	// The go command ends its compilers when it is asked to end, not when it
	// is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace

	meter := newMeter(progress, "building Kubernetes "+version)
	cmd.Stdout, cmd.Stderr = meter, meter
	err := cmd.Run()
	meter.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, meter.Tail(errorOutput))
	}
	return os.Rename(draft, dir)
}

// buildArgs are the arguments of the go command that compiles the parts into
// dir, of which nothing but the output's place may depend on dir.
func buildArgs(dir, version string) []string {
	return []string{
		"build", "-v", "-trimpath", "-buildvcs=false",
		"-ldflags=" + linkFlags(version),
		"-o", dir + string(os.PathSeparator),
		"./kubernetes", "sigs.k8s.io/kwok/cmd/kwok",
	}
}

// linkFlags strips the programs and gives them the version that a module's
// source does not hold: the one the API server reports and kubectl shows.
func linkFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X="+pkg+".gitVersion="+version,
			"-X="+pkg+".gitMajor="+major,
			"-X="+pkg+".gitMinor="+minor,
			"-X="+pkg+".gitTreeState=clean",
		)
	}
	return strings.Join(flags, " ")
}
