package lab

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// startChild starts a command that does not outlive this process, however this process
// ends. The kernel kills the child when the thread that started it exits, so all children
// are started by one thread that never exits.
func startChild(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	starter() <- startRequest{command, result}
	return <-result
}

type startRequest struct {
	command *exec.Cmd
	result  chan<- error
}

// starter returns the channel to the goroutine that starts all children.
var starter = sync.OnceValue(func() chan<- startRequest {
	requests := make(chan startRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.command.Start()
		}
	}()
	return requests
})
