package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const modulePath = "nicoleh.io/k8s-controller"

// Build builds a program of one of the repository's modules, which is in directory module, and returns the path of the
// binary. The flags are passed to go build, such as -race. The caller must call remove to delete the binary.
func Build(ctx context.Context, module, program string, flags ...string) (path string, remove func() error, err error) {
	root, err := repository()
	if err != nil {
		return "", func() error { return nil }, err
	}
	dir, err := os.MkdirTemp("", "k8s-controller-")
	if err != nil {
		return "", func() error { return nil }, err
	}
	path = filepath.Join(dir, "controller")
	script := `set -a && . hack/build.env && cd "$0" && exec go build "$@"`
	if slices.Contains(flags, "-race") { // which needs cgo
		script = strings.Replace(script, "&& cd", "&& CGO_ENABLED=1 && cd", 1)
	}
	command := exec.CommandContext(ctx, "bash", slices.Concat([]string{"-c", script, module, "-o", path}, flags, []string{program})...)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return "", func() error { return nil }, errors.Join(fmt.Errorf("building %s: %w\n%s", program, err, output), os.RemoveAll(dir))
	}
	return path, func() error { return os.RemoveAll(dir) }, nil
}

// repository returns the root directory of the repository, which is the directory of the
// module under test.
var repository = sync.OnceValues(func() (string, error) {
	output, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", modulePath, err)
	}
	return strings.TrimSpace(string(output)), nil
})

// Binaries are programs of this repository, built with the race detector when a test first
// needs them.
type Binaries struct {
	mu    sync.Mutex
	built map[string]built
}

type built struct {
	path   string
	remove func() error
	err    error
}

// Path returns the path of the program that is in that directory of the repository.
func (b *Binaries) Path(t testing.TB, program string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	made, ok := b.built[program]
	if !ok {
		// Later tests need the program, too, even if this one ends.
		made.path, made.remove, made.err = Build(context.Background(), ".", program, "-race")
		if b.built == nil {
			b.built = map[string]built{}
		}
		b.built[program] = made
	}
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.path
}

// Remove deletes all programs that have been built.
func (b *Binaries) Remove() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, made := range b.built {
		err = errors.Join(err, made.remove())
	}
	return err
}
