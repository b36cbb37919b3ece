package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// rebootSignal is SIGRTMIN+5 of the C library: systemd, told so, starts
// reboot.target, as systemctl reboot does.
const rebootSignal = syscall.Signal(34 + 5)

// Command reboots by running a program with its arguments, until ctx ends.
func Command(words []string) func(context.Context) error {
	return func(ctx context.Context) error {
		command := exec.CommandContext(ctx, words[0], words[1:]...)
		command.WaitDelay = time.Second // for what it has started, and left behind
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(output)))
		}
		return nil
	}
}

// Systemd reboots by telling systemd, which is process 1 of the host. It takes no
// program, no file of the host, and no capability: only the host's process IDs and
// systemd's own user, root.
func Systemd(context.Context) error {
	name, err := os.ReadFile("/proc/1/comm")
	if err != nil {
		return fmt.Errorf("finding out what process 1 is: %w", err)
	}
	if name := strings.TrimSpace(string(name)); name != "systemd" {
		return fmt.Errorf("process 1 is %q, not systemd: the Pod needs hostPID, or -reboot-command has to be given", name)
	}
	if err := syscall.Kill(1, rebootSignal); err != nil {
		return fmt.Errorf("telling systemd to reboot: %w", err)
	}
	return nil
}
