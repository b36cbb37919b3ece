package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/lock"
)

func TestTemporaryWorkspaceIsRemoved(t *testing.T) {
	parent := t.TempDir()
	w, err := openWorkspace("", parent)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(filepath.Base(w.path), tempPrefix) {
		t.Errorf("it is named %s", w.path)
	}
	if err := w.Close(false); err != nil {
		t.Fatal(err)
	}
	requireEntries(t, parent)
}

func TestStaleWorkspacesAreRemovedAndOthersAreNot(t *testing.T) {
	parent := t.TempDir()
	inUse, err := openWorkspace("", parent)
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close(false) //nolint:errcheck // the test is over
	stale, err := openWorkspace("", parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := stale.Close(true); err != nil {
		t.Fatal(err)
	}
	const foreign = tempPrefix + "notes"
	if err := os.Mkdir(filepath.Join(parent, foreign), 0o700); err != nil {
		t.Fatal(err)
	}
	requireEntries(t, parent, filepath.Base(inUse.path), filepath.Base(stale.path), foreign)

	next, err := openWorkspace("", parent)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close(false) //nolint:errcheck // the test is over
	requireEntries(t, parent, filepath.Base(inUse.path), filepath.Base(next.path), foreign)
}

func TestNamedWorkspaceIsKeptAndHeldOnce(t *testing.T) {
	parent := t.TempDir()
	name := filepath.Join(parent, "mine")
	w, err := openWorkspace(name, parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openWorkspace(name, parent); !errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), name) {
		t.Errorf("a second holder: %v, want a refusal that names the directory", err)
	}
	if err := w.Close(false); err != nil {
		t.Fatal(err)
	}
	again, err := openWorkspace(name, parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(false); err != nil {
		t.Fatal(err)
	}
	requireEntries(t, parent, "mine")
}

// requireEntries compares the names in a directory, in any order.
func requireEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, entry := range entries {
		got[entry.Name()] = true
	}
	for _, name := range want {
		if !got[name] {
			t.Errorf("%s is gone", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is there", name)
	}
}
