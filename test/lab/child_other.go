//go:build !linux

package lab

import (
	"os/exec"
	"syscall"
)

// startChild starts a command in a process group of its own, so that Ctrl-C interrupts
// only the test, which then stops the command.
func startChild(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command.Start()
}
