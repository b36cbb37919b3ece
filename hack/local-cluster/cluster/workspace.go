package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/lock"
	"nicoleh.io/k8s-controller/hack/local-cluster/internal/process"
)

// workspace is the directory of a cluster, locked for as long as it is in use.
type workspace struct {
	path      string
	temporary bool
	held      *lock.Lock
}

const (
	tempPrefix  = "local-cluster-"
	draftPrefix = ".local-cluster-"
)

// openWorkspace makes and locks the directory of a cluster, after ending what
// a crashed run may have left in it. With no name it makes a new one below
// parent, and removes those whose owners are gone.
func openWorkspace(name, parent string) (*workspace, error) {
	if name == "" {
		if err := removeStale(parent); err != nil {
			return nil, err
		}
		return newTemporary(parent)
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster's directory: %w", err)
	}
	w := &workspace{path: path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	if w.held, err = lock.Try(w.file("lock")); err != nil {
		return nil, fmt.Errorf("is another cluster running in %s? %w", path, err)
	}
	if err := w.prepare(); err != nil {
		w.held.Release()
		return nil, err
	}
	return w, nil
}

// newTemporary gives the directory its name, by which others recognize it,
// only once it is locked.
func newTemporary(parent string) (*workspace, error) {
	draft, err := os.MkdirTemp(parent, draftPrefix)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	w := &workspace{path: draft, temporary: true}
	if w.held, err = lock.Try(w.file("lock")); err != nil {
		return nil, err
	}
	w.path = filepath.Join(parent, tempPrefix+filepath.Base(draft)[len(draftPrefix):])
	if err := os.Rename(draft, w.path); err != nil {
		w.held.Release()
		return nil, fmt.Errorf("naming the cluster's directory: %w", err)
	}
	if err := w.prepare(); err != nil {
		w.held.Release()
		return nil, err
	}
	return w, nil
}

// prepare ends the leftovers of a former run and makes the subdirectories.
func (w *workspace) prepare() error {
	if err := process.Reap(w.file("pids")); err != nil {
		return err
	}
	for _, name := range []string{"pids", "logs", "bin", "config"} {
		if err := os.MkdirAll(w.file(name), 0o700); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	return nil
}

// file returns the path of a file in the workspace.
func (w *workspace) file(elements ...string) string {
	return filepath.Join(append([]string{w.path}, elements...)...)
}

// Close gives the directory back. A temporary one is removed, unless it is to
// be kept for its logs: then the next start removes it.
func (w *workspace) Close(keep bool) error {
	defer w.held.Release()
	if keep || !w.temporary {
		return nil
	}
	if err := os.RemoveAll(w.path); err != nil {
		return fmt.Errorf("removing the cluster's directory: %w", err)
	}
	return nil
}

// removeStale removes the temporary directories below parent that nobody
// holds, and the processes that they record.
func removeStale(parent string) error {
	paths, err := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	if err != nil {
		return fmt.Errorf("listing stale directories: %w", err)
	}
	for _, path := range paths {
		// Others' directories and unrelated files of that name hold no lock
		// file that this user can open.
		if _, err := os.Stat(filepath.Join(path, "lock")); err != nil {
			continue
		}
		held, err := lock.Try(filepath.Join(path, "lock"))
		if err != nil {
			continue
		}
		err = errors.Join(process.Reap(filepath.Join(path, "pids")), os.RemoveAll(path))
		held.Release()
		if err != nil {
			return fmt.Errorf("removing the stale %s: %w", path, err)
		}
	}
	return nil
}
