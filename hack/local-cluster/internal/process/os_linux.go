package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// attributes puts a child into a process group of its own, so that Ctrl-C
// reaches only the process that stops the others in order, and has the kernel
// kill it when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startOf returns a string that no other process of this pid ever has: the
// boot of the machine and the clock tick of the start. A zombie has ended.
func startOf(pid int) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot ID: %w", err)
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", errGone
	}
	if err != nil {
		return "", fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	state, ticks, err := parseStat(stat)
	if err != nil {
		return "", fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	if state == "Z" || state == "X" {
		return "", errGone
	}
	return strings.TrimSpace(string(boot)) + "/" + ticks, nil
}

// parseStat reads the state (field 3) and the start time (field 22) from
// /proc/<pid>/stat as proc(5) describes it. Field 2, the command in
// parentheses, may hold anything, so the fields are counted from its end.
func parseStat(stat []byte) (state, ticks string, err error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	const first, stateField, startField = 3, 3, 22
	if end < 0 || len(fields) <= startField-first {
		return "", "", fmt.Errorf("unexpected content %q", stat)
	}
	return fields[stateField-first], fields[startField-first], nil
}
