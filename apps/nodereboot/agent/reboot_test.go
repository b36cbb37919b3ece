package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A command may leave a process behind, as "sleep 5; reboot &" does. What it says about a failure is told.
func TestCommand(t *testing.T) {
	if err := (Command{"sh", "-c", "sleep 5 & echo soon"}).Reboot(t.Context()); err != nil {
		t.Errorf("a process is left behind: %v", err)
	}
	if err := (Command{"sh", "-c", "echo the BMC is busy >&2; exit 3"}).Reboot(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: the BMC is busy") {
		t.Errorf("a failure: %v", err)
	}
}

// A command that hangs does not block the agent, nor does a process that it has started, which goes on.
func TestCommandEnds(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	script := fmt.Sprintf("sleep 1000 & echo $! >%s; exec sleep 1000", started)
	err := (Command{"sh", "-c", script}).Reboot(ctx)
	text, _ := os.ReadFile(started) // without it, there is no process
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil || pid == 0 {
		t.Fatalf("it has started process %d, and ends with %v", pid, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what it has started does not run any more: %v", err)
	}
}

// Whether the host can be rebooted is found out without trying.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		first string // process 1
		err   error  // of sending it a signal
		want  string // in the error
	}{
		{"systemd", "systemd", nil, ""},
		{"the Pod has no hostPID", "reboot-agent", nil, `process 1 is "reboot-agent"`},
		{"another init", "init", nil, "-reboot-command"},
		{"AppArmor, or another user", "systemd", syscall.EPERM, "does not accept signals"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "1", "comm"), []byte(tt.first+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var sent []syscall.Signal
			s := Systemd{proc: dir, kill: func(pid int, signal syscall.Signal) error {
				if pid != 1 {
					t.Errorf("signal for process %d", pid)
				}
				sent = append(sent, signal)
				return tt.err
			}}
			err := s.Check()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if slices.ContainsFunc(sent, func(signal syscall.Signal) bool { return signal != 0 }) {
				t.Errorf("sent %v", sent)
			}
			if err := s.Reboot(t.Context()); (err == nil) != (tt.want == "") || (err == nil) != slices.Contains(sent, rebootSignal) {
				t.Errorf("sent %v, error %v", sent, err)
			}
		})
	}
}
