package main

import "syscall"

// ownGroup puts a child into a process group of its own, and has the kernel ask it to end
// when the thread that started it ends, also when this process is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
