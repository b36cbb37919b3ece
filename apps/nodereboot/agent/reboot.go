package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// rebootSignal is SIGRTMIN+5 of the C library, on which systemd starts reboot.target. Unlike
// systemctl reboot, this does not ask logind, so it waits for no inhibitor: the kubelet's
// graceful shutdown of nodes is one.
const rebootSignal = syscall.Signal(34 + 5)

// Rebooter reboots the system.
type Rebooter interface {
	// Check returns why Reboot cannot work here, as far as that can be found out without
	// trying; nil if it knows no reason.
	Check() error
	// Reboot may return before the system goes down, and gives up when ctx ends.
	Reboot(ctx context.Context) error
}

// Command reboots by running a program with its arguments.
type Command []string

// Check implements Rebooter: the program must exist.
func (c Command) Check() error {
	if _, err := exec.LookPath(c[0]); err != nil {
		return fmt.Errorf("-reboot-command cannot be run: %w", err)
	}
	return nil
}

// Reboot implements Rebooter.
func (c Command) Reboot(ctx context.Context) error {
	command := exec.CommandContext(ctx, c[0], c[1:]...)
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) { // which means success, and that it has left a process behind
		return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

// Systemd reboots by sending a signal to systemd, which is process 1 of the host. This needs
// no program, no file of the host and no capability, only the host's process IDs and
// systemd's user, root.
type Systemd struct {
	proc string                                     // where the processes are; /proc
	kill func(pid int, signal syscall.Signal) error // syscall.Kill
}

// NewSystemd returns the systemd of the running system.
func NewSystemd() Systemd { return Systemd{proc: "/proc", kill: syscall.Kill} }

// Check implements Rebooter: process 1 must be systemd and must accept signals from here.
func (s Systemd) Check() error {
	name, err := os.ReadFile(filepath.Join(s.proc, "1", "comm"))
	if err != nil {
		return fmt.Errorf("finding out what process 1 is: %w", err)
	}
	if name := strings.TrimSpace(string(name)); name != "systemd" {
		return fmt.Errorf("process 1 is %q, not systemd: the Pod needs hostPID, or the agent needs -reboot-command", name)
	}
	// Signal 0 is never delivered, but permissions, AppArmor and SELinux are checked.
	if err := s.kill(1, 0); err != nil {
		return fmt.Errorf("systemd does not accept signals from the agent: %w", err)
	}
	return nil
}

// Reboot implements Rebooter.
func (s Systemd) Reboot(context.Context) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := s.kill(1, rebootSignal); err != nil {
		return fmt.Errorf("signaling systemd to reboot: %w", err)
	}
	return nil
}
