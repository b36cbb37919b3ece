package main

import (
	"bufio"
	"bytes"
	"encoding/json"
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
	t.Parallel()
	program := buildCommand(t)
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

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("boots clusters")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells children of the death of their parent")
	}
	t.Parallel()
	program := buildCommand(t)
	// Every script that is waited for prints this line when it is ready.
	const ready = `echo KUBECONFIG=$KUBECONFIG; `
	run := func(t *testing.T, script string) (*running, string) {
		dir := filepath.Join(t.TempDir(), "cluster")
		// The directory among its arguments is how what is left of a command is found.
		return startUp(t, exec.CommandContext(t.Context(), program, "run", "--dir", dir, "--nodes", "0", "--", "bash", "-c", script, dir)), dir
	}
	for _, test := range []struct {
		name, script string
		stop         func(t *testing.T, u *running, dir string)
		want         int
	}{
		{name: "the command reaches its cluster", script: `kubectl get namespace default && [[ $(kubectl config view --minify -o name 2>&1; command -v kubectl) == *$0/bin/kubectl ]]`},
		{name: "its status is the command's", script: `exit 7`, want: 7},
		{name: "a command that was killed", script: `kill -KILL $$`, want: 128 + 9},
		{name: "what it leaves behind ends with it", script: `bash -c 'while :; do sleep 0.1; done' "$0" & exit 3`, want: 3},
		{
			name:   "a signal is forwarded",
			script: `trap 'exit 42' TERM; ` + ready + `while :; do sleep 0.1; done`,
			stop:   func(t *testing.T, u *running, _ string) { signalTo(t, u.cmd.Process.Pid, syscall.SIGTERM) },
			want:   42,
		},
		{
			name:   "the cluster dies",
			script: `trap 'exit 5' TERM; ` + ready + `while :; do sleep 0.1; done`,
			stop:   func(t *testing.T, _ *running, dir string) { killComponent(t, dir, cluster.Etcd) },
			want:   1,
		},
		{
			name:   "it is killed itself",
			script: ready + `while :; do sleep 0.1; done`,
			stop:   func(t *testing.T, u *running, _ string) { signalTo(t, u.cmd.Process.Pid, syscall.SIGKILL) },
			want:   -1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			u, dir := run(t, test.script)
			if test.stop != nil {
				u.awaitReady(t)
				test.stop(t, u, dir)
			}
			_ = u.awaitExit(t)
			if got := u.cmd.ProcessState.ExitCode(); got != test.want {
				t.Errorf("exit status %d, want %d", got, test.want)
			}
			requireNoneLeft(t, dir)
		})
	}
	t.Run("its parent dies", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "cluster")
		u := startUp(t, exec.CommandContext(t.Context(), "sh", "-c",
			`"$0" run --dir "$1" --nodes 0 -- bash -c 'echo KUBECONFIG=; while :; do sleep 0.1; done' "$1"; true`, program, dir))
		u.awaitReady(t)
		if err := u.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = u.awaitExit(t) // as it was killed
		requireNoneLeft(t, dir)
	})
	t.Run("a signal before the cluster is up", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "cluster")
		u := startUp(t, exec.CommandContext(t.Context(), program, "run", "--dir", dir, "--", "false"))
		awaitFile(t, filepath.Join(dir, "logs", "etcd.log"))
		signalTo(t, u.cmd.Process.Pid, syscall.SIGINT)
		_ = u.awaitExit(t)
		if got := u.cmd.ProcessState.ExitCode(); got != 128+2 {
			t.Errorf("exit status %d, want 130", got)
		}
		requireNoneLeft(t, dir)
	})
}

// buildCommand builds the command that is under test. The control plane must be there.
func buildCommand(t *testing.T) string {
	t.Helper()
	isBuilt, err := cluster.IsBuilt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !isBuilt {
		t.Skip("the control plane has not been compiled; make local-cluster does that")
	}
	program := filepath.Join(t.TempDir(), "local-cluster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	return program
}

func signalTo(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

func killComponent(t *testing.T, dir string, component cluster.Component) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "pids", string(component)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ PID int }
	if err := json.Unmarshal(content, &record); err != nil {
		t.Fatal(err)
	}
	signalTo(t, record.PID, syscall.SIGKILL)
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %v", path, patience)
		}
	}
}

// running is an "up" or a "run" that has been started.
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
