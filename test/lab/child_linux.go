package lab

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// startChild starts a command that does not outlive this process, however it
// ends. The kernel ties the child to the thread that started it, so one thread is
// kept for that.
func startChild(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	parent() <- birth{command, result}
	return <-result
}

type birth struct {
	command *exec.Cmd
	result  chan<- error
}

var parent = sync.OnceValue(func() chan<- birth {
	births := make(chan birth)
	go func() {
		runtime.LockOSThread()
		for b := range births {
			b.result <- b.command.Start()
		}
	}()
	return births
})
