package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/hack/local-cluster/cluster"
)

const patience = time.Minute

// The command is run as a child, because only a process of its own can be
// killed.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("boots clusters")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells children of the death of their parent")
	}
	if err := cluster.Build(t.Context(), cluster.Options{Log: t.Output()}); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "local-cluster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "cluster")

	t.Run("leaves no process behind when it is killed", func(t *testing.T) {
		u := startUp(t, exec.CommandContext(t.Context(), program, "up", "--dir", dir, "--nodes", "1"))
		u.awaitReady(t)
		runKubectl(t, program, dir, "create", "namespace", "kept")
		if err := u.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = u.awaitExit(t) // as it was killed
		requireNoneLeft(t, dir)
	})
	t.Run("carries on in the same directory and stops cleanly", func(t *testing.T) {
		u := startUp(t, exec.CommandContext(t.Context(), program, "up", "--dir", dir, "--nodes", "1", "--audit-user", "somebody"))
		if last := u.awaitReady(t); last != "KUBECONFIG="+filepath.Join(dir, "kubeconfig") {
			t.Errorf("the last line is %q", last)
		}
		runKubectl(t, program, dir, "get", "namespace", "kept")
		second := exec.CommandContext(t.Context(), program, "up", "--dir", dir)
		if out, err := second.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("is another cluster running in "+dir)) {
			t.Errorf("a second cluster in the same directory: %v\n%s", err, out)
		}
		if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := u.awaitExit(t); err != nil {
			t.Errorf("it ends with %v", err)
		}
		requireNoneLeft(t, dir)
	})
	t.Run("ends with its parent", func(t *testing.T) {
		// The shell stands for a script. The trailing command keeps it from
		// replacing itself with its child.
		u := startUp(t, exec.CommandContext(t.Context(), "sh", "-c", `"$0" up --dir "$1" --nodes 0; true`, program, dir))
		u.awaitReady(t)
		if err := u.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = u.awaitExit(t) // as it was killed
		requireNoneLeft(t, dir)
	})
}

// running is an "up" that has been started.
type running struct {
	cmd    *exec.Cmd
	stdout *bufio.Scanner
}

func startUp(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	u := &running{cmd: cmd}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// A file of our own: Wait must not depend on who else holds the pipe.
	u.stdout = bufio.NewScanner(read)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = read.Close()
		_ = stderr.Close()
		if content, err := os.ReadFile(stderr.Name()); err == nil && t.Failed() {
			t.Logf("standard error:\n%s", content)
		}
	})
	return u
}

// awaitReady returns the line that says so.
func (u *running) awaitReady(t *testing.T) string {
	t.Helper()
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		for u.stdout.Scan() {
			if strings.HasPrefix(u.stdout.Text(), "KUBECONFIG=") {
				lines <- u.stdout.Text()
				return
			}
		}
	}()
	select {
	case line, ok := <-lines:
		if !ok {
			t.Fatal("it ends before it is ready")
		}
		return line
	case <-time.After(patience):
		t.Fatalf("not ready within %v", patience)
	}
	return ""
}

func (u *running) awaitExit(t *testing.T) error {
	t.Helper()
	exited := make(chan error, 1)
	go func() { exited <- u.cmd.Wait() }()
	select {
	case err := <-exited:
		return err
	case <-time.After(patience):
		t.Fatalf("still running after %v", patience)
	}
	return nil
}

func runKubectl(t *testing.T, program, dir string, args ...string) {
	t.Helper()
	args = append([]string{"kubectl", "--dir", dir, "--"}, args...)
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// requireNoneLeft waits for the end of every process that names dir among its
// arguments, as every component does.
func requireNoneLeft(t *testing.T, dir string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		left := naming(t, dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running after %v:\n%s", patience, strings.Join(left, "\n"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func naming(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}
