// Package process runs the processes of a cluster so that none of them
// outlives it: neither after a clean stop, nor when the process that started
// them is killed, nor when that happened where the kernel offers no help (then
// the next start reaps what was left).
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Command says what to run.
type Command struct {
	Name    string   // what messages call it, and the name of its record
	Path    string   // the executable
	Args    []string // without the name of the executable
	Env     []string // the whole environment
	Dir     string   // working directory
	Log     string   // file that its output is appended to
	Records string   // directory of the records that [Reap] reads
}

// Process is one started process.
type Process struct {
	cmd    *exec.Cmd
	spec   Command
	record string
	before int64 // length of the log when it started
	exited chan struct{}
	err    error // valid once exited is closed
}

// Exited is closed when the process has ended and been reaped.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Failure describes how the process ended, with the tail of its log. It may
// only be called once [Process.Exited] is closed, and is an error also when
// the process ended with code 0: the parts of a cluster are not meant to end.
func (p *Process) Failure() *Failure {
	<-p.exited
	state := "exit status 0"
	if p.err != nil {
		state = p.err.Error()
	}
	return &Failure{Name: p.spec.Name, State: state, Log: p.spec.Log, Tail: tail(p.spec.Log, p.before)}
}

// Signal sends a signal. It is an error if the process has ended.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("sending %v to %s: %w", signal, p.spec.Name, err)
	}
	return nil
}

// Stop asks the process to end, makes it end when it has not after grace, and
// returns when it is gone. A process that has ended already is no error.
func (p *Process) Stop(grace time.Duration) error {
	// A stopped process would sleep through the request.
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stopping %s: %w", p.spec.Name, err)
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}

// Kill ends the process at once and returns when it is gone. A process that
// has ended already is no error.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.spec.Name, err)
	}
	<-p.exited
	return nil
}
