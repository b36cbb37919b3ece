// Package modproxy serves modules of a checkout from a directory, so that a test can use them
// as their users do: by path and version, outside of the checkout and without a network.
package modproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// Add adds the module of a directory to the proxy in another, under this version. It contains
// what a commit of all changes would, without nested modules.
func Add(ctx context.Context, proxy, dir, version string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = dir
	names, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	var files []zip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		f := file{dir, name}
		if _, err := f.Lstat(); err == nil { // not one that is deleted, which git also lists
			files = append(files, f)
		}
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	path := modfile.ModulePath(mod)
	escaped, err := module.EscapePath(path)
	if err != nil {
		return err
	}
	served := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(served, 0o755); err != nil {
		return err
	}
	archive, err := os.Create(filepath.Join(served, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(
		zip.Create(archive, module.Version{Path: path, Version: version}, files),
		archive.Close(),
		os.WriteFile(filepath.Join(served, version+".mod"), mod, 0o600),
		os.WriteFile(filepath.Join(served, version+".info"), fmt.Appendf(nil, `{"Version": %q}`, version), 0o600),
		os.WriteFile(filepath.Join(served, "list"), []byte(version+"\n"), 0o600),
	)
}

// Env returns the environment of a go command that finds modules in the proxy, and all others
// in this machine's module cache, or else where this machine finds them. The command keeps them in a cache of its own, so that another
// test can serve another module under the same version.
func Env(ctx context.Context, proxy, cache string) ([]string, error) {
	values, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY", "GOFLAGS").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module cache: %w", err)
	}
	lines := strings.Split(string(values), "\n")
	machine, others, flags := lines[0], lines[1], lines[2]
	return append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(machine, "cache", "download")+","+others,
		"GOMODCACHE="+cache,
		// The caller can remove the cache, and what other caches' modules compile to is not compiled again.
		"GOFLAGS="+flags+" -modcacherw -trimpath",
		"GONOPROXY=none", // which changes how go run finds a module, as it does for those who have private ones
		"GOSUMDB=off",    // it does not know the proxy's modules
		"GOTOOLCHAIN=local",
		"GOWORK=off",
	), nil
}

// file is a file of a module, by its path in the module's directory.
type file struct{ dir, path string }

func (f file) Path() string                 { return f.path }
func (f file) Lstat() (fs.FileInfo, error)  { return os.Lstat(filepath.Join(f.dir, f.path)) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.dir, f.path)) }
