package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/parts"
)

// The tests of the controllers show that clusters work. The tests here show what happens when
// something fails.

// The death of a component is reported with its log, which stays. Everything else ends.
func TestComponentThatDies(t *testing.T) {
	if testing.Short() {
		t.Skip("boots two clusters")
	}
	t.Setenv("TMPDIR", t.TempDir())
	dying, healthy := start(t, Options{Nodes: 1}), start(t, Options{OnlyAPI: true})
	if err := syscall.Kill(readPID(dying.file("pids", string(Kwok))), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-dying.Done():
	case <-time.After(time.Minute):
		t.Fatal("the death of a component goes unnoticed")
	}
	log := dying.file("logs", "kwok.log")
	if err := dying.Err(); err == nil || !strings.Contains(err.Error(), "kwok has ended") || !strings.Contains(err.Error(), log) {
		t.Errorf("Err() = %v, want the component and its log", err)
	}
	for _, c := range []*Cluster{dying, healthy} {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	for _, component := range []Component{Etcd, APIServer, ControllerManager, Scheduler} {
		if pid := readPID(dying.file("pids", string(component))); pid == 0 || isAlive(pid) {
			t.Errorf("%s has process %d, which must have been there, and must not be", component, pid)
		}
	}
	if _, err := os.Stat(log); err != nil {
		t.Errorf("the log of the component that died: %v", err)
	}
	if _, err := os.Stat(healthy.Dir()); !os.IsNotExist(err) {
		t.Errorf("the directory of the other cluster is still there: %v", err)
	}
}

func start(t *testing.T, options Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	return c
}

// The programs of this cluster are scripts that fail.
func TestComponentThatDoesNotStart(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the name of the programs' directory")
	}
	t.Setenv(parts.AssetsEnv, "")
	programs, err := parts.Ensure(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	cache, dir := t.TempDir(), t.TempDir()
	broken := filepath.Join(cache, filepath.Base(filepath.Dir(programs.Kubectl)))
	t.Setenv(parts.CacheEnv, cache)
	if err := os.Mkdir(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"components", "servers", "kubectl"} {
		if err := os.WriteFile(filepath.Join(broken, program), []byte("#!/bin/sh\necho no space left\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, err = Start(t.Context(), Options{Dir: dir})
	if err == nil {
		t.Fatal("the cluster starts")
	}
	for _, want := range []string{"etcd has ended", "no space left", filepath.Join(dir, "logs", "etcd.log")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// What is not a cluster's stays. TestUp shows what becomes of a directory of a cluster.
func TestDirectoryOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := makeDir(dir); err == nil || !strings.Contains(err.Error(), "not a cluster's directory") {
		t.Errorf("a directory with other files: %v", err)
	}
}

// Each event is read once, and a line only when it is complete: the API server may be about to
// write the rest.
func TestAuditReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	reader := AuditReader{Path: path}
	for _, step := range []struct {
		written, want string
		isError       bool
	}{
		{written: "", want: ""},
		{written: `{"verb":"get"}` + "\n" + `{"ve`, want: "get"},
		{written: "", want: ""},
		{written: `rb":"list"}` + "\n" + `{"verb":"watch"}` + "\n", want: "list watch"},
		{written: `{"kind":"Event","verb":"pa{"kind":"Event","verb":"create"}` + "\n", want: "create"}, // after one was killed
		{written: "hello\n", isError: true},
	} {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(step.written); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		events, err := reader.Next()
		var verbs []string
		for _, e := range events {
			verbs = append(verbs, e.Verb)
		}
		if got := strings.Join(verbs, " "); got != step.want || (err != nil) != step.isError {
			t.Errorf("after %q: %q, %v; want %q", step.written, got, err, step.want)
		}
	}
}
