package main

import (
	"bufio"
	"bytes"
	"context"
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

const timeout = time.Minute

// The command is run as a child, because only a process of its own can be killed.
func TestUp(t *testing.T) {
	if testing.Short() {
		t.Skip("boots clusters")
	}
	if runtime.GOOS != "linux" {
		t.Skip("finds processes in /proc")
	}
	program, dir := filepath.Join(t.TempDir(), "local-cluster"), filepath.Join(t.TempDir(), "cluster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	call := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}

	t.Run("leaves no process behind when it is killed", func(t *testing.T) {
		cmd, _ := startUp(t, program, "up", "--dir", dir, "--nodes", "1")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // as it was killed
		requireNoneLeft(t, dir)
	})
	t.Run("starts anew in the same directory, and ends when it is asked to", func(t *testing.T) {
		cmd, last := startUp(t, program, "up", "--dir", dir, "--nodes", "1")
		if want := "KUBECONFIG=" + filepath.Join(dir, "kubeconfig"); last != want {
			t.Errorf("the last line is %q, want %q", last, want)
		}
		if out, err := call(filepath.Join(dir, "bin", "kubectl"), "--kubeconfig", filepath.Join(dir, "kubeconfig"), "get", "node", "node-1"); err != nil {
			t.Errorf("kubectl: %v\n%s", err, out)
		}
		if out, err := call(program, "up", "--dir", dir); err == nil || !strings.Contains(out, "is another cluster running in "+dir) {
			t.Errorf("a second cluster in the same directory: %v\n%s", err, out)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("up ends with %v", err)
		}
		if left := naming(t, dir); len(left) > 0 {
			t.Errorf("there are still\n%s", strings.Join(left, "\n"))
		}
	})
	t.Run("ends with its parent", func(t *testing.T) {
		// The shell stands for a script. The trailing command keeps it from replacing itself
		// with its child.
		cmd, _ := startUp(t, "sh", "-c", `"$0" up --dir "$1" --nodes 0; true`, program, dir)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // as it was killed
		requireNoneLeft(t, dir)
	})
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"no-such-command"},
		{"up", "--no-such-flag"},
		{"up", "now"},
	} {
		if err := run(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want wrong usage", args, err)
		}
	}
}

// startUp starts a command that runs a cluster, and returns when that is ready, with the line
// that says so. The command is killed if it takes too long.
func startUp(t *testing.T, name string, args ...string) (cmd *exec.Cmd, ready string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, name, args...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "KUBECONFIG=") {
			return cmd, lines.Text()
		}
	}
	t.Fatalf("it ends before it is ready: %v", cmd.Wait())
	return nil, ""
}

// requireNoneLeft waits for the end of every process that names dir among its arguments, as
// every component does.
func requireNoneLeft(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		left := naming(t, dir)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running after %v:\n%s", timeout, strings.Join(left, "\n"))
		}
	}
}

func naming(t *testing.T, dir string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}
