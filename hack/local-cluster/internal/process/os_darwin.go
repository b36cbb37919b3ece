package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes puts a child into a process group of its own, so that Ctrl-C
// reaches only the process that stops the others in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// startOf returns a string that no other process of this pid ever has: the
// time of its start. A zombie has ended.
func startOf(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
		return "", errGone
	}
	if err != nil {
		return "", fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	const zombie = 5 // SZOMB of <sys/proc.h>
	if info.Proc.P_stat == zombie {
		return "", errGone
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), nil
}
