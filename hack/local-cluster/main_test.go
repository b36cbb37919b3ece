package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// The command is run as a child, because only a process of its own can be
// killed.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("boots clusters")
	}
	if runtime.GOOS != "linux" {
		t.Skip("finds processes in /proc")
	}
	program := buildCommand(t)
	dir := filepath.Join(t.TempDir(), "cluster")

	t.Run("leaves no process behind when it is killed", func(t *testing.T) {
		u := startUp(t, exec.CommandContext(t.Context(), program, "up", "--dir", dir, "--nodes", "1"))
		u.awaitReady(t)
		if err := u.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = u.awaitExit(t) // as it was killed
		requireNoneLeft(t, dir)
	})
	t.Run("starts anew in the same directory, and ends with down", func(t *testing.T) {
		u := startUp(t, exec.CommandContext(t.Context(), program, "up", "--dir", dir, "--nodes", "1"))
		if last := u.awaitReady(t); last != "KUBECONFIG="+filepath.Join(dir, "kubeconfig") {
			t.Errorf("the last line is %q", last)
		}
		if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", "kubectl"), "--kubeconfig", filepath.Join(dir, "kubeconfig"), "get", "node", "node-1").CombinedOutput(); err != nil {
			t.Errorf("kubectl: %v\n%s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), program, "kubeconfig", "--dir", dir, "--service-account", "default/default").Output()
		if want := "KUBECONFIG=" + filepath.Join(dir, "config", "default_default.kubeconfig") + "\n"; err != nil || string(out) != want {
			t.Errorf("a service account's kubeconfig: %v, %q, want %q", err, out, want)
		}
		second := exec.CommandContext(t.Context(), program, "up", "--dir", dir)
		if out, err := second.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("is another cluster running in "+dir)) {
			t.Errorf("a second cluster in the same directory: %v\n%s", err, out)
		}
		if out, err := exec.CommandContext(t.Context(), program, "down", "--dir", dir).CombinedOutput(); err != nil {
			t.Fatalf("down: %v\n%s", err, out)
		}
		if left := naming(t, dir); len(left) > 0 {
			t.Errorf("after down there are still\n%s", strings.Join(left, "\n"))
		}
		if err := u.awaitExit(t); err != nil {
			t.Errorf("up ends with %v", err)
		}
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

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"no-such-command"},
		{"up", "--no-such-flag"},
		{"up", "now"},
		{"down"},
		{"kubeconfig", "--dir", "d"},
		{"kubeconfig", "--dir", "d", "--service-account", "nobody"},
	} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want wrong usage", args, err)
		}
	}
	if err := run(t.Context(), []string{"down", "--dir", t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no cluster is running") {
		t.Errorf("down where no cluster runs: %v", err)
	}
}

// buildCommand builds the command that is under test.
func buildCommand(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "local-cluster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	return program
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
