package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Keeper starts processes that die with the process it lives in.
//
// Linux signals the death of a parent to its children when the *thread* that
// started them ends, and the Go runtime ends threads as it likes. So a keeper
// owns one thread for as long as it lives, and starts everything from there.
type Keeper struct {
	jobs chan func()
}

// NewKeeper returns a keeper; [Keeper.Close] gives its thread back.
func NewKeeper() *Keeper {
	k := &Keeper{jobs: make(chan func())}
	go func() {
		// Never unlocked: the children are tied to this thread.
		runtime.LockOSThread()
		for job := range k.jobs {
			job()
		}
	}()
	return k
}

// Close ends the keeper, once everything that it started has ended. No Start
// may follow.
func (k *Keeper) Close() { close(k.jobs) }

// Start starts a process and records it for [Reap].
func (k *Keeper) Start(spec Command) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", spec.Name, err)
	}

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()

	started := make(chan error, 1)
	k.jobs <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}

	p := &Process{cmd: cmd, spec: spec, before: info.Size(), exited: make(chan struct{})}
	p.record, err = writeRecord(spec.Records, spec.Name, cmd.Process.Pid)
	go p.wait()
	if err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

func (p *Process) wait() {
	p.err = p.cmd.Wait()
	if p.record != "" {
		// A record that stays is harmless: its process is provably another.
		_ = os.Remove(p.record)
	}
	close(p.exited)
}
